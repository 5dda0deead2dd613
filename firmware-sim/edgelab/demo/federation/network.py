"""The network between the gateways of the demo: their addresses, and uplinks that are counted and disturbed."""

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
    """The kind of the uplinks: what delays them, limits their rate, and counts their bytes.

    bits_per_s: the rate of an uplink without a fault; None is unlimited.  counted: the kind of bytes that are counted.
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
        """Return the medium for `--json`."""
        return asdict(self)


class FederationNetwork(Protocol):
    """Joins the gateways of a layout."""

    @property
    def layout(self) -> Layout:
        """Return the gateways and their connections."""
        ...

    @property
    def medium(self) -> UplinkMedium:
        """Return the kind of the uplinks."""
        ...

    @property
    def wrong(self) -> Mapping[Pair, str]:
        """Return the faults of uplinks, one word each; uplinks without a fault are missing."""
        ...

    @property
    def switch(self) -> Callable[[Pair, bool], None] | None:
        """Return a function that turns an uplink off (False) and on again; None if that is impossible."""
        ...

    def open(self) -> AbstractAsyncContextManager[None]:
        """Create the network for the duration of the block."""
        ...

    def draft(self) -> TopologyDraft:
        """Return the topology for the gateways, while the network is open."""
        ...

    def host(self, gateway: str) -> str:
        """Return the address of *gateway* for the demo, devices and subscribers."""
        ...

    def inside(self, gateway: str) -> Sequence[str]:
        """Return the beginning of a command that runs at the place of *gateway*."""
        ...

    def carried(self, uplink: Pair) -> int:
        """Return the bytes that have crossed *uplink* so far, in both directions together."""
        ...

    def received(self, gateway: str) -> tuple[int, int] | None:
        """Return the bytes and frames that *gateway* has received over all its links; None: not counted."""
        ...

    def squeeze(self, uplink: Pair, bytes_per_s: float | None) -> None:
        """Limit the rate of *uplink* in each direction; None removes the limit."""
        ...
