"""Chunks between gateways, on virtual time: each enters a site once, however many want it, also while uplinks break."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from edgebridge.frontend.federation.files import FederatedFiles
from edgebridge.frontend.federation.join import attach_files
from edgebridge.frontend.file_service import AnswerStatus, ChunkReader, DiskOutcome, FileService
from edgebridge.frontend.options import FrontendHost
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Connect, Publish
from edgebroker.digests import sha256
from edgebroker.federation.chunk_exchange import (
    ANSWERED_MAX,
    BAD_MAX,
    LOOK_FOR,
    NOBODY,
    ChunkExchange,
    ExchangeBusy,
    ExchangeKind,
    ExchangeMessage,
    GiveUpChunk,
    ReadForPeer,
    SitePaths,
    TakeChunk,
    answer_without_files,
)
from edgebroker.files.chunk_store import ChunkStore, ReadChunk, RemoveChunk, WriteChunk
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.limits import CHUNK_BYTES_MAX, CHUNK_FETCHES_MAX, CHUNK_FETCHES_UNDER_WAY, CHUNK_WRITE_BYTES_MAX
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.settings import Settings
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.gateways import SimulatedGateway, SimulatedGateways
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation

from ..support.topologies import ONE_SITE

CHUNKS = [Random(number).randbytes(3_000) for number in range(12)]
NAMES = [sha256(chunk).digest() for chunk in CHUNKS]


class SimulatedChunks(FrontendHost):
    """The folder of chunks of one gateway, which outlives a crash; each batch takes a millisecond."""

    def __init__(self, gateway: SimulatedGateway, bytes_max: int) -> None:
        self.gateway = gateway
        self.bytes_max = bytes_max
        self.files: dict[bytes, bytes] = {}
        self.is_checked = True
        """Whether what is read has to have the right hash."""
        self.start()

    def start(self) -> None:
        """Begin a run of the gateway."""
        frontend, simulation = self.gateway.frontend, self.gateway.simulation
        store: ChunkStore[ChunkReader] = ChunkStore(self.bytes_max)
        store.restore([(name, len(data)) for name, data in self.files.items()])
        self.service = FileService(store, frontend.events, self)
        frontend.publish_handler.file_service = self.service
        run = self.gateway.runs
        self.federated: FederatedFiles = attach_files(frontend, run, simulation.now)
        self.gateway.turn()

    def file_work_due(self) -> None:
        self.gateway.simulation.after(MILLISECOND, self._work)

    def _work(self) -> None:
        service = self.gateway.frontend.publish_handler.file_service
        if self.gateway.is_off or service is None or service is not self.service:
            return
        outcomes = []
        for work in service.store.take_work():
            match work:
                case ReadChunk(name):
                    data = self.files.get(name, b"")
                    outcomes.append(
                        DiskOutcome(work, data if sha256(data).digest() == name or not self.is_checked else b"")
                    )
                case WriteChunk(name, data):
                    is_bad = sha256(data).digest() != name
                    if not is_bad:
                        self.files[name] = data
                    outcomes.append(DiskOutcome(work, failure="bad" if is_bad else "", is_mismatch=is_bad))
                case RemoveChunk(name):
                    self.files.pop(name, None)
        if outcomes:
            service.work_done(outcomes, self.gateway.simulation.now)
            self.gateway.turn()


class FileSites:
    """Two sites of two gateways: a.0 and b.0, a.1 and b.1. The chunks are at a.0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_max: int = 1 << 20) -> None:
        self.sent: Counter[tuple[int, int]] = Counter()
        """CHUNK messages that arrived, by the clusters of sender and receiver."""
        self.simulation = Simulation(7)
        topology = Topology.product(Scot(Factor.parse("a-b"), 2))
        self.gateways = SimulatedGateways(self.simulation, topology, is_stored=True)
        self.clusters = {one.number: one.cluster for one in topology.gateways}
        received, sent, clusters = ChunkExchange.received, self.sent, self.clusters

        def watched(exchange: ChunkExchange, sender: int, payload: bytes, now: int) -> object:
            if payload[0] == ExchangeKind.CHUNK:
                own = next(
                    one.overlay.peers.gateway.number
                    for one in self.gateways
                    if self.chunks[one.name].federated.exchange is exchange
                )
                sent[clusters[sender], clusters[own]] += 1
            return received(exchange, sender, payload, now)

        monkeypatch.setattr(ChunkExchange, "received", watched)
        self.chunks = {one.name: SimulatedChunks(one, bytes_max) for one in self.gateways}
        self.chunks["a.0"].files |= dict(zip(NAMES, CHUNKS, strict=True))
        self.chunks["a.0"].start()
        self.gateways.wait_for_links()
        self.devices: list[FileDevice] = []

    def run(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now + int(seconds * SECOND))

    def device(self, gateway: str) -> FileDevice:
        device = FileDevice(f"device-{len(self.devices)}", self.gateways[gateway])
        self.devices.append(device)
        return device

    @property
    def crossings(self) -> int:
        return sum(count for (sender, receiver), count in self.sent.items() if sender != receiver)


