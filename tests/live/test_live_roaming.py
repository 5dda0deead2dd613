"""A durable subscriber walks over the gateways of a federation while publishers send and gateways are killed.

EDGEBROKER_WALKS is the number of walks; docs/roaming.md has the figures of longer runs. EDGEBROKER_WALKS_SEED chooses
other walks, moments and victims, and EDGEBROKER_WALKS_REPORT is a file to which the figures are appended.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from statistics import median, quantiles
from urllib.request import urlopen

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscriptionOption,
)
from edgebridge.wire.properties import Property
from edgebroker.limits import MIB

from .conftest import PATIENCE_S, Gateway

pytestmark = pytest.mark.live

WALKS = int(os.environ.get("EDGEBROKER_WALKS", "5"))
SEED = int(os.environ.get("EDGEBROKER_WALKS_SEED", "31"))
REPORT = os.environ.get("EDGEBROKER_WALKS_REPORT")
IS_RECORDED = WALKS >= 50
"""Such a run has longer pauses, and waits at its end for what might come too often."""
WALKS_PER_KILL = int(os.environ.get("EDGEBROKER_WALKS_PER_KILL", "6" if IS_RECORDED else "4"))
LATE_S = 20
"""An old session ends ten seconds after its client has walked; then what the new gateway still holds is delivered."""
PUBLISH_EVERY_S = 0.05
WINDOW = 20
"""Messages of a publisher that may wait for their acknowledgements."""

NAMES = ("gw-east-a", "gw-east-b", "gw-north", "gw-south")
SAFE = "gw-north"
"""It is never killed: docs/roaming.md promises the order of publishers whose gateways do not crash."""
PUBLISHERS = {"p1": SAFE, "p2": SAFE, "p3": "gw-east-a", "p4": "gw-east-b", "p5": "gw-south"}
FOUR_GATEWAYS = """
[federation]
name = "plant"
[factor]
tree = "a-b"
[[site]]
name = "east"
[[site]]
name = "north"
[[site]]
name = "south"
[[gateway]]
name = "gw-east-a"
site = "east"
positions = ["a"]
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-east-b"
site = "east"
positions = ["b"]
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-north"
site = "north"
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-south"
site = "south"
address = "127.0.0.1:{}"
"""


class Place:
    """A gateway of the federation that is killed and started again."""

    def __init__(self, name: str, begin: Callable[[str], Gateway], starters: ThreadPoolExecutor) -> None:
        self.name = name
        self._begin, self._starters = begin, starters
        self._starting: Future[Gateway] | None = starters.submit(begin, name)
        self.gateway: Gateway | None = None
        self.downs: list[float] = []
        """When it was killed and when it was up again, in turn."""

    def is_up(self) -> bool:
        if self._starting is not None and self._starting.done():
            self.gateway, self._starting = self._starting.result(), None
            self.downs.append(time.monotonic())
        return self._starting is None

    def kill(self) -> None:
        assert self.is_up()
        assert self.gateway is not None
        self.downs.append(time.monotonic())
        self.gateway.kill()
        self.gateway, self._starting = None, self._starters.submit(self._begin, self.name)

    def is_linked(self) -> bool:
        return all(row["up"] for row in json.loads(self.http("links"))["links"])

    def knows(self, figure: str) -> bool:
        return self.name == SAFE or figure in self.http("metrics").decode()

    def http(self, path: str) -> bytes:
        assert self.gateway is not None
        found: bytes = urlopen(f"http://127.0.0.1:{self.gateway.listening['http']['port']}/{path}", timeout=20).read()
        return found


class DurableClient:
    """A client of MQTT 5 with a session that lasts: it answers as the standard demands, and keeps its state."""

    def __init__(self, name: str, place: Place) -> None:
        self.name, self.place = name, place
        self.socket: socket.socket | None = None
        self.is_ready = False
        self.sessions = 0
        """CONNACKs that said that there was no session."""
        self.asked_at = 0.0
        self.received: list[bytes] = []
        self.published: dict[bytes, float] = {}
        """Payload -> when it was published."""
        self.acknowledged: set[bytes] = set()
        self.is_subscribed = False
        self._outgoing: dict[int, Publish | PubRel] = {}
        self._payloads: dict[int, bytes] = {}
        self._incoming: dict[int, bytes] = {}
        self._last_id = 0

    @property
    def is_settled(self) -> bool:
        return self.is_ready and not self._outgoing

    def hang_up(self) -> None:
        """Lose the connection without DISCONNECT."""
        if self.socket is not None:
            self.socket.close()
        self.socket, self.is_ready = None, False

    def connect(self) -> None:
        self.hang_up()
        gateway = self.place.gateway
        if gateway is None:
            return
        with suppress(OSError):
            self.socket = socket.create_connection((gateway.host, gateway.port), timeout=PATIENCE_S)
            self._framer = Framer(MIB)
            self.asked_at = time.monotonic()
            lasting = {Property.SESSION_EXPIRY_INTERVAL: 3_600}
            self._send(Connect(self.name, clean_start=False, properties=dict(lasting)))

    def subscribe(self, *filters: str) -> None:
        self._send(Subscribe(self._next_id(), [SubscriptionOption(each, 2) for each in filters]))

    def publish(self) -> None:
        """Publish the next message, with QoS 1 and 2 in turn, unless too many wait for their acknowledgements."""
        if self.is_ready and len(self._outgoing) < WINDOW:
            payload = b"%s/%d" % (self.name.encode(), len(self.published))
            self.published[payload] = time.monotonic()
            packet_id = self._next_id()
            message = Publish(f"t/{self.name}", payload, qos_of(payload), packet_id=packet_id)
            self._outgoing[packet_id], self._payloads[packet_id] = message, payload
            self._send(message)

    def read(self) -> None:
        """Handle what has arrived."""
        assert self.socket is not None
        try:
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.hang_up()
            return
        self._framer.feed(data)
        while (frame := self._framer.next_frame()) is not None:
            self._handle(decode_packet(*frame, V5))

    def _handle(self, packet: Packet) -> None:
        match packet:
            case ConnAck(is_present, reason):
                if reason:
                    self.hang_up()
                else:
                    self._connected(is_present)
            case Publish(_, payload, 1, packet_id=packet_id):
                self.received.append(payload)
                self._send(PubAck(packet_id))
            case Publish(_, payload, 2, packet_id=packet_id):
                self._incoming.setdefault(packet_id, payload)
                self._send(PubRec(packet_id))
            case PubRel(packet_id):
                if packet_id in self._incoming:
                    self.received.append(self._incoming.pop(packet_id))
                self._send(PubComp(packet_id))
            case PubAck(packet_id) | PubComp(packet_id):
                self._outgoing.pop(packet_id, None)
                self.acknowledged.add(self._payloads.pop(packet_id))
            case PubRec(packet_id):
                self._outgoing[packet_id] = PubRel(packet_id)
                self._send(PubRel(packet_id))
            case SubAck():
                self.is_subscribed = True

    def _connected(self, is_present: bool) -> None:
        self.is_ready = True
        self.sessions += not is_present
        for message in [*self._outgoing.values()]:
            if isinstance(message, Publish):
                message.dup = True
            self._send(message)

    def _send(self, packet: Packet) -> None:
        if self.socket is not None:
            with suppress(OSError):  # `read` sees the end, too
                self.socket.sendall(encode_packet(packet, V5))

    def _next_id(self) -> int:
        self._last_id = self._last_id % 65_535 + 1
        return self._last_id


def qos_of(payload: bytes) -> int:
    return 1 + int(payload.split(b"/")[1]) % 2


class Plant:
    """Four gateways of three sites, five publishers, and the subscriber that walks."""

    def __init__(self, begin: Callable[[str], Gateway], starters: ThreadPoolExecutor) -> None:
        self.random = Random(SEED)
        self.places = {name: Place(name, begin, starters) for name in NAMES}
        self.wait_for(lambda: all(place.is_up() for place in self.places.values()), clients=())
        for place in self.places.values():
            self.wait_for(place.is_linked, clients=())
        self.publishers = [DurableClient(name, self.places[place]) for name, place in PUBLISHERS.items()]
        self.walker = DurableClient("walker", self.places[SAFE])
        self.clients = [*self.publishers, self.walker]
        self.is_publishing = False
        self.kills = 0
        self.last_trouble = 0.0
        self.waited: list[float] = []
        """Seconds from CONNECT to CONNACK where the session was at another gateway and all gateways were up."""
        self._publish_at = 0.0
        for client in self.clients:
            client.connect()
        self.wait_for(lambda: all(client.is_ready for client in self.clients))
        self.walker.subscribe("t/#")
        self.wait_for(lambda: self.walker.is_subscribed)
        known = f'edgebroker_directory_sessions{{gateway="{SAFE}"}} 3'  # gateways tell each other once a second
        for place in self.places.values():
            self.wait_for(partial(place.knows, known))

    def wait_for(self, holds: Callable[[], bool], clients: tuple[DurableClient, ...] | None = None) -> None:
        until = time.monotonic() + 2 * PATIENCE_S
        while not holds():
            assert time.monotonic() < until, "it does not come to pass"
            self.run(0.02, clients)

    def run(self, seconds: float, clients: tuple[DurableClient, ...] | None = None) -> None:
        """Let the clients do what they do for so long."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            at_work = self.clients if clients is None else clients
            lines = {each.socket: each for each in at_work if each.socket is not None}
            for line in select.select([*lines], [], [], min(0.02, until - now))[0]:
                lines[line].read()
            up = [place.is_up() for place in self.places.values()]  # each of them takes note
            if not all(up):
                self.last_trouble = now
            for client in at_work:
                if client.socket is None and client.place.is_up():
                    client.connect()
            if clients is None and self.is_publishing and now >= self._publish_at:
                self._publish_at = now + PUBLISH_EVERY_S
                for publisher in self.publishers:
                    publisher.publish()

    def walk(self) -> None:
        """Let the walker connect to another gateway; it goes to yet another one if that is down."""
        others = [place for place in self.places.values() if place is not self.walker.place]
        self.wait_for(lambda: any(place.is_up() for place in others))
        self.walker.place = self.random.choice([place for place in others if place.is_up()])
        self.walker.connect()

    def walk_in(self) -> None:
        """Wait until the walker is connected."""
        asked = self.walker.asked_at
        self.wait_for(lambda: self.walker.is_ready)
        if self.walker.asked_at == asked and self.last_trouble < asked - 3:
            self.waited.append(time.monotonic() - asked)

    def kill_one(self) -> None:
        victims = [place for name, place in self.places.items() if name != SAFE and place.is_up()]
        if victims:
            self.random.choice(victims).kill()
            self.kills += 1

    def has_all(self) -> bool:
        heard = set(self.walker.received)
        return all(one.is_settled and heard.issuperset(one.acknowledged) for one in self.publishers)

    def lost(self) -> list[bytes]:
        heard = set(self.walker.received)
        return [payload for one in self.publishers for payload in one.published if payload not in heard]

    def doubled(self) -> list[bytes]:
        heard: set[bytes] = set()
        found = []
        for payload in self.walker.received:
            if payload in heard and qos_of(payload) == 2:
                found.append(payload)
            heard.add(payload)
        return found

    def disordered(self) -> list[bytes]:
        """What came behind a later message of the same QoS of a publisher whose gateway is not killed.

        Not what may have been under way to a gateway that died: docs/promises.md promises no order for that.
        """
        published = {payload: at for one in self.publishers for payload, at in one.published.items()}
        downs = [
            span for place in self.places.values() for span in zip(place.downs[1::2], place.downs[2::2], strict=False)
        ]
        last: dict[tuple[bytes, int], int] = {}
        found = []
        for payload in dict.fromkeys(self.walker.received):
            name, number = payload.split(b"/")
            key = (name, qos_of(payload))
            is_late = int(number) < last.get(key, -1) and PUBLISHERS[name.decode()] == SAFE
            if is_late and not any(killed - 1 < published[payload] < up + 1 for killed, up in downs):
                found.append(payload)
            last[key] = max(int(number), last.get(key, -1))
        return found


