"""Two brokers with simulated disks, on virtual time, and a bridge between them that fails and restarts.

The bridge is part of *here*: it dies with it. Every packet that it reads or writes, at either end, is a step; before
each step something may fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.budget import LocalTime
from edgebridge.bridge.endpoints import BridgeCommand
from edgebridge.bridge.options import BridgeOptions
from edgebridge.frontend.bridge_session import BridgeQueueBounds, BridgeSession
from edgebridge.frontend.options import LOCAL_LISTENER, ListenerContext
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.wire.dialect import V5
from edgebridge.wire.framing import Framer, frame_bounds
from edgebridge.wire.packets import Connect, Disconnect, PubAck, PubComp, Publish, PubRec, PubRel, SubAck, Subscribe
from edgebridge.wire.packets import SubscriptionOption as Option
from edgebridge.wire.properties import Property
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.names import ClientId
from edgelab.simworld.broker import ClientLine, SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore

LARGEST = 256 << 20
LOOK = MILLISECOND  # how soon to look again whether something is on disk


class World:
    """`fail` is called before each step with its number; it may call `power_here`, `power_there` or `cut`."""

    def __init__(
        self,
        options: BridgeOptions,
        fail: Callable[[int], None] = lambda step: None,
        bounds: BridgeQueueBounds | None = None,
        gateway: str = "",
    ) -> None:
        """*gateway*: which one the remote says it is; empty: it is another broker."""
        self.bounds = bounds
        self.simulation = Simulation()
        self.here = SimulatedBroker(self.simulation, store=SimulatedStore(self.simulation))
        self.there = SimulatedBroker(self.simulation, store=SimulatedStore(self.simulation))
        self.there.gateway_identity = gateway
        self.options = options
        self.fail = fail
        self.steps = 0
        self.bridge: Bridge
        self.memory: BridgeSession
        self.sure: set[bytes] = set()
        self._met_as: str | None = None
        self._life = 0
        self._wake: Instant | None = None
        self._remote: ClientLine | None = None
        self._local: ClientLine | None = None

    # -- the bridge -----------------------------------------------------------------------------------------------

    def begin(self, asked: frozenset[str] = frozenset()) -> None:
        """The bridge begins to live. *asked*: what the remote may have of it."""
        self.memory = BridgeSession(self.here.frontend, self.options.local_client_id)
        if self._met_as not in (None, self.options.client_id):
            self.memory.part(self.simulation.now)
        self._met_as = self.options.client_id
        self.bound_session()
        self.bridge = Bridge(self.options, self.memory, lambda: 0.0, asked)
        self.bridge.set_local_time(LocalTime(1, 60), self.simulation.now)
        self.bridge.start(self.simulation.now)
        self._settle()

    def pause(self) -> None:
        self.bridge.pause(self.simulation.now)
        self._settle()

    def go_on(self) -> None:
        self.bridge.start(self.simulation.now)
        self._settle()

    def change(self, **options: Any) -> None:
        """Other settings, as SIGHUP brings them: another bridge in the place of this one."""
        self.pause()
        self._life += 1
        self._wake = None
        self.options = replace(self.options, **options)
        self.begin(self.bridge.requested_subscriptions)

    def forget(self) -> None:
        """There the session of the bridge is lost, and nothing else."""
        self.cut()
        connect_handler = self.there.frontend.connect_handler
        name = ClientId(self.options.client_id)
        session = connect_handler.sessions.get(name)
        if session is not None and session.connection is not None:
            self.there.frontend.closed(session.connection, self.simulation.now)  # a clean one ends with it
        if name in connect_handler.sessions:
            connect_handler.expire_session(connect_handler.sessions[name], self.simulation.now)

    def hours(self) -> None:
        """The clock shows hours in which the bridge is closed, for five seconds."""
        life = self._life
        for after, minute in ((0, 0), (5, 60)):
            self.simulation.at(self.simulation.now + after * SECOND, lambda minute=minute: self._clock(minute, life))

    def _clock(self, minute: int, life: int) -> None:
        if life == self._life:
            self.bridge.set_local_time(LocalTime(1, minute), self.simulation.now)
            self._settle()

    def power_here(self, is_power_cut: bool = True) -> None:
        """Here the power fails, or the process dies, and comes back at once."""
        self._life += 1
        for line in (self._remote, self._local):
            if line is not None:
                line.cut()
        self._remote = self._local = self._wake = None
        self.here.crash(is_power_cut)
        self.begin()

    def power_there(self, is_power_cut: bool = True) -> None:
        """There."""
        self.there.crash(is_power_cut)

    def cut(self) -> None:
        """The line between them breaks, and both notice."""
        if self._remote is not None:
            self._remote.cut()
            self._remote = None
            self.bridge.on_connection_lost("cut", self.simulation.now)
            self._settle()

    def _step(self) -> bool:
        """Something may fail; whether the bridge has the same life, and lines, as before."""
        self.steps += 1
        before = self._life, self._remote, self._local
        self.fail(self.steps)
        return (self._life, self._remote, self._local) == before

    def bound_session(self) -> None:
        if self.bounds is not None:
            self.memory.bound(self.bounds, self.simulation.now)

    def _settle(self) -> None:
        life = self._life
        self.bound_session()
        while True:
            self._write()
            if life != self._life:
                return
            orders = self.bridge.take_commands()
            if not orders:
                break
            for order in orders:
                self._do(order)
        due = self.bridge.next_due()
        if due is not None and due != self._wake:
            self._wake = due
            self.simulation.at(due, lambda: self._ring(life))

    def _ring(self, life: int) -> None:
        self._wake = None
        if life == self._life:
            self.bridge.fire(self.simulation.now)
            self._settle()

    def _do(self, order: BridgeCommand) -> None:
        now, life = self.simulation.now, self._life
        match order:
            case BridgeCommand.DIAL:
                self._remote = self._line(self.there, self.bridge.receive_remote, lambda: self._gone(life))
                self.bridge.on_connected(now)
                self.here._plan_turn()  # something may have to be on disk first
            case BridgeCommand.HANG_UP:
                self._write()
                self.here._plan_turn()
                line, self._remote = self._remote, None
                if line is not None:
                    line.leave()
            case BridgeCommand.OPEN:
                self.here.entrance = ListenerContext("bridge", -1, verdict=AuthenticationResult())
                self._local = self._line(self.here, self.bridge.receive_local, lambda: self._closed(life))
                self.here.entrance = LOCAL_LISTENER
                self.bridge.on_local_open(now)
            case BridgeCommand.CLOSE:
                self._write()
                line, self._local = self._local, None
                if line is not None:
                    line.leave()

    def _line(
        self, broker: SimulatedBroker, read: Callable[[bytes, Instant], None], ended: Callable[[], None]
    ) -> ClientLine:
        life, framer, opened = self._life, Framer(LARGEST), []

        def came(chunk: bytes) -> None:
            """Whole packets, one after the other."""
            framer.feed(chunk)
            while life == self._life and (frame := framer.next_frame()) is not None:
                if opened[0] not in (self._remote, self._local) or not self._step():
                    return
                first, body = frame
                read(_packet(first, body), self.simulation.now)
                self._settle()

        opened.append(broker.connect("bridge", came, ended))
        return opened[0]

    def _gone(self, life: int) -> None:
        if life == self._life and self._remote is not None and not self._remote.is_open:
            self._remote = None
            self.bridge.on_connection_lost("closed", self.simulation.now)
            self._settle()

    def _closed(self, life: int) -> None:
        if life == self._life and self._local is not None and not self._local.is_open:
            self._local = None
            self.bridge.on_local_closed(self.simulation.now)
            self._settle()

    def _write(self) -> None:
        """What the bridge says, packet by packet."""
        said: list[bytes] = []
        if self.memory.is_noted():
            said = self.bridge.take_remote_output(self.simulation.now)
        else:
            life = self._life
            self.simulation.at(self.simulation.now + LOOK, lambda: life == self._life and self._settle())
        ends = [(self._remote, said), (self._local, self.bridge.take_local_output())]
        for line, packets in ends:
            for packet in packets:
                if not self._step():
                    return
                if line is not None:
                    line.write(packet)

    # -- who publishes, and who reads ---------------------------------------------------------------------------

    def quiet(self, seconds: int = 40) -> None:
        """Let everything happen that is going to: a back-off takes a second, a retry not much more."""
        self.simulation.run_until(self.simulation.now + seconds * SECOND)

    def sleeper(self, broker: SimulatedBroker, *filters: str) -> None:
        """A reader with a lasting session asks for all, and is away."""
        client = SimulatedClient("sleeper", broker)
        client.send(Connect("sleeper", False, properties={Property.SESSION_EXPIRY_INTERVAL: 3_600}, dialect=V5))
        client.send(Subscribe(1, [Option(text, 2, False, True) for text in filters]))
        self.quiet(1)
        assert any(isinstance(packet, SubAck) for packet in client.receive())
        client.send(Disconnect())
        self.quiet(1)

    def publish(self, broker: SimulatedBroker, messages: Sequence[tuple[str, bytes, int]], **more: Any) -> None:
        """Somebody publishes them, and is sure of all before the end."""
        client = SimulatedClient("writer", broker)
        client.send(Connect("writer", dialect=V5))
        for number, (topic, payload, qos) in enumerate(messages, 1):
            client.send(Publish(topic, payload, qos, packet_id=number if qos else 0, **more))
        self.quiet(1)
        received = client.receive()
        for packet in received:
            if isinstance(packet, PubRec):
                client.send(PubRel(packet.packet_id))
        self.quiet(1)
        sure = sum(isinstance(packet, PubAck | PubComp) for packet in [*received, *client.receive()])
        assert sure == sum(qos > 0 for _, _, qos in messages)
        client.send(Disconnect())
        self.quiet(1)

    def publish_late(self, messages: Sequence[tuple[str, bytes, int]]) -> None:
        """Somebody publishes them here while anything may happen, and gets the answers that it gets."""
        if not messages:
            return
        client = SimulatedClient("late", self.here)
        client.send(Connect("late", dialect=V5))
        for number, (topic, payload, qos) in enumerate(messages, 1):
            client.send(Publish(topic, payload, qos, packet_id=number))
        self.quiet(5)
        answers = [packet for packet in client.receive() if isinstance(packet, PubAck | PubRec)]
        self.sure = {messages[packet.packet_id - 1][1] for packet in answers}

    def read(self, broker: SimulatedBroker) -> Counter[tuple[str, bytes]]:
        """What waits for the sleeper, how many times."""
        session = broker.frontend.connect_handler.sessions[ClientId("sleeper")]
        entries = [*session.inflight, *session.outbox]
        return Counter((entry.publication.topic, bytes(entry.publication.payload)) for entry in entries)


def _packet(first: int, body: bytes) -> bytes:
    """The frame again as it came."""
    length, octets = len(body), bytearray((first,))
    while True:
        length, low = length >> 7, length & 0x7F
        octets.append(low | (0x80 if length else 0))
        if not length:
            break
    packet = bytes(octets) + body
    assert frame_bounds(packet, 0, LARGEST) is not None
    return packet
