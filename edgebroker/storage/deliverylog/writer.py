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
from edgebroker.log_schema import (
    ANCHOR,
    DELIVERY,
    DIGEST,
    FILTER,
    NO_EVENT,
    SUM_MODULUS,
    Cause,
    EventId,
    Fate,
    MessageOrigin,
    Table,
    TraceParent,
)
from edgebroker.storage.deliverylog.block_builder import BlockMaking, ColumnsMaking, make_block, make_columns
from edgebroker.storage.deliverylog.format import (
    DELIVERY_RUNS,
    ENTRIES_MAX,
    ROWS_MAX,
    LogHeader,
    encode_header,
    without_replaced,
)

Flow: TypeAlias = tuple[str, str, int, int, int, int]
"""publisher, subscriber, QoS, fate, cause, origin"""


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
        return (
            (minute, *flow[:5], count, total % SUM_MODULUS, xor, flow[5])
            for flow, (count, total, xor) in totals.items()
        )


# Twice as many rows save 7 % of the bytes and take twice the memory; half as many cost 10 % more bytes.
BLOCK_ROWS = 2_048
BLOCK_ROWS_MAX = ENTRIES_MAX // 6  # a row has six texts
COUNT_MAX = ROWS_MAX // 2  # messages that a row stands for; a block with that many or more is full
DIGESTS_MAX = 4_096  # flows, and as many subscriptions, counted at once: 1.5 MiB; more are written early, in parts
# Characters of ids, topics and filters in waiting rows: with all numbers in full width their block stays below
# UNFOLDED_BYTES_MAX.
TEXT_CHARS_MAX = 384 * KIB
# Building a block of 2,048 rows takes about 20 steps of 0.2 ms. With one step for every 64 facts, it is finished before
# the next one is full, even without calls of `step`.
FACTS_PER_STEP = 64
# Blocks that wait to be built. The end of a minute adds four at once; only an attack with long texts adds so many that
# the oldest must be built at once, which blocks everything else for 20 ms.
MAKING_MAX = 8
# Rows of all tables that wait for more when a minute ends. 150 rows an hour, each minute's in blocks of their own, took
# 254 bytes each.
WAITING_ROWS_MAX = 512
WAITING_US_MAX = 60 * MINUTE
WAITING_CHARS_MAX = 32 * KIB  # of their texts, for the same reason as the rows: they are encoded anew each minute
READY_AT_ONCE = 4  # writing and hashing a block takes 0.1 ms

PLACEMENT_ROWS_MAX = 1_024  # of one table that wait: they have 17 whole numbers, and a block 45,056

BRIDGES_MAX = 1_024  # any client of version 3.1.1 may say that it is one
TRACE_CHARS = 48
_PUBLISHED, _MATCHED, _BRIDGE = int(Fate.PUBLISHED), int(Fate.MATCHED), int(MessageOrigin.BRIDGE)
_UNTRACED = TraceParent("", "")