@pytest.fixture
def plant(tmp_path: Path, start_gateway: Callable[..., Gateway]) -> Plant:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in NAMES]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        topology = tmp_path / "four.toml"
        topology.write_text(FOUR_GATEWAYS.format(*(one.getsockname()[1] for one in taken)))

    def begin(name: str) -> Gateway:
        settings = tmp_path / f"{name}.toml"
        # A client waits for its session as long as a gateway that was killed may take to start on a busy machine.
        overlay = f'[overlay]\ntopology = "{topology}"\nsession_wait_ms = 60000\n'
        ports = "[listener]\nport = 0\n[http]\nport = 0\n"
        settings.write_text(f'[node]\nname = "{name}"\n{ports}[data]\ndir = "{tmp_path / name}"\n{overlay}')
        return start_gateway("--config", str(settings))

    return Plant(begin, ThreadPoolExecutor(4))


def test_a_subscriber_that_walks_gets_everything_once_and_in_order_while_gateways_are_killed(plant: Plant) -> None:
    plant.is_publishing = True
    pauses = (0.05, 0.2, 0.5, 1.0, 2.0) if IS_RECORDED else (0.05, 0.2)
    for number in range(WALKS):
        plant.walk()
        if number % WALKS_PER_KILL == WALKS_PER_KILL // 2:
            plant.run(plant.random.choice((0.0, 0.005, 0.02, 0.1, 0.3)))
            plant.kill_one()
        plant.walk_in()
        plant.run(plant.random.choice(pauses))
    plant.is_publishing = False
    with suppress(AssertionError):  # what is lost is told below
        plant.wait_for(plant.has_all)
    if IS_RECORDED:
        plant.run(LATE_S)
    report(plant)
    assert [one.name for one in plant.clients if one.sessions != 1] == []
    assert (plant.lost(), plant.doubled(), plant.disordered()) == ([], [], [])
    assert plant.kills == (WALKS + WALKS_PER_KILL // 2 - 1) // WALKS_PER_KILL


def report(plant: Plant) -> None:
    """Append the figures to the file that was asked for."""
    if REPORT is None:
        return
    figures: dict[str, object] = {
        "walks": WALKS,
        "seed": SEED,
        "kills": plant.kills,
        "published": sum(len(one.published) for one in plant.publishers),
        "lost": len(plant.lost()),
        "doubled": len(plant.doubled()),
        "disordered": len(plant.disordered()),
        "sessions": {one.name: one.sessions for one in plant.clients},
        "waits": len(plant.waited),
    }
    if len(plant.waited) > 1:
        figures["median_ms"] = round(1e3 * median(plant.waited), 1)
        figures["p99_ms"] = round(1e3 * quantiles(plant.waited, n=100)[98], 1)
    with Path(REPORT).open("a") as file:
        file.write(json.dumps(figures) + "\n")