class FileDevice:
    """Asks for all chunks, each in two parts, and every few seconds again for what it does not have."""

    def __init__(self, name: str, gateway: SimulatedGateway) -> None:
        self.simulation = gateway.simulation
        self.got: dict[str, bytes] = {}
        self.refusals: list[int] = []
        self.client = SimulatedClient(name, gateway, on_packet=self.on_packet)
        self.ask()

    def ask(self) -> None:
        if self.is_complete:
            return
        self.simulation.after(5 * SECOND, self.ask)
        if not self.client.is_connected:
            self.client.send(Connect(self.client.name, dialect=V5))
        for name in NAMES:
            for offset in (0, 1_500):
                if f"{name.hex()}/{offset}/1500" not in self.got:
                    self.client.send(Publish(f"$file/{name.hex()}/{offset}/1500"))

    def on_packet(self, packet: object) -> None:
        if isinstance(packet, Publish):
            if packet.payload[0] == AnswerStatus.OK:
                self.got[packet.topic.removeprefix("$file/answer/")] = packet.payload[1:]
            else:
                self.refusals.append(packet.payload[0])

    @property
    def is_complete(self) -> bool:
        wanted = {
            f"{name.hex()}/{offset}/1500": chunk[offset : offset + 1_500]
            for name, chunk in zip(NAMES, CHUNKS, strict=True)
            for offset in (0, 1_500)
        }
        return self.got == wanted


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> FileSites:
    return FileSites(monkeypatch)


def test_each_chunk_enters_a_site_once_however_many_want_it(sites: FileSites) -> None:
    for gateway in ("a.1", "b.1", "b.0", "a.0") * 3:
        sites.device(gateway)
    sites.run(4)
    assert all(device.is_complete for device in sites.devices)
    assert sites.crossings == len(CHUNKS)
    assert sum(sites.sent.values()) <= 3 * len(CHUNKS), "one for each gateway that wants it"
    assert not any(device.refusals for device in sites.devices)
    links = [link for one in sites.gateways for link in one.overlay.links]
    assert sum(link.figures(TrafficClass.BULK).left for link in links) >= 3 * len(CHUNKS)
    assert {one.overlay.peers.gateway.number for one in sites.gateways} == {
        number for chunks in sites.chunks.values() for number in chunks.federated.exchange.mates
    }


def test_devices_that_connect_again_and_again_leave_nothing_behind(sites: FileSites) -> None:
    for one, other in (("a.0", "a.1"), ("b.0", "b.1")):
        sites.gateways.road(one, other).cut()
    device = sites.device("b.1")
    for _ in range(8):
        sites.run(5)
        assert sites.chunks["b.1"].service.awaited <= 2 * len(CHUNKS)
        device.client.cut()
    sites.run(2 * LOOK_FOR / SECOND)
    assert sites.chunks["b.1"].service.awaited <= 2 * len(CHUNKS)


