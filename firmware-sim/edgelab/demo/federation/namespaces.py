"""The plan of gateways in network namespaces: names, addresses, and the commands that create, disturb and remove all.

Each gateway is in a namespace of its own. A pair of virtual Ethernet devices is a link between two; a further
namespace, the desk, has a bridge to all, and contains devices and subscribers. Nothing is created in the namespace of
the machine. These are values: nothing here runs a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from edgelab.demo.federation.layout import Layout, Pair

Command = tuple[str, ...]

BITS_PER_S: Final = 10_000_000
"""The rate of an uplink in each direction without a fault."""
BURST_BYTES: Final = 1_600
"""The burst of the token bucket: a frame of 1,514 bytes must fit; more would pass at once when the uplink is
throttled.
"""
QUEUE_BYTES: Final = 16_384  # the queue of an uplink is short, so that data waits at the sender, as with a relay
DESK: Final = "desk"
_OURS: Final = re.compile(r"edgebroker-(\d+)-[a-z0-9-]+")
_PER_BLOCK: Final = 64
"""Links with four addresses each in 10.78.x.0/24."""


@dataclass(frozen=True, slots=True)
class NamespaceLink:
    """A link: the names of both its devices, and their addresses."""

    ends: Pair
    devices: Pair
    addresses: Pair
    is_uplink: bool

    def at(self, gateway: str) -> str:
        """Return the device of *gateway*."""
        return self.devices[self.ends.index(gateway)]


class NamespacePlan:
    """The network of run number *run* (a process id, so no other running demo has it).

    delay_us: the delay of `netem` in each direction; 0 if the kernel has none.
    """

    def __init__(self, run: int, layout: Layout, delay_us: int) -> None:
        self.run = run
        self.delay_us = delay_us
        self._layout = layout
        self.wires = {pair: self._wire(at, pair) for at, pair in enumerate(layout.links)}

    @property
    def names(self) -> tuple[str, ...]:
        """Return all namespaces, the desk first."""
        return tuple(self.namespace(place) for place in (DESK, *(one.name for one in self._layout.gateways)))

    def namespace(self, place: str) -> str:
        """Return the namespace of a gateway, or of the desk."""
        return namespace(self.run, place)

    def host(self, gateway: str) -> str:
        """Return the address of *gateway* on the desk's bridge."""
        return f"10.77.0.{self._layout.topology.gateway(gateway).number + 1}"

    def wires_of(self, gateway: str) -> Iterator[NamespaceLink]:
        """Return the links of *gateway*."""
        return (wire for wire in self.wires.values() if gateway in wire.ends)

    # -- commands -----------------------------------------------------------------------------------------------

    def making(self) -> Iterator[Command]:
        """Yield the commands that create everything. If one fails, the results of those before it remain."""
        for name in self.names:
            yield "ip", "netns", "add", name
            yield "ip", "-n", name, "link", "set", "lo", "up"
        yield from self._making_desk()
        for wire in self.wires.values():
            yield from self._making_wire(wire)

    def squeezing(self, uplink: Pair, bytes_per_s: float | None) -> Iterator[Command]:
        """Yield the commands that limit the rate of *uplink* in each direction; None restores the full rate."""
        rate = BITS_PER_S if bytes_per_s is None else round(8 * bytes_per_s)
        return (self._rate("change", gateway, device, rate) for gateway, device in self._ends(self.wires[uplink]))

    def switching(self, uplink: Pair, is_on: bool) -> Iterator[Command]:
        """Yield the commands that cut or restore *uplink*: one device is enough, because the other loses its
        carrier.
        """
        gateway, device = next(self._ends(self.wires[uplink]))
        yield "ip", "-n", self.namespace(gateway), "link", "set", device, "up" if is_on else "down"

    def _making_desk(self) -> Iterator[Command]:
        desk, bridge = self.namespace(DESK), self._device("d")
        yield "ip", "-n", desk, "link", "add", bridge, "type", "bridge"
        yield "ip", "-n", desk, "address", "add", "10.77.0.254/24", "dev", bridge
        yield "ip", "-n", desk, "link", "set", bridge, "up"
        for number, one in enumerate(self._layout.gateways):
            here, there, name = self._device("d", number, "a"), self._device("d", number, "b"), one.name
            peer = ("type", "veth", "peer", "name", there, "netns", self.namespace(name))
            yield "ip", "-n", desk, "link", "add", here, *peer
            yield "ip", "-n", desk, "link", "set", here, "master", bridge, "up"
            yield "ip", "-n", self.namespace(name), "address", "add", f"{self.host(name)}/24", "dev", there
            yield "ip", "-n", self.namespace(name), "link", "set", there, "up"

    def _making_wire(self, wire: NamespaceLink) -> Iterator[Command]:
        # Frames as on a real wire, so that they can be counted: without segments that only the last device would split.
        alone, (one, other) = ("gso_max_segs", "1"), wire.devices
        peer = ("type", "veth", "peer", "name", other, *alone, "netns", self.namespace(wire.ends[1]))
        yield "ip", "-n", self.namespace(wire.ends[0]), "link", "add", one, *alone, *peer
        for (gateway, device), address in zip(self._ends(wire), wire.addresses, strict=True):
            inside = ("ip", "-n", self.namespace(gateway))
            yield *inside, "address", "add", f"{address}/30", "dev", device
            # Without IPv6 addresses, whose announcements would be counted too.
            yield *inside, "link", "set", device, "addrgenmode", "none", "up"
            if wire.is_uplink:
                yield from self._making_uplink(gateway, device)

    def _making_uplink(self, gateway: str, device: str) -> Iterator[Command]:
        """Yield the commands that give an uplink its rate and delay.

        The rate is limited by `tbf` below `netem`: `netem` would fix the departure of a packet at its arrival, so that
        the queue of a throttled uplink would leave just as slowly when the limit is removed.
        """
        if self.delay_us:
            delay = ("root", "handle", "1:", "netem", "delay", f"{self.delay_us}us")
            yield "tc", "-n", self.namespace(gateway), "qdisc", "add", "dev", device, *delay
        yield self._rate("add", gateway, device, BITS_PER_S)

    def _rate(self, verb: str, gateway: str, device: str, bits_per_s: int) -> Command:
        place = ("parent", "1:1") if self.delay_us else ("root",)
        bounds = ("rate", f"{bits_per_s}bit", "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES))
        inside = ("tc", "-n", self.namespace(gateway))
        return *inside, "qdisc", verb, "dev", device, *place, "handle", "10:", "tbf", *bounds

    # -- names --------------------------------------------------------------------------------------------------

    def _wire(self, number: int, pair: Pair) -> NamespaceLink:
        is_uplink = pair in self._layout.uplinks
        kind = "u" if is_uplink else "l"
        block, place = divmod(number, _PER_BLOCK)
        first, second = (f"10.78.{block}.{4 * place + host}" for host in (1, 2))
        devices = self._device(kind, number, "a"), self._device(kind, number, "b")
        return NamespaceLink(pair, devices, (first, second), is_uplink)

    def _device(self, kind: str, number: int | None = None, end: str = "") -> str:
        return f"eb{self.run}{kind}{'' if number is None else number}{end}"

    def _ends(self, wire: NamespaceLink) -> Iterator[Pair]:
        """Yield both gateways, each with its device."""
        return zip(wire.ends, wire.devices, strict=True)


def namespace(run: int, place: str) -> str:
    """Return the name of a namespace of this *run*."""
    return f"edgebroker-{run}-{place}"


def removing(namespaces: Iterable[str]) -> Iterator[Command]:
    """Yield the commands that remove *namespaces* and all devices in them."""
    return (("ip", "netns", "delete", name) for name in namespaces)


def inside(namespace: str) -> Command:
    """Return the beginning of a command that runs in *namespace*."""
    return "ip", "netns", "exec", namespace


def of_run(run: int, names: Iterable[str]) -> list[str]:
    """Return those of the namespaces *names* that belong to *run*."""
    return sorted(name for name in names if (found := _OURS.fullmatch(name)) and int(found[1]) == run)


def left_over(names: Iterable[str], is_running: Callable[[int], bool]) -> list[str]:
    """Return those of the namespaces *names* whose run has ended: nothing else will remove them."""
    return sorted(name for name in names if (found := _OURS.fullmatch(name)) and not is_running(int(found[1])))
