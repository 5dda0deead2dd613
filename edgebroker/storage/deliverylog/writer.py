"""The delivery log as the broker's node sees it: facts go in as they happen, finished blocks come out for the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgebroker.instants import MINUTE, Instant
from edgebroker.records import ANCHOR, DELIVERY, DIGEST, FILTER, Cause, Fate, Table

from .digests import Digests
from .format import RAW_BYTES_MAX, ROWS_MAX, Header, encode_block, encode_header

# Finishing a block of 2,048 rows takes 4 ms, in which the broker does nothing else. Twice as many rows save 7 % of the
# bytes and stop it twice as long; half as many cost 10 % more bytes.
BLOCK_ROWS = 2_048
BLOCK_ROWS_MAX = ROWS_MAX // 2  # a run is added in parts of a block's rows, so a block has fewer than twice as many
DIGESTS_MAX = 4_096  # flows, and as many subscriptions, counted at once: 1.5 MiB; more are written early, in parts
# Ids, topics and filters that waiting rows may keep alive: 1 Mi characters, in UTF-8 half of what a block may hold.
TEXT_CHARS_MAX = RAW_BYTES_MAX // 8

_MATCHED = int(Fate.MATCHED)


class DeliveryLog:
    """Rows and digests of one run (*boot*) of the broker *node*.

    Every hot method takes a *run*: *count* messages with consecutive numbers from *first* that share everything else.
    All times are monotonic microseconds. Rows are written for every message with QoS > 0 and, with QoS 0, for the
    numbers divisible by *sample_qos0* (0: for none); digests count every message.

    A block is finished when it has *block_rows* rows or more, or when its minute is over; a digest that is written
    early appears as several records, which add up. `block_rows`, `DIGESTS_MAX` and `TEXT_CHARS_MAX` bound the memory:
    below 4 MiB with ids and topics of usual length, and `TEXT_CHARS_MAX` characters more for rows, digests and filters
    each with the longest. Finished blocks come on top, so call `take` as soon as `due` says so, and every second.
    """

    def __init__(self, node: str, boot: str, sample_qos0: int = 1, block_rows: int = BLOCK_ROWS) -> None:
        if not 0 < block_rows <= BLOCK_ROWS_MAX:
            raise ValueError(f"block_rows is {block_rows}, not 1 to {BLOCK_ROWS_MAX}")
        if sample_qos0 < 0:
            raise ValueError(f"sample_qos0 is {sample_qos0}, not 0 or more")
        self.node = node
        self.boot = boot
        self.sample_qos0 = sample_qos0
        self.block_rows = block_rows
        self.rows_written = 0
        """Rows of all tables in the blocks finished so far."""
        self._sequence = 0
        self._finished: list[bytes] = []
        self._minute = 0
        self._minute_start = 0
        self._minute_end = MINUTE
        # Rows about messages and rows about copies wait apart and are written one after the other: each half then has
        # constant columns where mixed rows alternate, and its times and numbers grow steadily.
        self._messages: list[tuple[Any, ...]] = []
        self._copies: list[tuple[Any, ...]] = []
        self._rows_chars = 0
        self._digests = Digests()
        self._filters: dict[tuple[str, str], list[int]] = {}
        self._filters_chars = 0
        self._anchors: list[tuple[int, int]] = []

    @property
    def due(self) -> bool:
        """True if `take` would return something without waiting for the next minute."""
        return bool(self._finished)

    def header(self, now_us: Instant, unix_us: int) -> bytes:
        """The first bytes of a file begun at *now_us*, when the wall clock says *unix_us*."""
        return encode_header(Header(self.node, self.boot, self.sample_qos0, now_us, unix_us))

    def published(
        self,
        now_us: Instant,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        qos: int,
        payload_bytes: int,
        copies: int,
    ) -> None:
        """Messages were accepted; *copies* of each are on their way."""
        self._message(now_us, publisher, first, count, topic, qos, Fate.PUBLISHED, Cause.NONE, payload_bytes, copies)

    def filtered(
        self,
        now_us: Instant,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        qos: int,
        cause: int,
        payload_bytes: int,
    ) -> None:
        """Messages that were accepted go to nobody."""
        self._message(now_us, publisher, first, count, topic, qos, Fate.FILTERED, cause, payload_bytes, 0)

    def matched(self, now_us: Instant, publisher: str, subscriber: str, first: int, count: int, qos: int) -> None:
        """Copies for *subscriber* were made. *qos* is the copies'."""
        if not self._minute_start <= now_us < self._minute_end:
            self._turn(now_us)
        self._count((publisher, subscriber, qos, _MATCHED, 0), first, count)

    def fate(
        self,
        now_us: Instant,
        publisher: str,
        subscriber: str,
        first: int,
        count: int,
        topic: str,
        filter_text: str,
        qos: int,
        fate: int,
        cause: int,
        wait_us: int,
        payload_bytes: int,
    ) -> None:
        """Copies came to their end. *qos* is the copies', as in `matched`."""
        if not self._minute_start <= now_us < self._minute_end:
            self._turn(now_us)
        self._count((publisher, subscriber, qos, fate, cause), first, count)
        if count == 1 and qos:
            self._copies.append(
                (now_us, first, publisher, subscriber, topic, filter_text, qos, fate, cause, wait_us, payload_bytes)
            )
            self._wrote(len(publisher) + len(subscriber) + len(topic) + len(filter_text))
            return
        for numbers in self._recorded(first, count, qos):
            self._copies += [
                (now_us, number, publisher, subscriber, topic, filter_text, qos, fate, cause, wait_us, payload_bytes)
                for number in numbers
            ]
            self._wrote(len(publisher) + len(subscriber) + len(topic) + len(filter_text))

    def selectivity(self, now_us: Instant, subscriber: str, filter_text: str, evaluated: int, matched: int) -> None:
        """The topics of *evaluated* messages matched a subscription, the contents of *matched* of them too."""
        if not self._minute_start <= now_us < self._minute_end:
            self._turn(now_us)
        total = self._filters.get((subscriber, filter_text))
        if total is None:
            if len(self._filters) >= DIGESTS_MAX or self._filters_chars > TEXT_CHARS_MAX:
                self._finish_filters()
            total = self._filters[subscriber, filter_text] = [0, 0]
            self._filters_chars += len(subscriber) + len(filter_text)
        total[0] += evaluated
        total[1] += matched

    def anchor(self, now_us: Instant, unix_us: int) -> None:
        """The wall clock says *unix_us*: at the start, now and then, and after it was set."""
        self._anchors.append((now_us, unix_us))
        if len(self._anchors) >= self.block_rows:
            self._finish_anchors()

    def take(self, now_us: Instant, *, closing: bool = False) -> list[bytes]:
        """The blocks finished since the last call, to be appended to the file in this order.

        With *closing*, everything noted so far is in them, also that of the unfinished minute.
        """
        if closing:
            self._finish_all()
        elif now_us >= self._minute_end:
            self._turn(now_us)
        finished = self._finished
        self._finished = []
        return finished

    # -- rows and digests ---------------------------------------------------------------------------------------

    def _message(
        self,
        now_us: int,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        qos: int,
        fate: int,
        cause: int,
        payload_bytes: int,
        copies: int,
    ) -> None:
        if not self._minute_start <= now_us < self._minute_end:
            self._turn(now_us)
        self._count((publisher, "", qos, fate, cause), first, count)
        if count == 1 and qos:
            self._messages.append((now_us, first, publisher, topic, qos, fate, cause, payload_bytes, copies))
            self._wrote(len(publisher) + len(topic))
            return
        for numbers in self._recorded(first, count, qos):
            self._messages += [
                (now_us, number, publisher, topic, qos, fate, cause, payload_bytes, copies) for number in numbers
            ]
            self._wrote(len(publisher) + len(topic))

    def _recorded(self, first: int, count: int, qos: int) -> Iterator[range]:
        """The numbers of a run that get a row, at most a block of them at a time."""
        step = 1 if qos else self.sample_qos0
        numbers = range(first + -first % step, first + count, step) if step else range(0)
        for start in range(0, len(numbers), self.block_rows):
            yield numbers[start : start + self.block_rows]

    def _wrote(self, chars: int) -> None:
        """Rows with texts of *chars* characters were added."""
        self._rows_chars += chars
        if len(self._messages) + len(self._copies) >= self.block_rows or self._rows_chars > TEXT_CHARS_MAX:
            self._finish_rows()

    def _count(self, flow: tuple[str, str, int, int, int], first: int, count: int) -> None:
        digests = self._digests
        if len(digests.totals) >= DIGESTS_MAX or digests.texts_chars > TEXT_CHARS_MAX:
            self._finish_digests()
        digests.add(flow, first, count)

    # -- blocks -------------------------------------------------------------------------------------------------

    def _turn(self, now_us: int) -> None:
        """Finish the minute that was counted and begin that of *now_us*."""
        self._finish_all()
        self._minute = now_us // MINUTE
        self._minute_start = self._minute * MINUTE
        self._minute_end = self._minute_start + MINUTE

    def _finish_all(self) -> None:
        self._finish_anchors()
        self._finish_rows()
        self._finish_digests()
        self._finish_filters()

    def _finish_rows(self) -> None:
        messages, copies = self._messages, self._copies
        if not messages and not copies:
            return
        self._messages, self._copies, self._rows_chars = [], [], 0
        m, c = len(messages), len(copies)
        times, numbers, publishers, topics, qos, fates, causes, sizes, made = columns_of(messages, 9)
        c_times, c_numbers, c_publishers, subscribers, c_topics, filters, c_qos, c_fates, c_causes, waits, c_sizes = (
            columns_of(copies, 11)
        )
        none = ("",) * m
        self._finish(
            DELIVERY,
            (
                times + c_times,
                numbers + c_numbers,
                publishers + c_publishers,
                none + subscribers,
                topics + c_topics,
                none + filters,
                qos + c_qos,
                fates + c_fates,
                causes + c_causes,
                (0,) * m + waits,
                sizes + c_sizes,
                made + (0,) * c,
            ),
        )

    def _finish_digests(self) -> None:
        rows = self._digests.take(self._minute)
        if rows:
            self._finish(DIGEST, columns_of(rows, len(DIGEST.columns)))

    def _finish_filters(self) -> None:
        rows = [(self._minute, *key, *total) for key, total in self._filters.items()]
        if rows:
            self._filters, self._filters_chars = {}, 0
            self._finish(FILTER, columns_of(rows, len(FILTER.columns)))

    def _finish_anchors(self) -> None:
        if self._anchors:
            rows, self._anchors = self._anchors, []
            self._finish(ANCHOR, columns_of(rows, len(ANCHOR.columns)))

    def _finish(self, table: Table, columns: Sequence[tuple[Any, ...]]) -> None:
        self._finished.append(encode_block(table, self._sequence, columns))
        self._sequence += 1
        self.rows_written += len(columns[0])


def columns_of(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[tuple[Any, ...]]:
    """*rows* on end: one tuple per column, *width* empty ones if there are no rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