def test_gateways_of_a_site_know_each_other_after_a_restart(sites: FileSites) -> None:
    sites.gateways["b.1"].crash()
    sites.chunks["b.1"].start()
    sites.run(60)
    mates = {name: len(chunks.federated.exchange.mates) for name, chunks in sites.chunks.items()}
    assert mates == dict.fromkeys(sites.chunks, 1)


def test_an_uplink_that_is_down_delays_chunks_and_doubles_none(sites: FileSites) -> None:
    roads = [sites.gateways.road("a.0", "a.1"), sites.gateways.road("b.0", "b.1")]
    for road in roads:
        road.conditions = RoadConditions((400 * MILLISECOND, 400 * MILLISECOND))
    devices = [sites.device("a.1"), sites.device("b.1")]
    sites.run(1.45)  # a question, an offer and a request take 1.2 s
    assert sum(chunks.federated.exchange.sent for chunks in sites.chunks.values()) == CHUNK_FETCHES_UNDER_WAY
    for road in roads:
        road.cut()
    sites.run(70)
    assert not any(device.is_complete for device in devices)
    for road in roads:
        road.mend()
    sites.run(90)
    assert all(device.is_complete for device in devices)
    assert sites.crossings == len(CHUNKS)


@pytest.mark.parametrize("victim", ["a.0", "a.1", "b.1"])
def test_a_gateway_that_crashes_costs_no_chunk_but_what_was_on_its_way(sites: FileSites, victim: str) -> None:
    devices = [sites.device("a.1"), sites.device("b.1")]
    sites.run(0.03)
    sites.gateways[victim].crash()
    sites.chunks[victim].start()
    sites.run(200)
    assert all(device.is_complete for device in devices)
    assert len(CHUNKS) <= sites.crossings <= len(CHUNKS) + 2 * CHUNK_FETCHES_UNDER_WAY


def test_what_nobody_has_is_refused_and_found_when_it_is_there(sites: FileSites) -> None:
    lost = sites.chunks["a.0"].files.pop(NAMES[0])
    sites.gateways["a.0"].crash()
    sites.chunks["a.0"].start()
    device = sites.device("b.1")
    sites.run(2 * LOOK_FOR / SECOND + 5)
    assert len(device.got) == 2 * (len(CHUNKS) - 1)
    assert set(device.refusals) == {AnswerStatus.NOT_STORED}
    sites.chunks["b.0"].files[NAMES[0]] = lost
    sites.chunks["b.0"].start()
    sites.run(2 * LOOK_FOR / SECOND + 10)
    assert device.is_complete


@pytest.mark.parametrize("is_checked", [True, False], ids=["found by its gateway", "sent all the same"])
def test_a_chunk_that_is_damaged_at_its_source_is_given_up(sites: FileSites, is_checked: bool) -> None:
    sites.chunks["a.0"].files[NAMES[0]] = b"other bytes"
    sites.chunks["a.0"].is_checked = is_checked
    device = sites.device("a.1")
    sites.run(2 * LOOK_FOR / SECOND + 5)  # its owner looks for it, then the gateway itself
    assert len(device.got) == 2 * (len(CHUNKS) - 1)
    assert AnswerStatus.NOT_STORED in device.refusals
    assert sites.crossings <= len(CHUNKS) - 1 + (0 if is_checked else 2 * BAD_MAX)
    assert all(NAMES[0] not in sites.chunks[name].files for name in ("a.1", "b.1", "b.0"))


def test_a_gateway_with_little_room_serves_its_devices_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = FileSites(monkeypatch, bytes_max=len(CHUNKS) * 3_000)
    for name in ("a.1", "b.1"):
        sites.chunks[name].bytes_max = 3 * 3_000
        sites.chunks[name].start()
    device = sites.device("b.1")
    sites.run(120)
    assert device.is_complete
    assert all(chunks.service.store.held_bytes <= chunks.bytes_max for chunks in sites.chunks.values())


