"""Gateways in network namespaces, joined by devices of the kernel, which delays, throttles, cuts and counts."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Final

from edgebroker.names import Address
from edgebroker.overlay.topology.draft import TopologyDraft
from edgelab.demo.federation.kernel import CommandFailed, entered, execute, names, open_counters, read_counters
from edgelab.demo.federation.layout import HOST, Layout, Pair
from edgelab.demo.federation.namespaces import BITS_PER_S, DESK, NamespacePlan, inside, of_run, removing
from edgelab.demo.federation.network import UPLINK_US, UplinkMedium
from edgelab.demo.federation.relays import UplinkRelay

PORT: Final = 7884
"""The port for peers: each gateway has addresses of its own."""
KERNEL: Final = UplinkMedium(
    kind="namespaces",
    delay_us=UPLINK_US,
    delay_by="netem",
    bits_per_s=BITS_PER_S,
    rate_by="tbf",
    counted_by="kernel",
    counted="frames with their headers",
)
RELAYED: Final = replace(KERNEL, delay_by="relays (this kernel has no netem)")


class NamespaceNetwork:
    """A FederationNetwork of network namespaces. Without *has_netem* a relay at the dialling end of each uplink delays
    the bytes.
    """

    def __init__(self, run: int, layout: Layout, print_line: Callable[[str], None], *, has_netem: bool) -> None:
        """*run*: the process id of the demo. *print_line*: prints a line about problems during removal."""
        self.layout = layout
        self.medium = KERNEL if has_netem else RELAYED
        self.wrong: dict[Pair, str] = {}
        self.switch: Callable[[Pair, bool], None] = self._switch
        self._say = print_line
        self._plan = NamespacePlan(run, layout, self.medium.delay_us if has_netem else 0)
        self._counters: dict[str, int] = {}
        self._relays = {} if has_netem else {pair: self._relay(pair) for pair in layout.uplinks}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Create the network; meanwhile this thread, and those it starts, are in the desk's namespace. Raises
        CommandFailed.
        """
        with self._made(), entered(self._plan.namespace(DESK)):
            async with AsyncExitStack() as stack:
                for relay in self._relays.values():
                    await stack.enter_async_context(relay.open())
                yield

    def draft(self) -> TopologyDraft:
        """Return the topology: a gateway accepts peers at its end of each link."""
        awaited = {one.name: list[Address]() for one in self.layout.gateways}
        doors = {}
        for pair, wire in self._plan.wires.items():
            doors[pair] = Address(wire.addresses[1], PORT)
            awaited[pair[1]].append(doors[pair])
        doors |= {pair: Address(HOST, relay.port) for pair, relay in self._relays.items()}
        # A gateway that no peer dials needs an address, too.
        placed = {name: tuple(those) or (Address(self.host(name), PORT),) for name, those in awaited.items()}
        return self.layout.draft(placed, doors)

    def host(self, gateway: str) -> str:
        """Return the address of *gateway* for devices and subscribers."""
        return self._plan.host(gateway)

    def inside(self, gateway: str) -> Sequence[str]:
        """Return the beginning of a command that runs in the namespace of *gateway*."""
        return inside(self._plan.namespace(gateway))

    def carried(self, uplink: Pair) -> int:
        """Return the bytes that both ends sent over *uplink*, including those dropped on the way."""
        wire = self._plan.wires[uplink]
        return sum(read_counters(self._counters[end])[wire.at(end)].sent_bytes for end in uplink)

    def received(self, gateway: str) -> tuple[int, int]:
        """Return the bytes and frames that *gateway* has received over all its links."""
        devices = read_counters(self._counters[gateway])
        links = [devices[wire.at(gateway)] for wire in self._plan.wires_of(gateway)]
        return sum(one.received_bytes for one in links), sum(one.received_frames for one in links)

    def squeeze(self, uplink: Pair, bytes_per_s: float | None) -> None:
        """Limit the rate of *uplink*; None removes the limit. Raises CommandFailed."""
        execute(self._plan.squeezing(uplink, bytes_per_s))
        self._note(uplink, "" if bytes_per_s is None else "squeezed")

    def _switch(self, uplink: Pair, is_on: bool) -> None:
        execute(self._plan.switching(uplink, is_on))
        self._note(uplink, "" if is_on else "cut")

    def _note(self, uplink: Pair, state: str) -> None:
        if state:
            self.wrong[uplink] = state
        else:
            self.wrong.pop(uplink, None)

    # -- making and removing ------------------------------------------------------------------------------------

    @contextmanager
    def _made(self) -> Iterator[None]:
        """Create everything, and remove it in every case, without a point at which a second Ctrl-C could interrupt."""
        try:
            execute(self._plan.making())
            with ExitStack() as files:
                for one in self.layout.gateways:
                    with entered(self._plan.namespace(one.name)):
                        self._counters[one.name] = file = open_counters()
                    files.callback(os.close, file)
                yield
        finally:
            self._remove()

    def _remove(self) -> None:
        for command in removing(of_run(self._plan.run, names())):
            try:
                execute([command])
            except CommandFailed as failure:  # the other namespaces must still be removed
                self._say(f"not removed: {failure}")

    def _relay(self, uplink: Pair) -> UplinkRelay:
        """Return a relay at the gateway that dials: its output crosses the uplink like all other bytes."""

        def new_socket() -> socket.socket:
            with entered(self._plan.namespace(uplink[0])):
                return socket.socket()

        address = Address(self._plan.wires[uplink].addresses[1], PORT)
        return UplinkRelay(uplink, address, self.medium.delay_us / 1_000_000, new_socket)
