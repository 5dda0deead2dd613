"""The outcome of the federation's demo as text and as JSON, and every reason why it failed.

The bytes between peers are compared with the kernel's count, and with those of bridges that filter by topic or flood.
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
from edgelab.demo.federation.placement_act import DemoPlacement
from edgelab.demo.outcome import FINDINGS, duration, found_end_to_end
from edgelab.demo.subscriber_specs import SubscriberSpec

HEADERS_BYTES: Final = 66
"""Headers of a frame with a TCP segment: 14 bytes of Ethernet, 20 of IPv4, 20 of TCP and 12 of its timestamps (RFC
7323).
"""


class ReceivedBytes(NamedTuple):
    """Bytes in *frames* that the kernel *counted*, and the bytes that the gateway *reported*.

    They differ by TCP retransmissions, by frames that are no segments (ARP), and by the last second of a killed
    gateway.
    """

    counted: int
    frames: int
    reported: int

    @classmethod
    def sum(cls, tallies: Iterable[ReceivedBytes]) -> ReceivedBytes:
        """Return the sum over several gateways."""
        return cls(*map(sum, zip((0, 0, 0), *tallies, strict=True)))

    @property
    def payload(self) -> int:
        """Return the counted bytes without the headers of frames."""
        return self.counted - HEADERS_BYTES * self.frames

    @property
    def is_possible(self) -> bool:
        """Return whether the gateway reports no more than was counted, so that nothing bypassed the links."""
        return self.reported <= self.counted

    def __str__(self) -> str:
        more = f"{(self.payload - self.reported) / self.reported:+.1%}" if self.reported else "-"
        return (
            f"{self.frames:,} frames, {self.counted:,} bytes; less {HEADERS_BYTES} of headers each {self.payload:,}"
            f" ({more} of the {self.reported:,} that the gateways say)"
        )

    def as_object(self) -> dict[str, Any]:
        """Return the figures for `--json`."""
        return {
            "bytes": self.counted,
            "frames": self.frames,
            "payload_bytes": self.payload,
            "said_bytes": self.reported,
        }


@dataclass(slots=True)
class CopyLoad:
    """A number of messages, and the bytes of their PUBLISH packets."""

    events: int = 0
    bytes: int = 0

    def add(self, octets: int, times: int = 1) -> None:
        """Add one message, *times* times."""
        self.events += times
        self.bytes += octets * times


@dataclass(slots=True)
class Alternatives:
    """What other systems would have sent between two sites, in both directions together.

    by_topic: one bridge, which forwards a message once if somebody at the other site has a matching topic filter.
    flooded: every message, over each of the connections between the sites once. wanted: the messages that somebody at
    the other site subscribed to, by topic and content; any network must carry them.
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
    """Compute the alternatives for *pairs*: two sites -> number of connections. specs: site -> its subscriptions."""
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
    """Return the size of its PUBLISH packet in MQTT 3.1.1 (section 3.3), without TCP headers and acknowledgements."""
    rest = 2 + len(publication.topic.encode()) + (2 if publication.qos else 0) + len(publication.payload)
    length = 1
    while rest >= 128**length:
        length += 1
    return 1 + length + rest


def _topic(spec: SubscriberSpec, publication: DevicePublication) -> bool:
    """Return whether the topic filter of *spec* matches the topic, level by level; no topic of the demo begins with
    "$".
    """
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
    """The traffic between two sites, in both directions, and the alternatives. `bytes`: everything that gateways sent.

    early_bytes, early: the same until the gateway was killed.
    """

    bytes: int
    events: int
    instead: Alternatives
    early_bytes: int
    early: Alternatives

    @property
    def share(self) -> float | None:
        """Return the share of the bytes that bridges by topic would have sent; None if that is nothing."""
        return _share(self.bytes, self.instead.by_topic)

    @property
    def early_share(self) -> float | None:
        """Return the same share until the gateway was killed."""
        return _share(self.early_bytes, self.early.by_topic)


@dataclass(frozen=True, slots=True)
class FederationOutcome:
    """All results of the demo.

    missed: accepted copies with QoS 0 that did not arrive.  delays: latencies from devices to subscribers, in
    microseconds, without the times of faults.  medium: the kind of the uplinks.  received: bytes that each gateway
    received from its peers, if the kernel counts them.  placement: the publisher that was moved.
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
    placement: DemoPlacement | None = None

    def found(self, finding: str) -> int:
        """Return the number of messages of all subscribers with this *finding* (one of FINDINGS)."""
        return sum(len(getattr(account, finding)) for account in self.accounts)

    @property
    def overtaken(self) -> int:
        """Return the copies that arrived after later ones, because of a detour around a link that was down
        (docs/overlay.md).
        """
        return sum(account.overtaken for account in self.accounts)

    @property
    def repeated(self) -> int:
        """Return the copies with QoS 1 that were sent again after a connection broke."""
        return sum(account.repeated for account in self.accounts)

    def problems(self) -> list[str]:
        """Return every reason why the demo failed; empty if it succeeded."""
        return [*self.troubles, *found_end_to_end(self.publications, self.accounts), *self.log_audit.findings()]

    # -- as text ------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """Yield the key figures."""
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
        if self.placement is not None:
            yield from self.placement.lines()
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
        """Yield the kind of the uplinks and, if there are frames, the gateways' own figures beside the counted ones."""
        yield f"            {self.medium}; bytes: {self.medium.counted}, counted by the {self.medium.counted_by}"
        if self.received:
            yield f"            all links, inside sites too: {ReceivedBytes.sum(self.received.values())}"

    def _asked(self, account: SubscriberAccount) -> Sequence[str]:
        spec = account.spec
        numbers = (account.candidates, account.wanted, account.received)
        asked = f"{spec.topic} {spec.where}"
        return spec.name, self.at[spec.name], asked, spec.manner, *(f"{number:,}" for number in numbers)

    # -- as JSON ------------------------------------------------------------------------------------------------

    def as_object(self) -> dict[str, Any]:
        """Return all figures, for `--json`."""
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
            "placement": None if self.placement is None else self.placement.as_object(),
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
        """Yield for each route its name, its links between sites, and the latencies."""
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
    """Yield aligned columns, the first *left* of them aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