def test_another_topology_loses_nothing_that_is_wanted(sites: FileSites) -> None:
    device = sites.device("b.1")
    sites.run(0.02)
    topology = Topology.product(Scot(Factor.parse("a-b"), 2))
    for gateway in sites.gateways:
        gateway.change_topology(topology)
    sites.run(120)
    assert device.is_complete


def test_a_gateway_that_takes_files_no_more_holds_nobody_up(sites: FileSites) -> None:
    sites.gateways["a.1"].overlay.gateway_events.files = None  # as after a restart with files.bytes_max 0
    device = sites.device("b.1")
    sites.run(30)
    assert device.is_complete


def test_chunks_that_nobody_asked_for_fill_no_memory(sites: FileSites) -> None:
    chunks = sites.chunks["b.1"]
    chunks.service.store.bytes_max = 1 << 30
    data = bytes(CHUNK_BYTES_MAX)
    kept = CHUNK_WRITE_BYTES_MAX // CHUNK_BYTES_MAX
    for number in range(kept + 3):
        body = message(ExchangeKind.CHUNK, number.to_bytes(32)) + data
        [effect] = chunks.federated.exchange.received(1, body, 0)
        assert isinstance(effect, TakeChunk)
        chunks.service.take_chunk(effect.sha256, effect.data, effect.is_wanted, 0)
    assert (len(chunks.service.store.take_work()), chunks.service.unwanted) == (kept, 3)


# -- the exchange alone ----------------------------------------------------------------------------------------------

OWN, MATE, FAR = 1, 2, 65
NAME = NAMES[0]


def exchange(holds: Callable[[bytes], bool] = lambda sha256: False, away: set[int] | None = None) -> ChunkExchange:
    is_reachable = (set() if away is None else away).isdisjoint
    return ChunkExchange(SitePaths(OWN, lambda gateway: gateway < 64, lambda one: is_reachable((one,))), 5, holds)


def message(kind: ExchangeKind, rest: bytes = NAME) -> bytes:
    return bytes((kind,)) + rest


def fetch(number: int, sha256: bytes = NAME, run: int = 9) -> bytes:
    return bytes((ExchangeKind.FETCH,)) + run.to_bytes(4) + number.to_bytes(4) + sha256


def test_who_offers_first_is_asked_and_for_the_next_chunk_at_once() -> None:
    one = exchange()
    assert one.want(NAME, 0) == [ExchangeMessage(NOBODY, message(ExchangeKind.QUESTION), True)]
    assert one.want(NAME, 0) == []
    [asked] = one.received(FAR, message(ExchangeKind.OFFER), 1)
    assert isinstance(asked, ExchangeMessage)
    assert (asked.gateway, asked.payload[0], asked.payload[9:]) == (FAR, ExchangeKind.FETCH, NAME)
    assert one.received(FAR + 1, message(ExchangeKind.OFFER), 2) == []
    assert one.received(FAR, message(ExchangeKind.CHUNK, NAME + b"data"), 3) == [TakeChunk(NAME, b"data", True)]
    assert one.arrived(NAME, 4) == []
    [next_one] = one.want(NAMES[1], 5)
    assert isinstance(next_one, ExchangeMessage)
    assert (next_one.gateway, next_one.payload[0]) == (FAR, ExchangeKind.FETCH)


def test_a_repetition_is_answered_once_and_a_new_request_again() -> None:
    one = exchange(holds=lambda sha256: True)
    assert one.received(FAR, fetch(1), 0) == [ReadForPeer(FAR, NAME)]
    assert one.received(FAR, fetch(1), 0) == []
    assert one.received(FAR, fetch(2), 0) == [ReadForPeer(FAR, NAME)]
    assert one.received(FAR, fetch(1, run=8), 0) == [ReadForPeer(FAR, NAME)]
    for number in range(3, ANSWERED_MAX + 3):
        one.received(FAR, fetch(number), 0)
    assert one.received(FAR, fetch(1), 0) == [ReadForPeer(FAR, NAME)], "memory is bounded"


