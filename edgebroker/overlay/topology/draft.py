"""A topology draft: sites, gateways, links and uplinks as written in the file, before validation, and its mistakes,
each with its place in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from itertools import islice
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.limits import COVERING_BYTES
from edgebroker.names import Address, ClientAddress, most_alike


@dataclass(frozen=True, slots=True)
class Uplink:
    """The limits of a link, for each direction."""

    kind: str
    """`lan`, `wan` or `metered`. Traffic is deflated unless the link is a `lan`."""
    batch_ms: int
    """How long after a packet a message may wait to share the next packet with others."""
    bytes_per_s: int | None = None
    """None: no limit."""
    bytes_per_day: int | None = None
    """None: no limit."""
    covering_bytes: int = COVERING_BYTES
    """The bytes in which a site says what it wants of the topics of one advertisement."""
    cost: int = 0
    """What a byte costs, in any unit. An event for several sites leaves once, for a site with a lower cost, which hands
    it on.
    """

    def __str__(self) -> str:
        bounds = [(self.bytes_per_s, "bytes/s"), (self.bytes_per_day, "bytes a day")]
        parts = [
            self.kind,
            f"{self.batch_ms} ms",
            *(f"{bound:,} {unit}" for bound, unit in bounds if bound is not None),
            *([] if self.covering_bytes == COVERING_BYTES else [f"coverings of {self.covering_bytes:,} bytes"]),
            *([] if self.cost == UPLINKS[self.kind].cost else [f"cost {self.cost}"]),
        ]
        return ", ".join(parts)

    def stricter(self, other: Uplink) -> Uplink:
        """Return the stricter limit of the two in every respect, for a link that crosses both."""
        return Uplink(
            max(self.kind, other.kind, key=[*UPLINKS].index),
            max(self.batch_ms, other.batch_ms),
            _least(self.bytes_per_s, other.bytes_per_s),
            _least(self.bytes_per_day, other.bytes_per_day),
            min(self.covering_bytes, other.covering_bytes),
            max(self.cost, other.cost),
        )


def _least(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


UPLINKS: Final[Mapping[str, Uplink]] = {
    # A private network: bytes cost nothing.
    "lan": Uplink("lan", batch_ms=0),
    # 2 ms are little beside a latency of 20 to 100 ms, and at 1,000 messages a second they save half of the packets.
    "wan": Uplink("wan", batch_ms=2),
    # A packet costs 40 bytes of TCP/IP and 22 of TLS: six bytes for each of ten messages in a second.
    "metered": Uplink("metered", batch_ms=1_000, cost=1),
}
"""Kind -> the defaults of a site's uplink, the least restricted first."""


class DialPreference(IntEnum):
    """How much a gateway prefers to dial rather than to be dialled."""

    NEVER = 0
    AUTO = 1
    ALWAYS = 2


@dataclass(frozen=True, slots=True)
class Site:
    """A site, which is a cluster. `index`: its cluster index, from 0."""

    name: str
    index: int
    uplink: Uplink = UPLINKS["wan"]


@dataclass(frozen=True, slots=True)
class DraftGateway:
    """A gateway and the positions that it holds in the cluster of its site, its home first.

    positions: empty if it is the only gateway of its site and holds all. number: identifies it in messages; never
    reused. address: where every gateway reaches it; lan: where only gateways of its own site do, tried first. clients:
    where MQTT clients connect to it, the preferred address first.
    """

    name: str
    number: int
    site: str
    positions: tuple[str, ...] = ()
    address: tuple[Address, ...] = ()
    lan: tuple[Address, ...] = ()
    dials: DialPreference = DialPreference.AUTO
    clients: tuple[ClientAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftLink:
    """An exception from the dialling rule for two gateways: which one dials, and at which addresses."""

    between: tuple[str, str]
    dials: str
    address: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyDraft:
    """The content of a file. `tree`: the paths of the factor."""

    federation: str
    tree: tuple[str, ...]
    sites: tuple[Site, ...]
    gateways: tuple[DraftGateway, ...]
    links: tuple[DraftLink, ...] = ()


NAMES_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class TopologyMistake:
    """One mistake. `where`: its place in the file: section, index from 0 if sections repeat, and key. `mend`: the
    remedy.
    """

    where: tuple[str | int, ...]
    reason: str
    mend: str

    def __str__(self) -> str:
        place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in self.where).removeprefix(".")
        return f"{place}: {self.reason}; {self.mend}"


def nearest(name: str, names: Collection[str]) -> str:
    """Return a remedy for *name*, which is none of *names*."""
    if (meant := most_alike(name, names)) is not None:
        return f"did you mean {meant}?"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"there are {', '.join(islice(names, NAMES_SHOWN))}{more}"


class TopologyInvalid(EdgebrokerError):
    """A topology is invalid because of `mistakes`; the message has one line for each."""

    def __init__(self, mistakes: Iterable[TopologyMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(map(str, self.mistakes)))
