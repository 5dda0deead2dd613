"""The trail of a message through delivery logs: the query, where it was accepted, and the end of each copy."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

from edgebroker.cli.log import LogReader
from edgebroker.log_schema import SUM_MODULUS, Cause, Fate
from edgebroker.storage.deliverylog.format import LogHeader

Event = tuple[int, int]
"""Publisher and sequence of the header: the same at every gateway."""
FORMS: Final = (
    "an event (PUBLISHER-SEQUENCE), a message of a run (BOOT/NUMBER), a trace id of 32 hexadecimal digits,"
    " or a traceparent"
)
_EVENT: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_NUMBER: Final = re.compile(r"([0-9a-zA-Z_.-]+)/([0-9]{1,19})")
_TRACE: Final = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-.*)?")


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """What is said of the message. Everything that is said must hold."""

    event: Event | None = None
    trace_id: str = ""
    boot: str = ""
    number: int = 0
    client: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, text: str | None, client: str | None, topic: str | None) -> MessageQuery:
        """Raises click.BadParameter."""
        of = cls(client=client or "", topic=topic or "")
        if text is None:
            if not client and not topic:
                raise click.UsageError(f"which message? Give {FORMS}; or --client or --topic")
            return of
        if found := _EVENT.fullmatch(text):
            return replace(of, event=(int(found[1]), int(found[2])))
        if found := _TRACE.fullmatch(text.lower()):
            return replace(of, trace_id=found[1])
        if found := _NUMBER.fullmatch(text):
            return replace(of, boot=found[1], number=int(found[2]))
        raise click.BadParameter(f"{text!r} is neither {FORMS.replace(', or', ', nor')}", param_hint="MESSAGE")

    def may_be_in(self, boot: str, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether a block of run *boot* with these *columns* may have it: most have not, and need no closer look."""
        return (
            (self.event is None or self.event[1] in columns["event_sequence"])
            and (not self.trace_id or self.trace_id in columns["trace_id"])
            and (not self.boot or (self.boot == boot and self.number in columns["message"]))
            and (not self.client or self.client in columns["publisher"])
            and (not self.topic or self.topic in columns["topic"])
        )

    def matches(self, boot: str, row: dict[str, Any]) -> bool:
        """Whether *row* of run *boot*, one of a message that was accepted, is asked about."""
        return (
            (self.event is None or self.event == (row["event_publisher"], row["event_sequence"]))
            and self.trace_id in ("", row["trace_id"])
            and (not self.boot or (self.boot, self.number) == (boot, row["message"]))
            and self.client in ("", row["publisher"])
            and self.topic in ("", row["topic"])
        )


NO_EVENT: Final[Event] = (0, 0)
COLUMNS: Final = (
    *("t_us", "message", "publisher", "subscriber", "topic", "filter", "qos", "fate", "cause", "wait_us"),
    *("payload_bytes", "copies", "trace_id", "event_publisher", "event_sequence"),
)
PEER: Final = "gateway:"
"""How a log calls a peer that gets a copy."""

Key = tuple[str, int]
"""A run, and the number of a message in it."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrailCopy:
    """What became of one copy, by `Fate`, for whom; `filter` is the subscription."""

    at_us: int
    subscriber: str
    filter: str
    fate: int
    cause: int
    wait_us: int

    @property
    def peer(self) -> str:
        """The gateway that it was for; "" if it was for a client."""
        return self.subscriber.removeprefix(PEER) if self.subscriber.startswith(PEER) else ""

    @property
    def is_handed_over(self) -> bool:
        """Whether it went on as the copy of another member of the group: that one has an end of its own."""
        return (self.fate, self.cause) == (Fate.DROPPED, Cause.HANDED_OVER)


@dataclass(slots=True)
class TrailStop:
    """The message in one run of one gateway. Times are microseconds since 1970, by that gateway's clock."""

    node: str
    boot: str
    number: int
    event: Event = NO_EVENT
    at_us: int = 0
    publisher: str = ""
    topic: str = ""
    qos: int = 0
    payload_bytes: int = 0
    trace_id: str = ""
    copies: int = 0
    """How many were made."""
    filtered: int = 0
    """Why, by `Cause`, if none was made."""
    ends: list[TrailCopy] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)
    """For whom a copy may still wait -> how many copies of its publisher do."""
    is_over: bool = False
    """The run ended cleanly: the log has all there is."""

    @property
    def open(self) -> int:
        """Copies whose end the log does not say."""
        return max(0, self.copies - sum(not end.is_handed_over for end in self.ends))

    def add(self, row: Row) -> None:
        """A record of it. Its times are monotonic until `place` is called."""
        at_us, fate = row["t_us"], row["fate"]
        if fate == Fate.PUBLISHED:
            self.at_us, self.event = at_us, event_of(row)
            self.publisher, self.topic, self.qos = row["publisher"], row["topic"], row["qos"]
            self.payload_bytes, self.copies, self.trace_id = row["payload_bytes"], row["copies"], row["trace_id"]
        elif fate == Fate.FILTERED:
            self.filtered = row["cause"]
        else:
            self.ends.append(
                TrailCopy(at_us, *(row[name] for name in ("subscriber", "filter", "fate", "cause", "wait_us")))
            )

    def to_wall_clock(self, ahead_us: int) -> None:
        """Its times become those of the wall clock, which is so far ahead of the monotonic one."""
        self.at_us += ahead_us
        self.ends = [replace(end, at_us=end.at_us + ahead_us) for end in self.ends]