class DeliveryLog:
    """Rows and digests of one run (*boot*) of the broker *node*.

    Every hot method takes a *run*: *count* messages with consecutive numbers from *first* that share everything else.
    All times are monotonic microseconds. Rows are written for every message with QoS > 0 or a *trace* and, of the
    others, for the numbers divisible by *sample_qos0* (0: for none): one row for all such numbers of a run, up to
    COUNT_MAX of them. Digests count every message.

    A block is full when it has *block_rows* rows or more, or when a minute is over and WAITING_ROWS_MAX rows wait, or
    one of them for WAITING_US_MAX. What waits at the end of a minute is written all the same, in *provisional* blocks
    at the end of the file, which full ones of the same numbers replace later. A digest that is written early appears as
    several records, which must be added. A full block is encoded in steps of at most about a millisecond:
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
        self._bridges: set[str] = set()
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
        self._rows_numbers = 0  # messages that the rows stand for
        self._traces: dict[int, TraceParent] = {}
        # Message number -> trace, only for traced messages with rows above.
        self._digests = Digests()
        self._filters: dict[tuple[str, str], list[int]] = {}
        self._filters_chars = 0
        self._anchors: list[tuple[int, int]] = []
        self._placements: dict[Table, list[tuple[Any, ...]]] = {}  # rows of TRACE and MIGRATION
        # Rows of the minutes that are over.
        self._digest_rows: list[tuple[Any, ...]] = []
        self._filter_rows: list[tuple[Any, ...]] = []
        self._waiting_chars = 0
        self._waiting_since = 0  # 0: no row of an earlier minute waits

    @property
    def due(self) -> bool:
        """Whether `take` would return anything without waiting for the next minute."""
        return bool(self._finished or self._making)

    def header(self, now_us: Instant, unix_us: int) -> bytes:
        """Return the first bytes of a file begun at *now_us*, when the wall clock shows *unix_us*."""
        return encode_header(LogHeader(self.node, self.boot, self.sample_qos0, now_us, unix_us))

    def set_bridge(self, client: str, *, is_bridge: bool) -> None:
        """State whether *client*, which has just connected, is a bridge: its messages have the origin BRIDGE."""
        if not is_bridge:
            self._bridges.discard(client)
        elif len(self._bridges) < BRIDGES_MAX:
            self._bridges.add(client)

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
        event: EventId = NO_EVENT,
        origin: int = 0,
    ) -> None:
        """Log accepted messages, with *copies* copies each. *event*: the identity of the first in the overlay."""
        fate, cause = Fate.PUBLISHED, Cause.NONE
        self._message(
            now_us, publisher, first, count, topic, qos, fate, cause, payload_bytes, copies, trace, event, origin
        )

    def count_published(self, now_us: Instant, publisher: str, first: int, count: int, origin: int = 0) -> None:
        """Log accepted messages of QoS 0 with copies that get no rows."""
        if self._bridges and not origin:
            origin = self._origin_of(publisher)
        self._count_flow(now_us, (publisher, "", 0, _PUBLISHED, 0, origin), first, count)

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
        origin: int = 0,
    ) -> None:
        """Log accepted messages without copies."""
        fate = Fate.FILTERED
        self._message(
            now_us, publisher, first, count, topic, qos, fate, cause, payload_bytes, 0, trace, NO_EVENT, origin
        )

    def matched(
        self, now_us: Instant, publisher: str, subscriber: str, first: int, count: int, qos: int, origin: int = 0
    ) -> None:
        """Log copies for *subscriber*. *qos* is the copies'."""
        if self._bridges and not origin:
            origin = self._origin_of(publisher)
        self._count_flow(now_us, (publisher, subscriber, qos, _MATCHED, 0, origin), first, count)

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
        origin: int = 0,
    ) -> None:
        """Log the final fate of copies. *qos* is the copies', as in `matched`."""
        if self._bridges and not origin:
            origin = self._origin_of(publisher)
        self._count_flow(now_us, (publisher, subscriber, qos, fate, cause, origin), first, count)
        for number, numbers in self._recorded(first, count, qos > 0 or trace is not None):
            self._copies.append(
                (
                    now_us,
                    number,
                    publisher,
                    subscriber,
                    topic,
                    filter_text,
                    qos,
                    fate,
                    cause,
                    wait_us,
                    payload_bytes,
                    origin,
                    numbers,
                )
            )
            if trace is not None:
                self._add_trace(number, trace)
            self._count_row(numbers, len(publisher) + len(subscriber) + len(topic) + len(filter_text))

    def selectivity(self, now_us: Instant, subscriber: str, filter_text: str, evaluated: int, matched: int) -> None:
        """Count *evaluated* messages whose topic matched a subscription, and the *matched* ones that its content filter
        accepted.
        """
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
        total = self._filters.get((subscriber, filter_text))
        if total is None:
            if len(self._filters) >= DIGESTS_MAX or self._filters_chars > TEXT_CHARS_MAX:
                self._close_minute()
                self.finish_waiting()
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
            self.finish_waiting()

    def placed(self, now_us: Instant, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Log *rows* of `log_schema.TRACE` or `log_schema.MIGRATION`."""
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
        for row in rows:
            waiting = self._placements.setdefault(table, [])
            waiting.append(row)
            self._waiting_chars += sum(len(value) for value in row if isinstance(value, str))
            if len(waiting) >= PLACEMENT_ROWS_MAX or self._waiting_chars > TEXT_CHARS_MAX:
                self.finish_waiting()

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
            self._close_minute()
            self.finish_waiting()
        elif now_us >= self._minute_end:
            self._begin_minute(now_us)
        while self._making:
            self._make()
        finished, self._finished = self._finished, []
        return without_replaced(finished)

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
        event: EventId,
        origin: int,
    ) -> None:
        if self._bridges and not origin:
            origin = self._origin_of(publisher)
        self._count_flow(now_us, (publisher, "", qos, fate, cause, origin), first, count)
        publisher_number, sequence = event
        for number, numbers in self._recorded(first, count, qos > 0 or trace is not None):
            self._messages.append(
                (
                    now_us,
                    number,
                    publisher,
                    topic,
                    qos,
                    fate,
                    cause,
                    payload_bytes,
                    copies,
                    publisher_number,
                    sequence and sequence + number - first,
                    origin,
                    numbers,
                )
            )
            if trace is not None:
                self._add_trace(number, trace)
            self._count_row(numbers, len(publisher) + len(topic))

    def _origin_of(self, publisher: str) -> int:
        """Return the origin of messages that a client publishes."""
        return _BRIDGE if publisher in self._bridges else 0

    def _recorded(self, first: int, count: int, is_whole: bool) -> Sequence[tuple[int, int]]:
        """Return the rows of a run: the first number of each, and how many numbers it stands for.

        is_whole: every message is recorded, each in a row of its own; else a sample.
        """
        if is_whole:
            return ((first, 1),) if count == 1 else [(number, 1) for number in range(first, first + count)]
        step = self.sample_qos0
        if not step:
            return ()
        start = first + (step - first % step) % step
        kept = (first + count - start + step - 1) // step
        if kept <= COUNT_MAX:
            return ((start, kept),) if kept > 0 else ()
        return [(start + step * at, min(COUNT_MAX, kept - at)) for at in range(0, kept, COUNT_MAX)]

    def _add_trace(self, number: int, trace: TraceParent) -> None:
        """Record the *trace* of the message with this number, whose row was added."""
        self._traces[number] = trace
        self._rows_chars += TRACE_CHARS

    def _count_row(self, numbers: int, chars: int) -> None:
        """Count an added row, which stands for so many messages, and whose texts have *chars* characters."""
        self._rows_numbers += numbers
        self._rows_chars += chars
        rows = len(self._messages) + len(self._copies)
        if rows >= self.block_rows or self._rows_numbers >= COUNT_MAX or self._rows_chars > TEXT_CHARS_MAX:
            self.finish_waiting()
        if self._making:
            self._build_for(1)

    def _count_flow(self, now_us: int, flow: Flow, first: int, count: int) -> None:
        if not self._minute_start <= now_us < self._minute_end:
            self._begin_minute(now_us)
        digests = self._digests
        if len(digests.totals) >= DIGESTS_MAX or digests.texts_chars > TEXT_CHARS_MAX:
            self._close_minute()
            self.finish_waiting()
        digests.add(flow, first, count)
        if self._making:
            self._build_for(1)

    # -- blocks -------------------------------------------------------------------------------------------------

    def finish_waiting(self) -> None:
        """Make full blocks of all rows but those of the digests and filters of the minute that is being counted."""
        for table, rows, columns in self._waiting_columns():
            self._finish(table, rows, columns)
        self._messages, self._copies, self._traces, self._rows_chars, self._rows_numbers = [], [], {}, 0, 0
        self._anchors, self._digest_rows, self._filter_rows, self._placements = [], [], [], {}
        self._waiting_chars = self._waiting_since = 0

    def _begin_minute(self, now_us: int) -> None:
        """Finish the minute that was counted and begin that of *now_us*."""
        self._close_minute()
        ended_us = self._minute_end
        self._minute = now_us // MINUTE
        self._minute_start = self._minute * MINUTE
        self._minute_end = self._minute_start + MINUTE
        rows = len(self._messages) + len(self._copies) + len(self._digest_rows) + len(self._filter_rows)
        rows += sum(map(len, self._placements.values()))
        if not rows + len(self._anchors):
            return
        self._waiting_since = self._waiting_since or ended_us - MINUTE
        chars = self._waiting_chars + self._rows_chars
        is_due = rows + len(self._anchors) >= WAITING_ROWS_MAX or chars >= WAITING_CHARS_MAX
        if is_due or now_us - self._waiting_since >= WAITING_US_MAX:
            self.finish_waiting()
            return
        for number, (table, _, columns) in enumerate(self._waiting_columns(), self._sequence):
            self._build_later(make_block(table, number, columns, is_provisional=True))

    def _close_minute(self) -> None:
        """Turn what was counted in this minute into rows."""
        digests, filters, minute = self._digests, self._filters, self._minute
        chars = digests.texts_chars + self._filters_chars
        if chars and self._waiting_chars + chars > TEXT_CHARS_MAX:
            self.finish_waiting()
        flows = len(digests.totals)
        selective = ((minute, *key, evaluated, matched) for key, (evaluated, matched) in filters.items())
        self._filters, self._filters_chars = {}, 0
        if flows + len(filters) > WAITING_ROWS_MAX:  # their rows are made step by step
            self.finish_waiting()
            if flows:
                self._finish(DIGEST, flows, make_columns(digests.take(minute)))
            if filters:
                self._finish(FILTER, len(filters), make_columns(selective))
            return
        self._waiting_chars += chars
        self._digest_rows += digests.take(minute)
        self._filter_rows += selective

    def _waiting_columns(self) -> list[tuple[Table, int, ColumnsMaking]]:
        """Return table, number of rows and columns of each block that the waiting rows make."""
        found: list[tuple[Table, int, ColumnsMaking]] = []
        if self._anchors:
            found.append((ANCHOR, len(self._anchors), make_columns(list(self._anchors))))
        rows = len(self._messages) + len(self._copies)
        if rows:
            step = self.sample_qos0 if self._rows_numbers > rows else 0
            columns = make_delivery(list(self._messages), list(self._copies), dict(self._traces), step)
            found.append((DELIVERY_RUNS if step else DELIVERY, rows, columns))
        for table, waiting in ((DIGEST, self._digest_rows), (FILTER, self._filter_rows), *self._placements.items()):
            if waiting:
                found.append((table, len(waiting), make_columns(list(waiting))))
        return found

    def _finish(self, table: Table, rows: int, columns: ColumnsMaking) -> None:
        """Queue a full block for building."""
        self._build_later(make_block(table, self._sequence, columns))
        self._sequence += 1
        self.rows_written += rows

    def _build_later(self, making: BlockMaking) -> None:
        while len(self._making) >= MAKING_MAX:
            self._make()
        self._making.append(making)

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
    messages: Sequence[tuple[Any, ...]],
    copies: Sequence[tuple[Any, ...]],
    traces: Mapping[int, TraceParent],
    step: int = 0,
) -> ColumnsMaking:
    """Return the columns of `log_schema.DELIVERY`: rows about messages, then rows about copies; *traces* by message
    number. With a *step*, the columns of `format.DELIVERY_RUNS`.
    """
    m, c = len(messages), len(copies)
    times, numbers, publishers, topics, qos, fates, causes, sizes, made, eventers, sequences, origins, counts = (
        columns_of(messages, 13)
    )
    yield
    (
        c_times,
        c_numbers,
        c_publishers,
        subscribers,
        c_topics,
        filters,
        c_qos,
        c_fates,
        c_causes,
        waits,
        c_sizes,
        c_origins,
        c_counts,
    ) = columns_of(copies, 13)
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
        eventers + (0,) * c,
        sequences + (0,) * c,
        origins + c_origins,
        *((counts + c_counts, (step,) * (m + c)) if step else ()),
    )


def columns_of(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[tuple[Any, ...]]:
    """Transpose *rows*: one tuple per column, *width* empty ones if there are no rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
