"""The audit of the delivery logs of all gateways: each by itself, and each against the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgebroker.errors import LogDamaged
from edgebroker.log_schema import SUM_MODULUS, Cause, Fate
from edgebroker.runtime.delivery_log import segment_files
from edgebroker.storage.deliverylog.reader import Columns, read_segment
from edgebroker.topics import is_reserved
from edgelab.demo.audit import NAMED_MAX

PEER: Final = "gateway:"
"""Prefix of a peer's name in the log, if it receives a copy."""
ENDS: Final = (Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED, Fate.QUEUED)

Event = tuple[int, int]
"""Publisher and sequence, as in the header of an event."""
Total = tuple[int, int, int]
"""Count, sum and xor of message numbers."""


@dataclass(slots=True)
class LoggedRun:
    """One run of one gateway according to its log. Events and copies are those with QoS 1 and 2."""

    gateway: str
    boot: str
    is_whole: bool = False
    """The run ended cleanly: nothing is missing at its end."""
    damages: int = 0
    events: dict[int, Event] = field(default_factory=dict)
    """Message number -> its event."""
    copies: list[tuple[int, str, Fate, Cause]] = field(default_factory=list)
    """Message number, recipient, fate and cause."""
    flows: dict[tuple[str, str, int], dict[Fate, Total]] = field(default_factory=dict)
    """Publisher, subscriber and QoS -> fate -> total, at every QoS."""

    def add(self, tables: Mapping[str, Columns]) -> None:
        """Add the tables of a segment."""
        delivery, digest = tables["delivery"], tables["digest"]
        names = ("message", "qos", "fate", "cause", "subscriber", "topic", "event_publisher", "event_sequence")
        for number, qos, fate, cause, subscriber, topic, publisher, sequence in zip(
            *(delivery[name] for name in names), strict=True
        ):
            if not qos:
                continue
            if fate == Fate.PUBLISHED and publisher:
                if not is_reserved(topic):  # those of gateways end at the gateway that they are for
                    self.events[number] = publisher, sequence
            elif fate in ENDS:
                self.copies.append((number, subscriber, Fate(fate), Cause(cause)))
        columns = ("publisher", "subscriber", "qos", "fate", "count", "sum", "xor")
        for publisher, subscriber, qos, fate, *total in zip(*(digest[name] for name in columns), strict=True):
            if subscriber:
                fates = self.flows.setdefault((publisher, subscriber, qos), {})
                fates[Fate(fate)] = _added(fates.get(Fate(fate), (0, 0, 0)), (total[0], total[1], total[2]))

    def delivered(self, subscriber: str) -> Iterator[Event]:
        """Yield the events that *subscriber* acknowledged, as far as they are known."""
        for number, recipient, fate, _ in self.copies:
            if recipient == subscriber and fate is Fate.DELIVERED and number in self.events:
                yield self.events[number]


