"""A series of events over a link delivers the same as single events do, and every copy has one fate."""

from __future__ import annotations

from random import Random

import pytest

from edgebridge.frontend.federation.fast_path import FederationFastPath
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PubAck, Publish, Subscribe, SubscriptionOption
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND
from edgebroker.overlay.messages import EventSeries, Forward
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.simulation import Simulation

READERS = {"near": "a.0", "beside": "b.0", "far": "a.1", "farthest": "b.1", "third": "b.2"}
FILTERS = ("#", "t/0", "t/1", "t/+", "$filter/v%3E50/t/0", "$filter/v%3E50/#")
CHUNKS = 20
WORLDS = 2


class World:
    """A federation with readers of all kinds and two publishers, driven by *seed* alone."""

    def __init__(self, seed: int, is_cut: bool) -> None:
        self.chance = Random(seed)
        self.published = 0
        self.heard: dict[str, list[tuple[str, bytes, int]]] = {name: [] for name in READERS}
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(self.simulation, Topology.product(Scot(Factor.parse("a-b"), 3)))
        self.gateways.wait_for_links()
        self.is_cut = is_cut
        self.readers = {name: self._client(name, home) for name, home in READERS.items()}
        for reader in self.readers.values():
            self._subscribe(reader)
        self.publishers = [self._client("ann", "a.0"), self._client("bob", "b.1")]

    def _client(self, name: str, home: str) -> SimulatedClient:
        client = SimulatedClient(name, self.gateways[home])
        client.send(Connect(name, dialect=self.chance.choice([V311, V5])))
        self._pass(50)
        return client

    def _pass(self, milliseconds: int) -> None:
        self.simulation.run_until(self.simulation.now + milliseconds * MILLISECOND)

    def _subscribe(self, client: SimulatedClient) -> None:
        wanted = self.chance.choice(FILTERS)
        no_local = client.dialect is V5 and self.chance.random() < 0.2
        option = SubscriptionOption(wanted, self.chance.randrange(2), no_local=no_local)
        client.send(Subscribe(self.published % 60_000 + 1, [option]))
        self._pass(200)

    def _chunk(self, client: SimulatedClient) -> bytes:
        """Rows of equal messages and others, as a busy client writes them at once."""
        packets = bytearray()
        for _ in range(self.chance.randrange(1, 6)):
            topic, qos = f"t/{self.chance.randrange(3)}", self.chance.choice([0, 0, 0, 1])
            retain = not qos and not self.is_cut and self.chance.random() < 0.1
            width = self.chance.choice([0, 40, 40, 300])
            for _ in range(self.chance.choice([1, 2, 30, 200])):
                self.published += 1
                text = f'{{"v":{self.chance.randrange(10, 100)},"p":"{client.name}","n":{self.published:08d}}}'.ljust(
                    width
                )
                payload = text.encode() if width else b""
                identifier = self.published % 60_000 + 1 if qos else 0
                packets += encode_packet(Publish(topic, payload, qos, retain, packet_id=identifier), client.dialect)
        return bytes(packets)

    def live(self) -> None:
        for at in range(CHUNKS):
            client = self.chance.choice(self.publishers)
            chunk = self._chunk(client)
            cut = self.chance.randrange(len(chunk))
            client.write(chunk[:cut])
            client.write(chunk[cut:])
            self._pass(self.chance.choice([1, 300]))
            if self.chance.random() < 0.2:
                self._pass(300)  # what is under way reaches those who wanted it then
                self._subscribe(self.chance.choice(list(self.readers.values())))
            if self.is_cut and at % 10 == 5:
                self.gateways.road("a.0", "a.1").shake()
            self._read()
        for _ in range(30):
            self._pass(300)
            self._read()

    def _read(self) -> None:
        for client in self.publishers:
            client.receive()
        for name, reader in self.readers.items():
            for packet in reader.receive():
                if isinstance(packet, Publish):
                    self.heard[name].append((packet.topic, packet.payload, packet.qos))
                    if packet.qos:
                        reader.send(PubAck(packet.packet_id))

    def check_books(self) -> None:
        for gateway in self.gateways:
            ledger = gateway.ledger
            ended = ledger.delivered + ledger.expired + sum(ledger.dropped.values())
            assert ledger.matched == ended + ledger.queued
            assert ledger.queued == gateway.waiting, gateway.name


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[EventSeries]:
    """The series that were not taken apart where they arrived."""
    found: list[EventSeries] = []
    came = FederationFastPath.receive

    def count(self, peer, message, now):
        has_come = came(self, peer, message, now)
        if has_come and isinstance(message, EventSeries):
            found.append(message)
        return has_come

    monkeypatch.setattr(FederationFastPath, "receive", count)
    return found


def rows(heard: list[tuple[str, bytes, int]]) -> dict[tuple[str, bytes], list[tuple[bytes, int]]]:
    """What was heard by topic and publisher: only there order is promised."""
    found: dict[tuple[str, bytes], list[tuple[bytes, int]]] = {}
    for topic, payload, qos in heard:
        found.setdefault((topic, payload.rstrip()[8:17]), []).append((payload, qos))
    return found


def repeat(seed: int) -> str:
    return f"EDGEBROKER_TEST_SEED={seed} .venv/bin/pytest tests/laws/test_federation_fast_path.py"


@pytest.mark.slow
def test_series_bring_what_single_events_would(
    seed: int, crossed: list[EventSeries], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(WORLDS):
        together = World(seed + number, is_cut=False)
        together.live()
        together.check_books()
        with monkeypatch.context() as patched:
            patched.setattr(FederationFastPath, "route_of", lambda *_: None)
            patched.setattr(FederationFastPath, "receive", lambda *_: False)
            singly = World(seed + number, is_cut=False)
            singly.live()
        singly.check_books()
        assert together.published == singly.published
        for name in READERS:
            assert rows(together.heard[name]) == rows(singly.heard[name]), (repeat(seed + number), name)
    for qos in (0, 1):
        assert sum(series.count for series in crossed if series.first.qos == qos) > 500, "hardly anything crossed"


@pytest.mark.slow
def test_series_are_not_doubled_nor_turned_around_where_links_break(seed: int, crossed: list[EventSeries]) -> None:
    for number in range(WORLDS):
        world = World(seed + number, is_cut=True)
        world.live()
        world.check_books()
        for name, heard in world.heard.items():
            last: dict[tuple[str, bytes], bytes] = {}
            bare = [each for each in heard if not each[2] and each[1]]
            assert len(bare) == len(set(bare)), (repeat(seed + number), name)
            for topic, payload, _ in bare:
                publisher, mark = payload.rstrip()[8:17], payload.rstrip()[-9:-1]
                assert last.get((topic, publisher), b"") < mark, (repeat(seed + number), name, topic)
                last[topic, publisher] = mark
    assert {series.first.qos for series in crossed} == {0, 1}


def test_a_series_of_a_topic_that_no_client_here_may_write_goes_the_long_way() -> None:
    """A gateway of an older version lets its clients write it; an error would give up all that came with it."""
    gateway = World(1, is_cut=False).gateways["a.0"]
    federation_path = gateway.overlay.fast_path
    assert federation_path is not None
    first = Forward(EventHeader("a.1", 1, 0, 2), "t/\x01", b"ab", 0, False, "p")
    assert federation_path.receive("a.1", EventSeries(first, 2), 0) is False