def test_no_more_is_under_way_or_wanted_than_may_be() -> None:
    one = exchange()
    names = [number.to_bytes(32) for number in range(CHUNK_FETCHES_MAX)]
    begun = [bool(one.want(name, 0)) for name in names]
    assert sum(begun) == CHUNK_FETCHES_UNDER_WAY
    with pytest.raises(ExchangeBusy):
        one.want(NAME, 0)
    assert len(one.arrived(names[0], 0)) == 1, "the next one begins"
    given_up = [effect for effect in one.fire(LOOK_FOR) if isinstance(effect, GiveUpChunk)]
    assert len(given_up) == CHUNK_FETCHES_UNDER_WAY


def test_whoever_is_no_owner_and_has_nothing_says_so() -> None:
    one = exchange()
    assert one.received(FAR, fetch(1), 0) == [ExchangeMessage(FAR, message(ExchangeKind.DENIAL))]
    assert one.received(FAR, message(ExchangeKind.QUESTION), 0) == []
    assert one.received(FAR, b"\x01\x01", 0) == []
    assert one.mates == set()


def test_a_gateway_that_asks_for_a_chunk_that_was_given_up_hears_so() -> None:
    one = exchange(away={FAR})
    one.received(MATE, message(ExchangeKind.HELLO, b"\0"), 0)
    name = next(name for name in NAMES if one.owner_of(name) == OWN)
    one.received(MATE, fetch(1, name), 0)
    for _ in range(BAD_MAX):
        one.arrived_damaged(name, 0)
    denial = ExchangeMessage(MATE, message(ExchangeKind.DENIAL, name))
    assert one.received(MATE, fetch(2, name), 0) == [denial]


def test_a_gateway_without_files_answers_requests_alone() -> None:
    assert answer_without_files(fetch(1)) == message(ExchangeKind.DENIAL)
    for payload in (b"", fetch(1)[:-1], fetch(1) + b"1", message(ExchangeKind.QUESTION), message(ExchangeKind.DENIAL)):
        assert answer_without_files(payload) == b""


def test_mates_that_say_hello_share_the_chunks_and_those_that_are_away_do_not() -> None:
    away = {MATE}
    one = exchange(away=away)
    away.clear()
    assert one.start() == [ExchangeMessage(NOBODY, b"\x01\x01")]
    assert one.received(MATE, b"\x01\x01", 0) == [ExchangeMessage(MATE, b"\x01\x00")]
    assert one.received(MATE, b"\x01\x00", 0) == []
    names = [number.to_bytes(32) for number in range(100)]
    assert 25 < sum(one.owner_of(name) == MATE for name in names) < 75
    away.add(MATE)
    assert {one.owner_of(name) for name in names} == {OWN}


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", b"\x09", b"\x02", b"\x02short", message(ExchangeKind.OFFER) + b"x", fetch(1)[:-1], fetch(1) + b"x"],
)
def test_what_cannot_be_read_is_counted(payload: bytes) -> None:
    one = exchange()
    assert one.received(FAR, payload, 0) == []
    assert one.unreadable == 1


# -- a gateway as its process makes it ---------------------------------------------------------------------------------


SETTINGS = """
[node]
name = "gw-here"
[listener]
port = 0
[data]
dir = "data"
[overlay]
topology = "topology.toml"
port = {}
[files]
bytes_max = 1000
"""


def test_a_gateway_says_hello_when_its_federation_has_started_and_keeps_that_for_mates_that_are_away(
    tmp_path: Path, free_port: int
) -> None:
    (tmp_path / "topology.toml").write_text(ONE_SITE.format(free_port, 1))
    text = SETTINGS.format(free_port)

    async def play() -> int:
        gateway = Gateway(Settings.parse(text, "gateway.toml", tmp_path), tell=lambda line: None)
        await gateway.start()
        assert gateway.peer_manager is not None
        member = gateway.peer_manager.overlay
        assert member.gateway_events.files is not None
        waiting = sum(len(link.outbox.events()) for link in member.links)
        await gateway.stop()
        return waiting

    assert asyncio.run(play()) >= 1
    assert (tmp_path / "data/files").is_dir()