@dataclass(slots=True)
class MessageTrail:
    """One message at all gateways whose logs are there: nobody before who gave it to him, else in order of time."""

    stops: list[TrailStop]

    @property
    def event(self) -> Event:
        """Its event in the federation; NO_EVENT if it is none."""
        return self.stops[0].event

    @property
    def has_arrived(self) -> bool:
        """Whether everybody who was to get it has it, as far as the logs say."""
        return all(
            not stop.open and all(end.fate == Fate.DELIVERED or end.is_handed_over for end in stop.ends)
            for stop in self.stops
        )

    def unlogged_gateways(self) -> list[str]:
        """Gateways that have it, as another one's log says, and whose own log does not know it."""
        known = {stop.node for stop in self.stops}
        given = {end.peer for stop in self.stops for end in stop.ends if end.peer and end.fate == Fate.DELIVERED}
        return sorted(given - known)


class LogSet:
    """Delivery logs of one or several gateways. They are read as often as need be, and never kept in memory."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.log_reader = LogReader(paths)
        """The first reading: it tells what is damaged."""
        self._paths = paths
        self._ahead_us: dict[str, int] = {}
        """Run -> by how much its wall clock is ahead of its monotonic one."""

    def nodes(self) -> set[str]:
        """The gateways whose logs these are; known after the first question."""
        return {header.node for header in self.log_reader.headers}

    def trails(self, wanted: MessageQuery, last: int) -> list[MessageTrail]:
        """The *last* messages that are wanted, the oldest first."""
        found: defaultdict[str, dict[int, tuple[int, Event]]] = defaultdict(dict)
        for header, row in _accepted(self.log_reader, wanted):
            if wanted.matches(header.boot, row):
                of_run = found[header.boot]
                of_run[row["message"]] = row["t_us"], event_of(row)
                if len(of_run) > 2 * last:  # those that cannot be among the last go, now and then
                    found[header.boot] = dict(heapq.nlargest(last, of_run.items(), key=lambda one: one[1][0]))
        self._read_clocks(found)
        # Over all runs it is the wall clock that says which are the last: files come in the order of their names.
        at = {
            (boot, number): t_us + self._ahead_us[boot]
            for boot, of_run in found.items()
            for number, (t_us, _) in of_run.items()
        }
        events = {key: found[key[0]][key[1]][1] for key in _last_of(at, found, last)}
        elsewhere = {event for event in events.values() if event != NO_EVENT}
        if elsewhere:
            events |= {
                (header.boot, row["message"]): event_of(row)
                for header, row in _accepted(self._again(), MessageQuery())
                if event_of(row) in elsewhere
            }
            self._read_clocks({boot for boot, _ in events})
        grouped: defaultdict[object, list[TrailStop]] = defaultdict(list)
        for key, stop in self._stops(events).items():
            grouped[key if events[key] == NO_EVENT else events[key]].append(stop)
        made = [MessageTrail(in_order(stops)) for stops in grouped.values()]
        return sorted(made, key=lambda trail: trail.stops[0].at_us)[-last:]

    def _read_clocks(self, boots: Iterable[str]) -> None:
        """By how much the wall clock of these runs is ahead: what each said last, for clocks are corrected."""
        wanted = set(boots) - self._ahead_us.keys()
        if not wanted:
            return
        readings: dict[str, tuple[int, int]] = {}
        reading = self._again()
        for header, block in reading.blocks(["anchor"]):
            if header.boot in wanted and block.table == "anchor" and block.columns:
                for t_us, unix_us in zip(block.columns["t_us"], block.columns["unix_us"], strict=True):
                    readings[header.boot] = max(readings.get(header.boot, (t_us, 0)), (t_us, unix_us - t_us))
        for header in reading.headers:
            first = header.t_us, header.unix_us - header.t_us
            readings[header.boot] = max(readings.get(header.boot, first), first)
        self._ahead_us |= {boot: ahead_us for boot, (_, ahead_us) in readings.items() if boot in wanted}

    def _again(self) -> LogReader:
        return LogReader(self._paths, is_quiet=True)

    def _stops(self, keys: Collection[Key]) -> dict[Key, TrailStop]:
        """What the logs say of these messages."""
        stops: dict[Key, TrailStop] = {}
        if not keys:
            return stops
        reading, numbers = self._again(), {number for _, number in keys}
        for header, block in reading.blocks(["delivery"]):
            if block.columns and not numbers.isdisjoint(block.columns["message"]):
                for row in _rows(block.columns):
                    key = header.boot, row["message"]
                    if key in keys:
                        stop = stops.setdefault(key, TrailStop(header.node, *key))
                        stop.add(row)
        for stop in stops.values():
            stop.to_wall_clock(self._ahead_us[stop.boot])
            stop.is_over = stop.boot in reading.boots_ended
        if any(stop.open for stop in stops.values()):
            self._find_waiting(stops)
        return stops

    def _find_waiting(self, stops: dict[Key, TrailStop]) -> None:
        """For whom copies were made that have no end: the difference of the digests of each flow.

        Where one copy is open, the difference of the sums is its number.
        """
        boots = {stop.boot for stop in stops.values() if stop.open}
        open_flows: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        names = ("publisher", "subscriber", "fate", "count", "sum")
        for header, block in self._again().blocks(["digest"]):
            if header.boot not in boots or not block.columns:
                continue
            for publisher, subscriber, fate, count, total in zip(*(block.columns[name] for name in names), strict=True):
                if subscriber:
                    sign = 1 if fate == Fate.MATCHED else -1
                    flow = open_flows[header.boot, publisher, subscriber]
                    flow[0] += sign * count
                    flow[1] = (flow[1] + sign * total) % SUM_MODULUS
        for (boot, publisher, subscriber), (count, total) in open_flows.items():
            for stop in stops.values():
                is_of = (stop.boot, stop.publisher) == (boot, publisher) and stop.open
                is_ended = any(end.subscriber == subscriber for end in stop.ends)
                if is_of and count > 0 and not is_ended and (count > 1 or total == stop.number):
                    stop.waiting[subscriber] = count


def _last_of(at: dict[Key, int], found: dict[str, dict[int, tuple[int, Event]]], last: int) -> Iterator[Key]:
    """Of the messages, with the instant *at* which each was accepted, the *last*. An event is one, at all gateways."""
    seen: set[object] = set()
    for key in sorted(at, key=at.__getitem__, reverse=True):
        event = found[key[0]][key[1]][1]
        seen.add(key if event == NO_EVENT else event)
        if len(seen) > last:
            return
        yield key


def in_order(stops: list[TrailStop]) -> list[TrailStop]:
    """*stops* of one event, the earliest first, but nobody before the one who gave it to him: clocks may differ."""
    rest, placed = sorted(stops, key=lambda stop: stop.at_us), list[TrailStop]()
    while rest:
        given = {end.peer for stop in rest for end in stop.ends if end.fate == Fate.DELIVERED}
        # Everybody has it from somebody else only if the logs tell of a circle, which cannot be.
        first = next((stop for stop in rest if stop.node not in given), rest[0])
        rest.remove(first)
        placed.append(first)
    return placed


def event_of(row: Row) -> Event:
    """The event that a row of a message names."""
    return row["event_publisher"], row["event_sequence"]


def _accepted(reading: LogReader, wanted: MessageQuery) -> Iterator[tuple[LogHeader, Row]]:
    """Every message that was accepted, but for blocks in which none can be *wanted*."""
    for header, block in reading.blocks(["delivery"]):
        if block.columns and wanted.may_be_in(header.boot, block.columns):
            for row in _rows(block.columns):
                if row["fate"] == Fate.PUBLISHED:
                    yield header, row


def _rows(columns: dict[str, list[Any]]) -> Iterator[Row]:
    for values in zip(*(columns[name] for name in COLUMNS), strict=True):
        yield dict(zip(COLUMNS, values, strict=True))
