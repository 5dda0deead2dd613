"""What joins the gateways of the demo: where each of them is reached, and uplinks that are counted and disturbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from edgebroker.overlay.topology.draft import TopologyDraft
from edgelab.demo.federation.layout import Layout, Pair

UPLINK_US: Final = 10_000
"""The delay of a link between sites: a leased line of some hundred kilometres."""


@dataclass(frozen=True, slots=True)
class UplinkMedium:
    """What uplinks are made of: who delays, who bounds the rate, and who counts what.

    bits_per_s: what an uplink carries while nothing is wrong with it; None is as much as comes.  counted: the bytes
    that are told.
    """

    kind: str
    delay_us: int
    delay_by: str
    bits_per_s: int | None
    rate_by: str
    counted_by: str
    counted: str

    def __str__(self) -> str:
        delay = f"{self.delay_us / 1_000:g} ms by {self.delay_by}"
        if self.bits_per_s is None:
            return delay
        return f"{delay}, {self.bits_per_s / 1_000_000:g} Mbit/s by {self.rate_by}"

    def as_object(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


class FederationNetwork(Protocol):
    """Joins the gateways of a layout."""

    @property
    def layout(self) -> Layout:
        """Who is joined to whom."""
        ...

    @property
    def medium(self) -> UplinkMedium:
        """What its uplinks are made of."""
        ...

    @property
    def wrong(self) -> Mapping[Pair, str]:
        """What is wrong with an uplink now, in a word. Only those are in it."""
        ...

    @property
    def switch(self) -> Callable[[Pair, bool], None] | None:
        """Turns an uplink off (False) and on again; None where nothing can."""
        ...

    def open(self) -> AbstractAsyncContextManager[None]:
        """Everything is in place, until the block is left."""
        ...

    def draft(self) -> TopologyDraft:
        """The topology as gateways need it, while it is open."""
        ...

    def host(self, gateway: str) -> str:
        """Where we, devices and subscribers reach *gateway*."""
        ...

    def inside(self, gateway: str) -> Sequence[str]:
        """What a command begins with that shall run where *gateway* stands."""
        ...

    def carried(self, uplink: Pair) -> int:
        """Bytes that have crossed *uplink* so far, both ways together."""
        ...

    def received(self, gateway: str) -> tuple[int, int] | None:
        """Bytes that *gateway* has received so far over all its links, and in how many frames; None: not counted."""
        ...

    def squeeze(self, uplink: Pair, bytes_per_s: float | None) -> None:
        """Let *uplink* carry no more than that, each way; None ends it."""
        ...
