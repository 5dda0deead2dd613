"""What the demo of the federation came to: figures for people and programs, and every reason why it failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edgebroker.cli.demo.audit import NAMED_MAX, Account, Publication
from edgebroker.cli.demo.federation.books import Books
from edgebroker.cli.demo.federation.bridges import Alternatives, Load
from edgebroker.cli.demo.federation.layout import Pair, Road
from edgebroker.cli.demo.federation.network import Medium
from edgebroker.cli.demo.federation.tally import Tally
from edgebroker.cli.demo.outcome import FINDINGS, duration, found_end_to_end
from edgebroker.cli.figures import octets


@dataclass(frozen=True, slots=True)
class Crossing:
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
class Outcome:
    """Everything known at the end.

    missed: wanted copies with QoS 0 that did not come.  delays: how long messages took from their devices to their
    subscribers, in microseconds, outside the times of trouble.  medium: what uplinks are made of.
    received: what came to each gateway from its peers, where the kernel counts that.
    """

    seconds: float
    gateways: int
    devices: int
    publications: Sequence[Publication]
    accounts: Sequence[Account]
    at: Mapping[str, str]
    missed: int
    books: Books
    crossings: Mapping[Pair, Crossing]
    memory: Mapping[str, int]
    delays: Mapping[Road, Sequence[int]]
    medium: Medium
    received: Mapping[str, Tally]
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
        return [*self.troubles, *found_end_to_end(self.publications, self.accounts), *self.books.findings()]

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
            f"            delivery logs: {len(self.books.runs)} runs, {len(self.books.cut_short)} cut short;"
            f" {self.books.events:,} events, {self.books.handed_over:,} times given to a peer"
        )
        for problem in self.problems():
            yield f"FAILED      {problem}"

    def _counted(self) -> Iterator[str]:
        """What uplinks were made of and, where there are frames, what gateways say that these carried."""
        yield f"            {self.medium}; bytes: {self.medium.counted}, counted by the {self.medium.counted_by}"
        if self.received:
            yield f"            all links, inside sites too: {Tally.sum(self.received.values())}"

    def _asked(self, account: Account) -> Sequence[str]:
        wish = account.wish
        numbers = (account.candidates, account.wanted, account.received)
        asked = f"{wish.topic} {wish.where}"
        return wish.name, self.at[wish.name], asked, wish.manner, *(f"{number:,}" for number in numbers)

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
            "runs": {"whole": len(self.books.runs) - len(self.books.cut_short), "cut_short": len(self.books.cut_short)},
            "handed_over": self.books.handed_over,
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

    def _account_object(self, account: Account) -> dict[str, Any]:
        wish = account.wish
        return {
            "name": wish.name,
            "gateway": self.at[wish.name],
            "topic": wish.topic,
            "where": wish.where,
            "qos": wish.qos,
            "mqtt": wish.dialect.version,
            "matching": account.candidates,
            "wanted": account.wanted,
            "received": account.received,
            "repeated": account.repeated,
            "overtaken": account.overtaken,
            **{finding: len(getattr(account, finding)) for finding in FINDINGS},
            "named": {finding: getattr(account, finding)[:NAMED_MAX] for finding in FINDINGS},
        }


def _crossing(pair: Pair, one: Crossing) -> Sequence[str]:
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


def _share(octets: int, load: Load) -> float | None:
    return octets / load.bytes if load.bytes else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _crossing_object(pair: Pair, one: Crossing) -> dict[str, Any]:
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
