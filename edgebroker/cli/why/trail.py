"""The trail of a message through delivery logs: the query, where it was accepted, and the fate of each copy."""

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
from edgebroker.log_schema import MIGRATION, SUM_MODULUS, Cause, Fate
from edgebroker.storage.deliverylog.format import LogHeader

Event = tuple[int, int]
"""Publisher and sequence in the event header: the same at every gateway."""
FORMS: Final = (
    "an event (PUBLISHER-SEQUENCE), a message of a run (BOOT/NUMBER), a trace id of 32 hexadecimal digits,"
    " or a traceparent"
)
_EVENT: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_NUMBER: Final = re.compile(r"([0-9a-zA-Z_.-]+)/([0-9]{1,19})")
_TRACE: Final = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-.*)?")


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Properties of the wanted message. All that are given must match."""

    event: Event | None = None
    trace_id: str = ""
    boot: str = ""
    number: int = 0
    client: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, text: str | None, client: str | None, topic: str | None) -> MessageQuery:
        """Parses the arguments of the command. Raises click.BadParameter."""
        query = cls(client=client or "", topic=topic or "")
        if text is None:
            if not client and not topic:
                raise click.UsageError(f"which message? Give {FORMS}; or --client or --topic")
            return query
        if match := _EVENT.fullmatch(text):
            return replace(query, event=(int(match[1]), int(match[2])))
        if match := _TRACE.fullmatch(text.lower()):
            return replace(query, trace_id=match[1])
        if match := _NUMBER.fullmatch(text):
            return replace(query, boot=match[1], number=int(match[2]))
        raise click.BadParameter(f"{text!r} is neither {FORMS.replace(', or', ', nor')}", param_hint="MESSAGE")

    def may_be_in(self, boot: str, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether a block of run *boot* with these *columns* may have the message: most have not, and need no closer
        look.
        """
        return (
            (self.event is None or self.event[1] in columns["event_sequence"])
            and (not self.trace_id or self.trace_id in columns["trace_id"])
            and (not self.boot or (self.boot == boot and self.number in columns["message"]))
            and (not self.client or self.client in columns["publisher"])
            and (not self.topic or self.topic in columns["topic"])
        )

    def matches(self, boot: str, row: dict[str, Any]) -> bool:
        """Whether *row* of run *boot*, the record of an accepted message, matches."""
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
"""Prefix of a peer's name as a subscriber in the log."""

Key = tuple[str, int]
"""A run, and the number of a message in it."""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrailCopy:
    """One copy and its `Fate`; `filter` is the subscription."""

    at_us: int
    subscriber: str
    filter: str
    fate: int
    cause: int
    wait_us: int

    @property
    def peer(self) -> str:
        """The gateway that the copy was for; "" if it was for a client."""
        return self.subscriber.removeprefix(PEER) if self.subscriber.startswith(PEER) else ""

    @property
    def is_handed_over(self) -> bool:
        """Whether it became the copy of another member of the shared group, which has a fate of its own."""
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
    """The number of copies made."""
    filtered: int = 0
    """Why no copy was made, by `Cause`."""
    ends: list[TrailCopy] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)
    """Subscriber for whom a copy may still wait -> how many copies of the publisher do."""
    is_over: bool = False
    """Whether the run ended cleanly, so that the log is complete."""

    @property
    def open(self) -> int:
        """The number of copies without a fate in the log."""
        return max(0, self.copies - sum(not end.is_handed_over for end in self.ends))

    def add(self, row: Row) -> None:
        """Adds a record of the message. Its times are monotonic until `to_wall_clock` is called."""
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

    def to_wall_clock(self, offset_us: int) -> None:
        """Converts monotonic times to those of the wall clock, which is ahead by *offset_us*."""
        self.at_us += offset_us
        self.ends = [replace(end, at_us=end.at_us + offset_us) for end in self.ends]


