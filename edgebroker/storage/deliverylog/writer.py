"""The writer of the delivery log: facts go in as they happen, finished blocks come out for the disk. Audit digests
count every flow, also where rows are sampled.

If one number is missing, the difference of two sums *is* that number; likewise if one occurs twice. So loss and
duplicates are detected, and single ones identified, although rows are sampled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from edgebroker.instants import MINUTE, Instant
from edgebroker.limits import KIB
from edgebroker.log_schema import ANCHOR, DELIVERY, DIGEST, FILTER, SUM_MODULUS, Cause, Fate, Table, TraceParent
from edgebroker.storage.deliverylog.block_builder import BlockMaking, ColumnsMaking, make_block, make_columns
from edgebroker.storage.deliverylog.format import ENTRIES_MAX, LogHeader, encode_header

Flow: TypeAlias = tuple[str, str, int, int, int]
"""publisher, subscriber, QoS, fate, cause"""


def sum_of_run(first: int, count: int) -> int:
    """Return the sum of first, first + 1, ...: *count* numbers."""
    return count * (2 * first + count - 1) // 2


def xor_of_run(first: int, count: int) -> int:
    """Return the exclusive or of first, first + 1, ...: *count* numbers."""
    return xor_below(first + count) ^ xor_below(first)


def xor_below(end: int) -> int:
    """Return 0 ^ 1 ^ ... ^ (end - 1): every aligned group of four cancels out, so at most three numbers are left."""
    return (0, end - 1, 1, end)[end & 3]


class Digests:
    """The digests of one minute, by flow."""

    __slots__ = ("texts_chars", "totals")

    def __init__(self) -> None:
        self.totals: dict[Flow, list[int]] = {}
        """[count, sum, xor]; the sum is reduced modulo SUM_MODULUS when it is written."""
        self.texts_chars = 0

    def add(self, flow: Flow, first: int, count: int) -> None:
        """Count a run of *count* numbers from *first*, in constant time."""
        total = self.totals.get(flow)
        if total is None:
            total = self.totals[flow] = [0, 0, 0]
            self.texts_chars += len(flow[0]) + len(flow[1])
        total[0] += count
        if count == 1:
            total[1] += first
            total[2] ^= first
        else:
            total[1] += sum_of_run(first, count)
            total[2] ^= xor_of_run(first, count)

    def take(self, minute: int) -> Iterator[tuple[object, ...]]:
        """Return an iterator over the rows of `log_schema.DIGEST`, and begin a new minute."""
        totals, self.totals = self.totals, {}
        self.texts_chars = 0
        return ((minute, *flow, count, total % SUM_MODULUS, xor) for flow, (count, total, xor) in totals.items())


# Twice as many rows save 7 % of the bytes and take twice the memory; half as many cost 10 % more bytes.
BLOCK_ROWS = 2_048
# A row has six texts. A run, whose rows share their texts, is added in parts of a block's rows: a block has fewer than
# twice as many rows, and no more texts.
BLOCK_ROWS_MAX = ENTRIES_MAX // 6
DIGESTS_MAX = 4_096  # flows, and as many subscriptions, counted at once: 1.5 MiB; more are written early, in parts
# Characters of ids, topics and filters in waiting rows: with all numbers in full width their block stays below
# UNFOLDED_BYTES_MAX.
TEXT_CHARS_MAX = 384 * KIB
# Building a block of 2,048 rows takes about 20 steps of 0.2 ms. With one step for every 64 facts or rows, it is
# finished before the next one is full, even without calls of `step`.
FACTS_PER_STEP = 64
# Blocks that wait to be built. The end of a minute adds four at once; only an attack with long texts adds so many that
# the oldest must be built at once, which blocks everything else for 20 ms.
MAKING_MAX = 8
READY_AT_ONCE = 4  # writing and hashing a block takes 0.1 ms

TRACE_CHARS = 48
_MATCHED = int(Fate.MATCHED)
_UNTRACED = TraceParent("", "")
_NO_EVENT = (0, 0)


class DeliveryLog:
    """Rows and digests of one run (*boot*) of the broker *node*.

    Every hot method takes a *run*: *count* messages with consecutive numbers from *first* that share everything else.
    All times are monotonic microseconds. Rows are written for every message with QoS > 0 or a *trace* and, of the
    others, for the numbers divisible by *sample_qos0* (0: for none); digests count every message.

    A block is full when it has *block_rows* rows or more, or when its minute is over; a digest that is written early
    appears as several records, which must be added. A full block is encoded in steps of at most about a millisecond:
    some with the facts that follow it, the others when `step` is called. `block_rows`, `DIGESTS_MAX` and
    `TEXT_CHARS_MAX` bound the memory: below 4 MiB with ids and topics of usual length, and `TEXT_CHARS_MAX` characters
    more for rows, digests and filters each with the longest. Finished blocks come on top, so every second call `step`
    and `ready` until nothing is left, or `take`.
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
        """Rows of all tables in the blocks that are finished or being built."""
        self._sequence = 0
        self._making: deque[BlockMaking] = deque()
        self._facts = 0  # since the last step
        self._finished: list[bytes] = []
        self._minute = 0
        self._minute_start = 0
        self._minute_end = MINUTE
        # Rows about messages and rows about copies are collected separately and written one after the other: each half
        # has constant columns where mixed rows would alternate, and its times and numbers grow steadily.
        self._messages: list[tuple[Any, ...]] = []
        self._copies: list[tuple[Any, ...]] = []
        self._rows_chars = 0
        self._traces: dict[int, TraceParent] = {}
        # Message number -> trace, only for traced messages with rows above.
        self._event = _NO_EVENT
        self._digests = Digests()
        self._filters: dict[tuple[str, str], list[int]] = {}
        self._filters_chars = 0
        self._anchors: list[tuple[int, int]] = []

    @property
    def due(self) -> bool:
        """Whether `take` would return anything without waiting for the next minute."""
        return bool(self._finished or self._making)

    def header(self, now_us: Instant, unix_us: int) -> bytes:
        """Return the first bytes of a file begun at *now_us*, when the wall clock shows *unix_us*."""
        return encode_header(LogHeader(self.node, self.boot, self.sample_qos0, now_us, unix_us))

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
        trace: TraceParent | None = None,
    ) -> None:
        """Log accepted messages, with *copies* copies each."""
        event, self._event = self._event, _NO_EVENT
        self._message(
            now_us, publisher, first, count, topic, qos, Fate.PUBLISHED, Cause.NONE, payload_bytes, copies, trace, event
        )

    def stamp(self, event: tuple[int, int]) -> None:
        """Set the *event* of the overlay that the next accepted message is: publisher and sequence of its header."""
        self._event = event

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
        trace: TraceParent | None = None,
    ) -> None:
        """Log accepted messages without copies."""
        self._message(now_us, publisher, first, count, topic, qos, Fate.FILTERED, cause, payload_bytes, 0, trace)

    def matched(self, now_us: Instant, publisher: str, subscriber: str, first: int, count: int, qos: int) -> None:
        """Log copies for *subscriber*. *qos* is the copies'."""
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
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
        trace: TraceParent | None = None,
    ) -> None:
        """Log the final fate of copies. *qos* is the copies', as in `matched`."""
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
        self._count((publisher, subscriber, qos, fate, cause), first, count)
        if count == 1 and qos and trace is None:
            self._copies.append(
                (now_us, first, publisher, subscriber, topic, filter_text, qos, fate, cause, wait_us, payload_bytes)
            )
            self._count_rows(1, len(publisher) + len(subscriber) + len(topic) + len(filter_text))
            return
        for numbers in self._recorded(first, count, qos > 0 or trace is not None):
            self._copies += [
                (now_us, number, publisher, subscriber, topic, filter_text, qos, fate, cause, wait_us, payload_bytes)
                for number in numbers
            ]
            if trace is not None:
                self._add_trace(numbers, trace)
            self._count_rows(len(numbers), len(publisher) + len(subscriber) + len(topic) + len(filter_text))

    def selectivity(self, now_us: Instant, subscriber: str, filter_text: str, evaluated: int, matched: int) -> None:
        """Count *evaluated* messages whose topic matched a subscription, and the *matched* ones that its content filter
        accepted.
        """
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
        total = self._filters.get((subscriber, filter_text))
        if total is None:
            if len(self._filters) >= DIGESTS_MAX or self._filters_chars > TEXT_CHARS_MAX:
                self._finish_filters()
            total = self._filters[subscriber, filter_text] = [0, 0]
            self._filters_chars += len(subscriber) + len(filter_text)
        total[0] += evaluated
        total[1] += matched
        if self._making:
            self._build_for(1)

    def anchor(self, now_us: Instant, unix_us: int) -> None:
        """Log the wall clock time *unix_us*: at the start, regularly, and after the clock was set."""
        self._anchors.append((now_us, unix_us))
        if len(self._anchors) >= self.block_rows:
            self._finish_anchors()

    def step(self, now_us: Instant) -> bool:
        """Do one step of building blocks; return whether there is more to do, or a block is `ready`."""
        if now_us >= self._minute_end:
            self._begin_minute(now_us)
        if self._making:
            self._make()
        return self.due

    def ready(self) -> list[bytes]:
        """Return the next finished blocks, to be appended to the file in this order: READY_AT_ONCE, or half of all if
        that is more.

        So they never pile up, and writing them never takes long.
        """
        count = max(READY_AT_ONCE, len(self._finished) // 2)
        ready, self._finished = self._finished[:count], self._finished[count:]
        return ready

    def take(self, now_us: Instant, *, closing: bool = False) -> list[bytes]:
        """Return all full blocks that were not returned before, built at once. For callers that can wait.

        With *closing*, they contain everything logged so far, the unfinished minute included.
        """
        if closing:
            self._finish_all()
        elif now_us >= self._minute_end:
            self._begin_minute(now_us)
        while self._making:
            self._make()
        finished, self._finished = self._finished, []
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
        trace: TraceParent | None,
        event: tuple[int, int] = _NO_EVENT,
    ) -> None:
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
        self._count((publisher, "", qos, fate, cause), first, count)
        if count == 1 and qos and trace is None:
            self._messages.append((now_us, first, publisher, topic, qos, fate, cause, payload_bytes, copies, *event))
            self._count_rows(1, len(publisher) + len(topic))
            return
        for numbers in self._recorded(first, count, qos > 0 or trace is not None):
            self._messages += [
                (now_us, number, publisher, topic, qos, fate, cause, payload_bytes, copies, *event)
                for number in numbers
            ]
            if trace is not None:
                self._add_trace(numbers, trace)
            self._count_rows(len(numbers), len(publisher) + len(topic))

    def _recorded(self, first: int, count: int, is_whole: bool) -> Iterator[range]:
        """Iterate over the numbers of a run that get a row, at most a block of them at a time; all if it *is_whole*,
        else a sample.
        """
        step = 1 if is_whole else self.sample_qos0
        numbers = range(first + -first % step, first + count, step) if step else range(0)
        for start in range(0, len(numbers), self.block_rows):
            yield numbers[start : start + self.block_rows]

    def _add_trace(self, numbers: range, trace: TraceParent) -> None:
        """Record the *trace* of the messages with these numbers, whose rows were added."""
        self._traces.update(dict.fromkeys(numbers, trace))
        self._rows_chars += TRACE_CHARS

    def _count_rows(self, rows: int, chars: int) -> None:
        """Count added *rows*, whose texts have *chars* characters."""
        self._rows_chars += chars
        if len(self._messages) + len(self._copies) >= self.block_rows or self._rows_chars > TEXT_CHARS_MAX:
            self._finish_rows()
        if self._making:
            self._build_for(rows)

    def _count(self, flow: tuple[str, str, int, int, int], first: int, count: int) -> None:
        digests = self._digests
        if len(digests.totals) >= DIGESTS_MAX or digests.texts_chars > TEXT_CHARS_MAX:
            self._finish_digests()
        digests.add(flow, first, count)
        if self._making:
            self._build_for(1)

    # -- blocks -------------------------------------------------------------------------------------------------

    def _begin_minute(self, now_us: int) -> None:
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
        messages, copies, traces = self._messages, self._copies, self._traces
        if messages or copies:
            self._messages, self._copies, self._traces, self._rows_chars = [], [], {}, 0
            self._finish(DELIVERY, len(messages) + len(copies), make_delivery(messages, copies, traces))

    def _finish_digests(self) -> None:
        flows = len(self._digests.totals)
        if flows:
            self._finish(DIGEST, flows, make_columns(self._digests.take(self._minute)))

    def _finish_filters(self) -> None:
        totals, minute = self._filters, self._minute
        if totals:
            self._filters, self._filters_chars = {}, 0
            rows = ((minute, *key, evaluated, matched) for key, (evaluated, matched) in totals.items())
            self._finish(FILTER, len(totals), make_columns(rows))

    def _finish_anchors(self) -> None:
        if self._anchors:
            rows, self._anchors = self._anchors, []
            self._finish(ANCHOR, len(rows), make_columns(rows))

    def _finish(self, table: Table, rows: int, columns: ColumnsMaking) -> None:
        """Queue a full block for building."""
        while len(self._making) >= MAKING_MAX:
            self._make()
        self._making.append(make_block(table, self._sequence, columns))
        self._sequence += 1
        self.rows_written += rows

    def _build_for(self, facts: int) -> None:
        """Do one step for every FACTS_PER_STEP facts, while there are blocks to build."""
        self._facts += facts
        while self._facts >= FACTS_PER_STEP:
            self._facts -= FACTS_PER_STEP
            if self._making:
                self._make()

    def _make(self) -> None:
        """Do one step of the oldest block that is being built."""
        try:
            next(self._making[0])
        except StopIteration as made:
            self._making.popleft()
            self._finished.append(made.value)
        except Exception:
            self._making.popleft()  # no step can follow; the gap in the numbering shows it
            raise


def make_delivery(
    messages: Sequence[tuple[Any, ...]], copies: Sequence[tuple[Any, ...]], traces: Mapping[int, TraceParent]
) -> ColumnsMaking:
    """Return the columns of `log_schema.DELIVERY`: rows about messages, then rows about copies; *traces* by message
    number.
    """
    m, c = len(messages), len(copies)
    times, numbers, publishers, topics, qos, fates, causes, sizes, made, origins, sequences = columns_of(messages, 11)
    yield
    c_times, c_numbers, c_publishers, subscribers, c_topics, filters, c_qos, c_fates, c_causes, waits, c_sizes = (
        columns_of(copies, 11)
    )
    yield
    numbers += c_numbers
    trace_ids = parent_ids = ("",) * (m + c)
    if traces:
        trace_ids, parent_ids = zip(*[traces.get(number, _UNTRACED) for number in numbers], strict=True)
    none = ("",) * m
    return (
        times + c_times,
        numbers,
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
        trace_ids,
        parent_ids,
        origins + (0,) * c,
        sequences + (0,) * c,
    )


def columns_of(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[tuple[Any, ...]]:
    """Transpose *rows*: one tuple per column, *width* empty ones if there are no rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
