"""The outcome of the federation's demo: figures for people and programs, and every reason why it failed.

The bytes of peers are compared with the kernel's count, and with bridges that filter by topic or flood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, NamedTuple

from edgebroker.cli.display import octets
from edgelab.demo.audit import NAMED_MAX, DevicePublication, SubscriberAccount, accepts
from edgelab.demo.federation.layout import CopyRoute, Pair
from edgelab.demo.federation.log_audit import LogAudit
from edgelab.demo.federation.network import UplinkMedium
from edgelab.demo.outcome import FINDINGS, duration, found_end_to_end
from edgelab.demo.subscriber_specs import SubscriberSpec

HEADERS_BYTES: Final = 66
"""Of a frame with a segment of TCP: 14 of Ethernet, 20 of IPv4, 20 of TCP and 12 of its timestamps (RFC 7323)."""


class ReceivedBytes(NamedTuple):
    """The kernel counted so many bytes in so many *frames*; the gateway says that it has *said* bytes.

    They differ by what came twice, by frames that are no segments (ARP), and by the last second of who was killed.
    """

    counted: int
    frames: int
    said: int

    @classmethod
    def sum(cls, tallies: Iterable[ReceivedBytes]) -> ReceivedBytes:
        """Of several gateways."""
        return cls(*map(sum, zip((0, 0, 0), *tallies, strict=True)))

    @property
    def payload(self) -> int:
        """What was counted, without the headers of frames."""
        return self.counted - HEADERS_BYTES * self.frames

    @property
    def is_possible(self) -> bool:
        """Nothing came to the gateway by another way than the one that was counted."""
        return self.said <= self.counted

    def __str__(self) -> str:
        more = f"{(self.payload - self.said) / self.said:+.1%}" if self.said else "-"
        return (
            f"{self.frames:,} frames, {self.counted:,} bytes; less {HEADERS_BYTES} of headers each {self.payload:,}"
            f" ({more} of the {self.said:,} that the gateways say)"
        )

    def as_object(self) -> dict[str, Any]:
        """For `--json`."""
        return {"bytes": self.counted, "frames": self.frames, "payload_bytes": self.payload, "said_bytes": self.said}


@dataclass(slots=True)
class CopyLoad:
    """Messages, and the bytes of their PUBLISH packets."""

    events: int = 0
    bytes: int = 0

    def add(self, octets: int, times: int = 1) -> None:
        """One more message, so many *times*."""
        self.events += times
        self.bytes += octets * times


@dataclass(slots=True)
class Alternatives:
    """What would have crossed between two sites, both ways together.

    by_topic: one bridge, over which a message goes once if somebody at the other site has a matching topic filter.
    flooded: every message, over each of the connections between the sites once.
    wanted: the messages that somebody at the other site asks for, by topic and content; what any network must carry.
    """

    by_topic: CopyLoad
    flooded: CopyLoad
    wanted: CopyLoad


def alternatives(
    pairs: Mapping[Pair, int],
    publications: Iterable[DevicePublication],
    site_of: Callable[[DevicePublication], str],
    specs: Mapping[str, Sequence[SubscriberSpec]],
) -> dict[Pair, Alternatives]:
    """For each of *pairs*: two sites, and how many connections join them. wishes: site -> what is asked for there."""
    found = {pair: Alternatives(CopyLoad(), CopyLoad(), CopyLoad()) for pair in pairs}
    for publication in publications:
        octets, home = packet_bytes(publication), site_of(publication)
        for pair, load in found.items():
            load.flooded.add(octets, pairs[pair])
            if home not in pair:
                continue
            away = pair[1] if home == pair[0] else pair[0]
            asked = [spec for spec in specs.get(away, ()) if _topic(spec, publication)]
            if asked:
                load.by_topic.add(octets)
            if any(accepts(spec, publication) for spec in asked):
                load.wanted.add(octets)
    return found


def packet_bytes(publication: DevicePublication) -> int:
    """The size of its PUBLISH packet in MQTT 3.1.1 (section 3.3), without what TCP adds and what is answered."""
    rest = 2 + len(publication.topic.encode()) + (2 if publication.qos else 0) + len(publication.payload)
    length = 1
    while rest >= 128**length:
        length += 1
    return 1 + length + rest


def _topic(spec: SubscriberSpec, publication: DevicePublication) -> bool:
    """Whether the levels of the wish's topic filter are those of the topic; its names begin with no "$"."""
    wanted, levels = spec.topic.split("/"), publication.topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(one in ("+", level) for one, level in zip(wanted, levels, strict=False))