@dataclass(slots=True)
class MessageTrail:
    """One message at all gateways whose logs are given: receivers after senders, otherwise in order of time."""

    stops: list[TrailStop]

    @property
    def event(self) -> Event:
        """Its event in the federation; `NO_EVENT` if it is none."""
        return self.stops[0].event

    @property
    def has_arrived(self) -> bool:
        """Whether every receiver has it, as far as the logs show."""
        return all(
            not stop.open and all(end.fate == Fate.DELIVERED or end.is_handed_over for end in stop.ends)
            for stop in self.stops
        )

    def unlogged_gateways(self) -> list[str]:
        """Returns gateways that received it by another one's log, but are not in their own logs."""
        known = {stop.node for stop in self.stops}
        receivers = {end.peer for stop in self.stops for end in stop.ends if end.peer and end.fate == Fate.DELIVERED}
        return sorted(receivers - known)


class LogSet:
    """Delivery logs of one or several gateways. They are read as often as needed, and not kept in memory."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.log_reader = LogReader(paths)
        """The first reader, which reports damage."""
        self._paths = paths
        self._clock_offsets_us: dict[str, int] = {}
        """Run -> how far its wall clock is ahead of its monotonic clock."""

    def nodes(self) -> set[str]:
        """Returns the gateways of the logs; known after the first call of `trails`."""
        return {header.node for header in self.log_reader.headers}

    def trails(self, query: MessageQuery, last: int) -> list[MessageTrail]:
        """Returns the last *last* messages that match *query*, the oldest first."""
        candidates: defaultdict[str, dict[int, tuple[int, Event]]] = defaultdict(dict)
        for header, row in _accepted(self.log_reader, query):
            if query.matches(header.boot, row):
                run_messages = candidates[header.boot]
                run_messages[row["message"]] = row["t_us"], event_of(row)
                if len(run_messages) > 2 * last:  # the oldest are removed now and then
                    candidates[header.boot] = dict(
                        heapq.nlargest(last, run_messages.items(), key=lambda item: item[1][0])
                    )
        self._read_clocks(candidates)
        # Across runs only the wall clock tells which are the last; files come in the order of their names.
        accepted_at = {
            (boot, number): t_us + self._clock_offsets_us[boot]
            for boot, run_messages in candidates.items()
            for number, (t_us, _) in run_messages.items()
        }
        events = {key: candidates[key[0]][key[1]][1] for key in _last_of(accepted_at, candidates, last)}
        other_gateway_events = {event for event in events.values() if event != NO_EVENT}
        if other_gateway_events:
            events |= {
                (header.boot, row["message"]): event_of(row)
                for header, row in _accepted(self._quiet_reader(), MessageQuery())
                if event_of(row) in other_gateway_events
            }
            self._read_clocks({boot for boot, _ in events})
        grouped: defaultdict[object, list[TrailStop]] = defaultdict(list)
        for key, stop in self._stops(events).items():
            grouped[key if events[key] == NO_EVENT else events[key]].append(stop)
        trails = [MessageTrail(in_order(stops)) for stops in grouped.values()]
        return sorted(trails, key=lambda trail: trail.stops[0].at_us)[-last:]

    def moves(self, publishers: Collection[str]) -> list[dict[str, Any]]:
        """Returns the moves of these clients to other gateways by plans, with the gateway that they left (`node`)."""
        return [
            {"node": header.node, **dict(zip(block.columns, values, strict=True))}
            for header, block in self._quiet_reader().blocks([MIGRATION.name])
            if block.table == MIGRATION.name and block.columns
            for values in zip(*block.columns.values(), strict=True)
            if values[1] in publishers
        ]

    def _read_clocks(self, boots: Iterable[str]) -> None:
        """Reads the offsets of the wall clocks of these runs: the last of each run, because clocks are corrected."""
        missing = set(boots) - self._clock_offsets_us.keys()
        if not missing:
            return
        readings: dict[str, tuple[int, int]] = {}
        log_reader = self._quiet_reader()
        for header, block in log_reader.blocks(["anchor"]):
            if header.boot in missing and block.table == "anchor" and block.columns:
                for t_us, unix_us in zip(block.columns["t_us"], block.columns["unix_us"], strict=True):
                    readings[header.boot] = max(readings.get(header.boot, (t_us, 0)), (t_us, unix_us - t_us))
        for header in log_reader.headers:
            first = header.t_us, header.unix_us - header.t_us
            readings[header.boot] = max(readings.get(header.boot, first), first)
        self._clock_offsets_us |= {boot: offset_us for boot, (_, offset_us) in readings.items() if boot in missing}

    def _quiet_reader(self) -> LogReader:
        return LogReader(self._paths, is_quiet=True)

    def _stops(self, keys: Collection[Key]) -> dict[Key, TrailStop]:
        """Returns the records of these messages."""
        stops: dict[Key, TrailStop] = {}
        if not keys:
            return stops
        log_reader, numbers = self._quiet_reader(), {number for _, number in keys}
        for header, block in log_reader.blocks(["delivery"]):
            if block.columns and not numbers.isdisjoint(block.columns["message"]):
                for row in _rows(block.columns):
                    key = header.boot, row["message"]
                    if key in keys:
                        stop = stops.setdefault(key, TrailStop(header.node, *key))
                        stop.add(row)
        for stop in stops.values():
            stop.to_wall_clock(self._clock_offsets_us[stop.boot])
            stop.is_over = stop.boot in log_reader.boots_ended
        if any(stop.open for stop in stops.values()):
            self._find_waiting(stops)
        return stops

    def _find_waiting(self, stops: dict[Key, TrailStop]) -> None:
        """Finds the receivers of copies without a fate: the difference of the digests of each flow.

        If one copy is open, the difference of the sums is its number.
        """
        boots = {stop.boot for stop in stops.values() if stop.open}
        open_flows: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        names = ("publisher", "subscriber", "fate", "count", "sum")
        for header, block in self._quiet_reader().blocks(["digest"]):
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
                may_wait = (stop.boot, stop.publisher) == (boot, publisher) and stop.open
                is_ended = any(end.subscriber == subscriber for end in stop.ends)
                if may_wait and count > 0 and not is_ended and (count > 1 or total == stop.number):
                    stop.waiting[subscriber] = count


def _last_of(
    accepted_at: dict[Key, int], candidates: dict[str, dict[int, tuple[int, Event]]], last: int
) -> Iterator[Key]:
    """Yields the keys of the *last* messages, by the time *accepted_at*. An event counts once for all gateways."""
    messages: set[object] = set()
    for key in sorted(accepted_at, key=accepted_at.__getitem__, reverse=True):
        event = candidates[key[0]][key[1]][1]
        messages.add(key if event == NO_EVENT else event)
        if len(messages) > last:
            return
        yield key


def in_order(stops: list[TrailStop]) -> list[TrailStop]:
    """Returns *stops* of one event, the earliest first, but receivers after senders, because clocks may differ."""
    remaining, ordered = sorted(stops, key=lambda stop: stop.at_us), list[TrailStop]()
    while remaining:
        receivers = {end.peer for stop in remaining for end in stop.ends if end.fate == Fate.DELIVERED}
        # That every gateway has it from another one means a loop in the logs, which is impossible.
        first = next((stop for stop in remaining if stop.node not in receivers), remaining[0])
        remaining.remove(first)
        ordered.append(first)
    return ordered


def event_of(row: Row) -> Event:
    """Returns the event in a row of a message."""
    return row["event_publisher"], row["event_sequence"]


def _accepted(log_reader: LogReader, query: MessageQuery) -> Iterator[tuple[LogHeader, Row]]:
    """Yields every accepted message, except from blocks in which none can match *query*."""
    for header, block in log_reader.blocks(["delivery"]):
        if block.columns and query.may_be_in(header.boot, block.columns):
            for row in _rows(block.columns):
                if row["fate"] == Fate.PUBLISHED:
                    yield header, row


def _rows(columns: dict[str, list[Any]]) -> Iterator[Row]:
    for values in zip(*(columns[name] for name in COLUMNS), strict=True):
        yield dict(zip(COLUMNS, values, strict=True))
