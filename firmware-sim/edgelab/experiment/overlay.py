"""The overlay of the experiments [SCOT]: 70 brokers, and messages that take time on their way between them.

The source ran its 70 brokers on six machines, neighbours never on the same one. A machine does the work of its brokers
in the order in which it comes up: it takes in a message, and sends each copy that its broker then makes. The brokers
are the product's own state machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from edgebroker.federation.effects import Effect, SendMessage
from edgebroker.federation.options import FederationOptions
from edgebroker.instants import MILLISECOND, Duration, Instant
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.messages import Message
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.federation import Federation
from edgelab.simworld.simulation import Simulation

CLUSTERS: Final = 5
MACHINES: Final = 6
INNER: Final = ("F-G-H-I",)
LEAVES: Final = ("F-a", "F-b", "F-c", "G-d", "G-e", "H-f", "H-g", "I-h", "I-i", "I-j")
"""The source's factor has four inner brokers and ten others; how they are joined is lost, and this is our choice."""


def seventy_brokers() -> Topology:
    """The product of the factor of 14 brokers and the complete graph of five."""
    return Topology.product(Scot(Factor.parse(*INNER, *LEAVES), CLUSTERS))


def machines_of(topology: Topology) -> dict[str, int]:
    """The machine of each broker: the one with the fewest so far that none of its peers is on."""
    machines: dict[str, int] = {}
    brokers = [0] * MACHINES
    for gateway in topology.gateways:
        taken = {machines.get(peer) for peer in gateway.peers()}
        machine = min((one for one in range(MACHINES) if one not in taken), key=brokers.__getitem__)
        machines[gateway.name] = machine
        brokers[machine] += 1
    return machines


@dataclass(frozen=True, slots=True)
class OverlayCosts:
    """What takes how long."""

    receive: Duration
    """A machine, to take in a message."""
    copy: Duration
    """A machine, to send one copy."""
    delay: Duration = MILLISECOND // 10
    """From then on until the copy is there: a network of ten gigabits."""


@dataclass(slots=True)
class LinkDirection:
    """One direction of a link."""

    peer: str
    leaves: deque[Instant] = field(default_factory=deque)
    """When each message that waits, or is being sent, is gone."""
    entered: int = 0
    """In this window."""
    carried: int = 0
    """In all."""

    def look(self, now: Instant) -> QueueSample | None:
        """End a window; None: the link did and holds nothing."""
        left = 0
        while self.leaves and self.leaves[0] <= now:
            self.leaves.popleft()
            left += 1
        entered, self.entered = self.entered, 0
        return QueueSample(entered, left, len(self.leaves)) if entered or left or self.leaves else None


class TimedFederation(Federation):
    """A federation on virtual time. All links are up from the start."""

    def __init__(
        self,
        topology: Topology,
        ways: FederationOptions,
        costs: OverlayCosts,
        simulation: Simulation,
        machines: Mapping[str, Hashable] | None = None,
    ) -> None:
        """machines: the machine of each broker; None: each has its own."""
        self.costs = costs
        self.simulation = simulation
        self.messages: dict[type[Message], int] = {}
        """How many there were of each kind."""
        self._machines = machines or {gateway.name: gateway.name for gateway in topology.gateways}
        self._free_at: dict[Hashable, Instant] = {}  # by machine
        self._lines = {
            gateway.name: {peer: LinkDirection(peer) for peer in gateway.peers()} for gateway in topology.gateways
        }
        self._busy: dict[str, dict[str, LinkDirection]] = {}  # by broker and peer, the links that did or hold something
        self._is_running = False
        super().__init__(topology, ways)
        with self.at_once():
            self.connect_all()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is said inside takes no time and is not counted."""
        self._is_running = False
        yield
        self.settle()
        self.sent.clear()
        self._is_running = True

    def outgoing_links(self, broker: str) -> Iterable[LinkDirection]:
        """The links that leave *broker*."""
        return self._lines[broker].values()

    def watch(self, window: Duration, end: Instant) -> None:
        """Let every broker look at its queues at the end of each *window*, until *end* and all of them are empty."""
        now = self.simulation.now
        for name, lines in [*self._busy.items()]:
            queues = {peer: queue for peer, line in lines.items() if (queue := line.look(now)) is not None}
            self.peers[name].end_window(queues)
            self._busy[name] = {peer: lines[peer] for peer in queues}
            if not queues:
                del self._busy[name]
        if now < end or self._busy:
            self.simulation.after(window, partial(self.watch, window, end))

    def message_arrived(self, message: Message) -> None:
        """A message has arrived."""

    def perform(self, gateway: str, effects: Iterable[Effect]) -> None:
        """Do what *gateway* wants done, one copy after the other."""
        if not self._is_running:
            super().perform(gateway, effects)
            return
        self.now = self.simulation.now
        others: list[Effect] = []
        for effect in effects:
            if isinstance(effect, SendMessage):
                self._queue(gateway, effect)
            else:
                others.append(effect)
        super().perform(gateway, others)

    def _queue(self, gateway: str, send: SendMessage) -> None:
        kind = type(send.message)
        self.messages[kind] = self.messages.get(kind, 0) + 1
        gone = self._worked(gateway, self.costs.copy)
        line = self._lines[gateway][send.peer]
        self._busy.setdefault(gateway, {})[send.peer] = line
        line.entered += 1
        line.carried += 1
        line.leaves.append(gone)
        self.simulation.at(gone + self.costs.delay, partial(self._arrive, gateway, send))

    def _worked(self, gateway: str, cost: Duration) -> Instant:
        """When work that comes up now is done."""
        machine = self._machines[gateway]
        done = self._free_at[machine] = max(self.simulation.now, self._free_at.get(machine, 0)) + cost
        return done

    def _arrive(self, sender: str, send: SendMessage) -> None:
        self.simulation.at(self._worked(send.peer, self.costs.receive), partial(self._take_in, sender, send))

    def _take_in(self, sender: str, send: SendMessage) -> None:
        self.message_arrived(send.message)
        now = self.simulation.now
        self.perform(send.peer, self.peers[send.peer].received(sender, send.message, now))