@dataclass(frozen=True, slots=True)
class UplinkTraffic:
    """What crossed between two sites, both ways, and what would have. `bytes`: all that gateways sent there.

    early_bytes, early: the same until the gateway was killed.
    """

    bytes: int
    events: int
    instead: Alternatives
    early_bytes: int
    early: Alternatives

    @property
    def share(self) -> float | None:
        """Of the bytes of bridges by topic; None if these had sent nothing."""
        return _share(self.bytes, self.instead.by_topic)

    @property
    def early_share(self) -> float | None:
        """The same until the gateway was killed."""
        return _share(self.early_bytes, self.early.by_topic)


@dataclass(frozen=True, slots=True)
class FederationOutcome:
    """Everything known at the end.

    missed: wanted copies with QoS 0 that did not come.  delays: how long messages took from their devices to their
    subscribers, in microseconds, outside the times of trouble.  medium: what uplinks are made of.
    received: what came to each gateway from its peers, where the kernel counts that.
    """

    seconds: float
    gateways: int
    devices: int
    publications: Sequence[DevicePublication]
    accounts: Sequence[SubscriberAccount]
    at: Mapping[str, str]
    missed: int
    log_audit: LogAudit
    crossings: Mapping[Pair, UplinkTraffic]
    memory: Mapping[str, int]
    delays: Mapping[CopyRoute, Sequence[int]]
    medium: UplinkMedium
    received: Mapping[str, ReceivedBytes]
    events: Sequence[str]
    troubles: Sequence[str] = ()

    def found(self, finding: str) -> int:
        """How many messages of all subscribers have this *finding* (one of FINDINGS)."""
        return sum(len(getattr(account, finding)) for account in self.accounts)

    @property
    def overtaken(self) -> int:
        """Copies that came after later ones, as they had gone around a link that was down (docs/overlay.md)."""
        return sum(account.overtaken for account in self.accounts)

    @property
    def repeated(self) -> int:
        """Copies with QoS 1 that came again after a connection broke."""
        return sum(account.repeated for account in self.accounts)

    def problems(self) -> list[str]:
        """Every reason why the demo failed; nothing if all is well."""
        return [*self.troubles, *found_end_to_end(self.publications, self.accounts), *self.log_audit.findings()]

    # -- for people ---------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The key figures."""
        by_qos = Counter(publication.qos for publication in self.publications)
        dealt = ", ".join(f"{by_qos[qos]:,} with QoS {qos}" for qos in sorted(by_qos))
        yield f"messages    {len(self.publications):,} from {self.devices} devices at {self.gateways} gateways: {dealt}"
        yield from self.events
        yield ""
        heading = ("subscriber", "at", "asks for", "how", "matching", "wanted", "received")
        yield from _table([heading, *map(self._asked, self.accounts)], 4)
        yield ""
        crossed = ("uplinks", "events", "bytes", "by topic", "share", "wanted", "until the kill", "flooding", "share")
        yield from _table([crossed, *(_crossing(pair, one) for pair, one in self.crossings.items())], 1)
        yield from self._counted()
        yield ""
        for number, (name, uplinks, delays) in enumerate(self._delay_rows()):
            middle, least = duration(round(median(delays))), duration(uplinks * self.medium.delay_us)
            yield f"{'' if number else 'delay':<12}p50 {middle}, links {least}: {name} ({len(delays):,} messages)"
        if self.memory:
            most = max(self.memory, key=self.memory.__getitem__)
            peak = f"{octets(min(self.memory.values()))} to {octets(self.memory[most])} ({most})"
            yield f"memory      {peak} at most in each gateway"
        found = {finding: self.found(finding) for finding in FINDINGS}
        yield (
            f"audit       end to end, QoS 1 and 2: lost {found['lost']:,}, duplicates {found['duplicates']:,}, wrong"
            f" {found['wrong']:,}, out of order {found['reordered']:,}"
        )
        yield (
            f"            {self.repeated:,} with QoS 1 came again over a connection that had broken; {self.overtaken:,}"
            f" were overtaken, on their way around what was down; QoS 0: {self.missed:,} did not come"
        )
        yield (
            f"            delivery logs: {len(self.log_audit.runs)} runs, {len(self.log_audit.cut_short)} cut short;"
            f" {self.log_audit.events:,} events, {self.log_audit.handed_over:,} times given to a peer"
        )
        for problem in self.problems():
            yield f"FAILED      {problem}"

    def _counted(self) -> Iterator[str]:
        """What uplinks were made of and, where there are frames, what gateways say that these carried."""
        yield f"            {self.medium}; bytes: {self.medium.counted}, counted by the {self.medium.counted_by}"
        if self.received:
            yield f"            all links, inside sites too: {ReceivedBytes.sum(self.received.values())}"

    def _asked(self, account: SubscriberAccount) -> Sequence[str]:
        spec = account.spec
        numbers = (account.candidates, account.wanted, account.received)
        asked = f"{spec.topic} {spec.where}"
        return spec.name, self.at[spec.name], asked, spec.manner, *(f"{number:,}" for number in numbers)

    # -- for programs -------------------------------------------------------------------------------------------

    def as_object(self) -> dict[str, Any]:
        """Everything, for `--json`."""
        problems = self.problems()
        return {
            "ok": not problems,
            "problems": problems,
            "seconds": round(self.seconds, 3),
            "gateways": self.gateways,
            "network": self.medium.as_object(),
            "published": len(self.publications),
            **{finding: self.found(finding) for finding in FINDINGS},
            "repeated": self.repeated,
            "overtaken": self.overtaken,
            "missed_qos0": self.missed,
            "events": list(self.events),
            "subscribers": [self._account_object(account) for account in self.accounts],
            "uplinks": [_crossing_object(pair, one) for pair, one in self.crossings.items()],
            "received": {name: tally.as_object() for name, tally in self.received.items()},
            "memory_peak_bytes": dict(self.memory),
            "p50_to_another_site_us": round(median(self._across)) if self._across else None,
            "delays": [
                {
                    **road._asdict(),
                    "count": len(delays),
                    "p50_us": round(median(delays)),
                    "links_us": road.uplinks * self.medium.delay_us,
                }
                for road, delays in sorted(self.delays.items())
            ],
            "runs": {
                "whole": len(self.log_audit.runs) - len(self.log_audit.cut_short),
                "cut_short": len(self.log_audit.cut_short),
            },
            "handed_over": self.log_audit.handed_over,
        }

    def _delay_rows(self) -> Iterator[tuple[str, int, Sequence[int]]]:
        """What took how long: its name, links between sites, and the delays."""
        if across := self._across:
            yield "another site, all of them", 1, across
        for road, delays in sorted(self.delays.items()):
            yield str(road), road.uplinks, delays

    @property
    def _across(self) -> list[int]:
        return [delay for road, delays in self.delays.items() if road.uplinks for delay in delays]

    def _account_object(self, account: SubscriberAccount) -> dict[str, Any]:
        spec = account.spec
        return {
            "name": spec.name,
            "gateway": self.at[spec.name],
            "topic": spec.topic,
            "where": spec.where,
            "qos": spec.qos,
            "mqtt": spec.dialect.version,
            "matching": account.candidates,
            "wanted": account.wanted,
            "received": account.received,
            "repeated": account.repeated,
            "overtaken": account.overtaken,
            **{finding: len(getattr(account, finding)) for finding in FINDINGS},
            "named": {finding: getattr(account, finding)[:NAMED_MAX] for finding in FINDINGS},
        }


def _crossing(pair: Pair, one: UplinkTraffic) -> Sequence[str]:
    by_topic, flooded = one.instead.by_topic, one.instead.flooded
    return (
        f"{pair[0]}-{pair[1]}",
        f"{one.events:,}",
        octets(one.bytes),
        octets(by_topic.bytes),
        _percent(one.share),
        _percent(_share(one.instead.wanted.bytes, by_topic)),
        _percent(one.early_share),
        octets(flooded.bytes),
        _percent(_share(one.bytes, flooded)),
    )


def _share(octets: int, load: CopyLoad) -> float | None:
    return octets / load.bytes if load.bytes else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _crossing_object(pair: Pair, one: UplinkTraffic) -> dict[str, Any]:
    loads = (("by_topic", one.instead.by_topic), ("flooding", one.instead.flooded), ("wanted", one.instead.wanted))
    return {
        "sites": list(pair),
        "bytes": one.bytes,
        "events": one.events,
        "share_of_by_topic": one.share,
        "share_until_the_kill": one.early_share,
        **{name: {"events": load.events, "bytes": load.bytes} for name, load in loads},
    }


def _table(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Aligned columns, the first *left* of them to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