@dataclass(slots=True)
class LogAudit:
    """The findings from all logs together."""

    runs: list[LoggedRun]

    @classmethod
    def read(cls, logs: Mapping[str, Path]) -> LogAudit:
        """Read *logs*: gateway -> directory. Raises LogDamaged, OSError."""
        runs: dict[tuple[str, str], LoggedRun] = {}
        for gateway, folder in logs.items():
            for file in segment_files(folder):
                data = file.read_bytes()
                segment = read_segment(data, growing=file.name.endswith(".part"))
                if not segment.header.boot:
                    raise LogDamaged(f"{file} does not say of which run it is")
                run = runs.setdefault((gateway, segment.header.boot), LoggedRun(gateway, segment.header.boot))
                run.is_whole |= segment.final
                run.damages += len(segment.damage)
                run.add(segment.tables)
        return cls(list(runs.values()))

    @property
    def handed_over(self) -> int:
        """Return the number of copies with QoS 1 and 2 that a gateway received from another."""
        return sum(
            recipient.startswith(PEER) and fate is Fate.DELIVERED
            for run in self.runs
            for _, recipient, fate, _ in run.copies
        )

    @property
    def events(self) -> int:
        """Return the number of events with QoS 1 and 2, each counted once."""
        return len({event for run in self.runs for event in run.events.values()})

    @property
    def cut_short(self) -> list[LoggedRun]:
        """Return the runs that did not end cleanly."""
        return [run for run in self.runs if not run.is_whole]

    def dropped(self) -> Counter[str]:
        """Return the number of dropped and expired copies, at every QoS. Records that a killed run had not written are
        missing.
        """
        totals: Counter[str] = Counter()
        for run in self.runs:
            for fates in run.flows.values():
                totals["all"] += fates.get(Fate.DROPPED, (0, 0, 0))[0] + fates.get(Fate.EXPIRED, (0, 0, 0))[0]
        return totals

    def received(self, gateway: str, subscriber: str) -> set[Event] | None:
        """Return the events that *subscriber* received at *gateway*; None if a run there was cut short."""
        runs = [run for run in self.runs if run.gateway == gateway]
        if not all(run.is_whole for run in runs):
            return None
        return {event for run in runs for event in run.delivered(subscriber)}

    def findings(self) -> Iterator[str]:
        """Yield one line for each finding."""
        for run in self.runs:
            if run.damages:
                yield f"{run.gateway}: its log has {run.damages:,} damaged places"
            yield from _given_up(run)
            yield from _twice(run)
            if run.is_whole:
                yield from _unbalanced(run)
        yield from self._lost_between()

    def _lost_between(self) -> Iterator[str]:
        """Yield a line for each peer that does not know events which a gateway delivered to it."""
        known: defaultdict[str, set[Event]] = defaultdict(set)
        for run in self.runs:
            known[run.gateway].update(run.events.values())
        incomplete = {run.gateway for run in self.cut_short}
        for run in self.runs:
            for peer in {recipient for _, recipient, _, _ in run.copies if recipient.startswith(PEER)}:
                name = peer.removeprefix(PEER)
                missing = set(run.delivered(peer)) - known[name]
                if missing and name not in incomplete:
                    yield f"{run.gateway} gave {name} {len(missing):,} events that {name} knows nothing of"


def _given_up(run: LoggedRun) -> Iterator[str]:
    ends = Counter(
        (recipient, fate, cause)
        for _, recipient, fate, cause in run.copies
        if fate is not Fate.DELIVERED and cause is not Cause.HANDED_OVER  # another copy took its place
    )
    for (recipient, fate, cause), count in sorted(ends.items()):
        cause_text = f" ({cause.name.lower()})" if cause else ""
        yield f"{run.gateway}: {count:,} copies with QoS 1 or 2 for {recipient} were {fate.name.lower()}{cause_text}"


def _twice(run: LoggedRun) -> Iterator[str]:
    """An event may arrive again on its detour around a dead gateway; then it is for no client of this gateway."""
    copies = Counter(
        (run.events[number], recipient)
        for number, recipient, _, _ in run.copies
        if number in run.events and not recipient.startswith(PEER)
    )
    repeated = [(event, recipient) for (event, recipient), count in copies.items() if count > 1]
    if repeated:
        named = ", ".join(
            f"{publisher}-{sequence} for {recipient}" for (publisher, sequence), recipient in repeated[:NAMED_MAX]
        )
        yield f"{run.gateway} gave clients {len(repeated):,} events twice: {named}"


def _unbalanced(run: LoggedRun) -> Iterator[str]:
    for (publisher, subscriber, qos), fates in run.flows.items():
        made, ended = fates.get(Fate.MATCHED, (0, 0, 0)), (0, 0, 0)
        for fate in ENDS:
            ended = _added(ended, fates.get(fate, (0, 0, 0)))
        if made != ended:
            yield (
                f"{run.gateway}: of QoS {qos} from {publisher} for {subscriber} {made[0]:,} copies were made and"
                f" {ended[0]:,} ended"
            )


def _added(one: Total, other: Total) -> Total:
    return one[0] + other[0], (one[1] + other[1]) % SUM_MODULUS, one[2] ^ other[2]
