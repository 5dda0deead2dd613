"""Gateways joined on the loopback interface, with a relay in each uplink: what every machine can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from edgebroker.cli.demo.federation.layout import HOST, Layout, Pair
from edgebroker.cli.demo.federation.network import UPLINK_US, Medium
from edgebroker.cli.demo.federation.relay import Relay
from edgebroker.cli.freeports import free_ports
from edgebroker.overlay.address import Address
from edgebroker.overlay.draft import Draft

RELAYED: Final = Medium(
    kind="relays",
    delay_us=UPLINK_US,
    delay_by="relays",
    bits_per_s=None,
    rate_by="relays",
    counted_by="relays",
    counted="payload of TCP",
)


class Relays:
    """See Network."""

    medium = RELAYED
    switch = None

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.wrong: dict[Pair, str] = {}
        ports = free_ports(len(layout.gateways))
        self._addresses = {one.name: Address(HOST, port) for one, port in zip(layout.gateways, ports, strict=True)}
        delay_s = self.medium.delay_us / 1_000_000
        self._relays = {pair: Relay(pair, self._addresses[pair[1]], delay_s) for pair in layout.uplinks}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """See Network."""
        async with AsyncExitStack() as stack:
            for relay in self._relays.values():
                await stack.enter_async_context(relay.open())
            yield

    def draft(self) -> Draft:
        """See Network: the relays' ports are known."""
        doors = {pair: Address(HOST, relay.port) for pair, relay in self._relays.items()}
        return self.layout.draft({name: (address,) for name, address in self._addresses.items()}, doors)

    def host(self, gateway: str) -> str:
        """See Network."""
        return HOST

    def inside(self, gateway: str) -> Sequence[str]:
        """See Network: all stand here."""
        return ()

    def carried(self, uplink: Pair) -> int:
        """See Network."""
        return self._relays[uplink].total

    def received(self, gateway: str) -> None:
        """See Network: nobody counts what crosses links inside a site."""

    def squeeze(self, uplink: Pair, bytes_per_s: float | None) -> None:
        """See Network."""
        self._relays[uplink].bytes_per_s = bytes_per_s
        if bytes_per_s is None:
            self.wrong.pop(uplink, None)
        else:
            self.wrong[uplink] = "squeezed"
