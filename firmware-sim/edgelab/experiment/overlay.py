"""The overlay of the experiments [SCOT]: 70 brokers, and messages that take time between them.

The source ran its 70 brokers on six machines, neighbours never on the same one. A machine does the work of its brokers
in the order of its arrival: it receives a message, and sends each copy that its broker then makes. The brokers are the
product's own state machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

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
"""The source's factor has four inner brokers and ten others; its edges are not published, and these are our choice."""


def seventy_brokers() -> Topology:
    """Return the product of the factor of 14 brokers and the complete graph of five."""
    return Topology.product(Scot(Factor.parse(*INNER, *LEAVES), CLUSTERS))


def machines_of(topology: Topology) -> dict[str, int]:
    """Assign each broker to the machine with the fewest brokers so far on which none of its peers is."""
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
    """The durations of the steps of a message."""

    receive: Duration
    """Time of a machine to receive a message."""
    copy: Duration
    """Time of a machine to send one copy."""
    delay: Duration = MILLISECOND // 10
    """Time until the copy arrives after that: a network of ten gigabits."""


@dataclass(slots=True)
class LinkDirection:
    """One direction of a link."""

    peer: str
    leaves: deque[Instant] = field(default_factory=deque)
    """The times at which the queued messages, and the one being sent, leave."""
    entered: int = 0
    """Messages that entered in this window."""
    carried: int = 0
    """Messages in all."""

    def end_window(self, now: Instant) -> QueueSample | None:
        """End a window; returns None if the link carried and queued nothing."""
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
        options: FederationOptions,
        costs: OverlayCosts,
        simulation: Simulation,
        machines: Mapping[str, Hashable] | None = None,
    ) -> None:
        """machines: the machine of each broker; None: each has its own."""
        self.costs = costs
        self.simulation = simulation
        self.messages: dict[type, int] = {}
        """Number of messages of each kind."""
        self._machines = machines or {gateway.name: gateway.name for gateway in topology.gateways}
        self._free_at: dict[Hashable, Instant] = {}  # by machine
        self._links = {
            gateway.name: {peer: LinkDirection(peer) for peer in gateway.peers()} for gateway in topology.gateways
        }
        # by broker and peer, the links that carried or queue something
        self._busy: dict[str, dict[str, LinkDirection]] = {}
        self._is_running = False
        super().__init__(topology, options)
        with self.at_once():
            self.connect_all()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Messages sent inside the block take no time and are not counted."""
        self._is_running = False
        yield
        self.settle()
        self.sent.clear()
        self._is_running = True

    def outgoing_links(self, broker: str) -> Iterable[LinkDirection]:
        """Return the links that leave *broker*."""
        return self._links[broker].values()

    def watch(self, window: Duration, end: Instant) -> None:
        """Let every broker sample its queues at the end of each *window*, until *end* and until all of them are
        empty.
        """
        now = self.simulation.now
        for name, links in [*self._busy.items()]:
            queues = {peer: queue for peer, link in links.items() if (queue := link.end_window(now)) is not None}
            self.peers[name].end_window(queues)
            self._busy[name] = {peer: links[peer] for peer in queues}
            if not queues:
                del self._busy[name]
        if now < end or self._busy:
            self.simulation.after(window, partial(self.watch, window, end))

    def message_arrived(self, message: Message) -> None:
        """Called for each message that has arrived."""

    def link_delay(self, sender: str, peer: str) -> Duration:
        """Return the time on the way from *sender* to *peer*."""
        return self.costs.delay

    def receive_cost(self, message: object) -> Duration:
        """Return the time of a machine to receive *message*."""
        return self.costs.receive

    def message_taken(self, broker: str, message: object, waited: Duration) -> None:
        """Called when a message has come to *broker*; *waited*: how long it will wait until it is its turn."""

    def copy_sent(self, broker: str, peer: str, message: object, waited: Duration) -> None:
        """Called when *broker* has made a copy; *waited*: how long it takes until it has left."""

    def perform(self, gateway: str, effects: Iterable[Effect]) -> None:
        """Execute the effects of *gateway*, one copy after the other."""
        if not self._is_running:
            super().perform(gateway, effects)
            return
        self.now = self.simulation.now
        others: list[Effect] = []
        for effect in effects:
            if isinstance(effect, SendMessage):
                self.transmit(gateway, effect.peer, effect.message)
            else:
                others.append(effect)
        super().perform(gateway, others)

    def transmit(self, sender: str, peer: str, message: Any) -> None:
        """Send a message, after the work that waits at *sender*."""
        kind = type(message)
        self.messages[kind] = self.messages.get(kind, 0) + 1
        sent_at = self.work_done_at(sender, self.costs.copy)
        self.copy_sent(sender, peer, message, sent_at - self.simulation.now)
        link = self._links[sender][peer]
        self._busy.setdefault(sender, {})[peer] = link
        link.entered += 1
        link.carried += 1
        link.leaves.append(sent_at)
        self.simulation.at(sent_at + self.link_delay(sender, peer), partial(self._arrive, sender, peer, message))

    def work_done_at(self, broker: str, cost: Duration) -> Instant:
        """Return when the broker's machine has done work that arrives now; it is busy until then."""
        machine = self._machines[broker]
        done = self._free_at[machine] = max(self.simulation.now, self._free_at.get(machine, 0)) + cost
        return done

    def _arrive(self, sender: str, peer: str, message: Any) -> None:
        cost = self.receive_cost(message)
        done = self.work_done_at(peer, cost)
        self.message_taken(peer, message, done - cost - self.simulation.now)
        self.simulation.at(done, partial(self.receive, sender, peer, message))

    def receive(self, sender: str, peer: str, message: Any) -> None:
        """Let *peer* handle a message of *sender*."""
        self.message_arrived(message)
        now = self.simulation.now
        self.perform(peer, self.peers[peer].received(sender, message, now))
