"""Long outboxes on the disk: what a peer gets, in which order, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from edgebridge.frontend.federation import link_setup
from edgebridge.session.journal.dump import describe
from edgebridge.session.journal.state import JournalState
from edgebridge.wire.dialect import V5
from edgebroker.federation.options import FederationOptions
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.limits import MIB
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.class_queue import ClassQueue
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.storage.journal.page_files import page_name, page_number
from edgebroker.storage.journal.recovery import recover
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import unbalanced
from edgelab.simworld.gateways import ROAD, SimulatedGateway, SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import OPTIONS

PAGE = 10
TOPOLOGY = Topology.product(Scot(Factor.parse("a"), 2))


class Sites:
    """Two gateways with pages of ten messages. A reader at one asks for `t/#`, and their road is cut."""

    def __init__(self, road: RoadConditions = ROAD, **options: object) -> None:
        self.simulation = Simulation(3)
        options["journal_options"] = replace(OPTIONS, page_messages=PAGE, snapshot_min_bytes=MIB)
        options["federation_options"] = FederationOptions(roams=False)  # nothing waits but what clients publish
        self.gateways = SimulatedGateways(self.simulation, TOPOLOGY, road, is_stored=True, **options)
        self.gateways.wait_for_links()
        self.publisher = Participant("publisher", self.here, V5, True, 20, FAIR)
        self.reader = Participant("reader", self.there, V5, True, 20, FAIR)
        self.publisher.connect()
        self.reader.connect()
        self.wait(1)
        self.reader.subscribe("t/#", 2)
        self.wait(1)
        self.gateways.road("a.0", "a.1").cut()
        self.wait(1)

    @property
    def here(self) -> SimulatedGateway:
        return self.gateways["a.0"]

    @property
    def there(self) -> SimulatedGateway:
        return self.gateways["a.1"]

    @property
    def backlog(self) -> ClassQueue:
        return self.here.overlay.links["a.1"].outbox.backlog

    def wait(self, seconds: float) -> None:
        self.simulation.run_until(self.simulation.now + int(seconds * SECOND))

    def publish(self, count: int, qos: int = 1, topic: str = "t/x", expiry_s: int = 0) -> None:
        for _ in range(count):
            payload = b"%d" % len(self.publisher.published)
            self.publisher.publish(topic, payload, qos, expiry_s=expiry_s)
            self.simulation.run_until(self.simulation.now + 20 * MILLISECOND)
        self.wait(1)

    def crash(self) -> None:
        self.here.crash()
        self.wait(1)

    def mend(self) -> list[int]:
        """What the reader gets when the road is there again."""
        self.gateways.road("a.0", "a.1").mend()
        self.wait(120)
        return self.heard

    @property
    def heard(self) -> list[int]:
        return [int(one.payload) for one in self.reader.received]

    def files(self) -> Iterator[str]:
        assert self.here.store is not None
        return (name for name in self.here.store.disk.files if page_number(name) is not None)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_long_outbox_lies_on_the_disk_and_arrives_in_its_order(qos: int) -> None:
    sites = Sites()
    sites.publish(200, qos)
    assert sites.here.waiting == len(sites.backlog) == 200
    assert sites.backlog.paged >= 160
    assert len(sites.backlog.in_memory()) <= 4 * PAGE, "in memory are both ends"
    assert len([*sites.files()]) == len(sites.backlog.pages)
    assert sites.mend() == list(range(200))
    assert not [*sites.files()], "what was read back is removed"
    assert sites.here.ledger.queued == sites.there.ledger.queued == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_restart_reads_no_page_and_loses_none(qos: int) -> None:
    sites = Sites()
    sites.publish(200, qos)
    before = [page.number for page in sites.backlog.pages]
    sites.crash()
    assert [page.number for page in sites.backlog.pages] == before
    assert len(sites.backlog) == sites.here.ledger.queued == 200
    assert len(sites.backlog.in_memory()) <= 4 * PAGE
    assert sites.mend() == list(range(200))
    assert sites.here.ledger.queued == 0


def test_what_is_read_back_survives_a_crash_and_comes_once() -> None:
    sites = Sites()
    sites.publish(150, 2)
    sites.gateways.road("a.0", "a.1").mend()
    while len(sites.heard) < 40:
        sites.wait(0.01)
    sites.crash()
    sites.wait(120)
    assert sites.heard == list(range(150))


def test_live_events_pass_the_backlog_of_other_flows_also_after_a_restart() -> None:
    sites = Sites(RoadConditions((10 * MILLISECOND, 10 * MILLISECOND), 500, 250))
    sites.publish(400)
    sites.crash()
    sites.publisher.connect()
    sites.wait(1)
    sites.gateways.road("a.0", "a.1").mend()
    while sites.here.overlay.links["a.1"].connection is None:
        sites.wait(0.01)
    sites.publisher.publish("t/x", b"400", 1)
    sites.publisher.publish("t/y", b"401", 1)
    sites.wait(2)
    assert sites.backlog.paged > 100, "the road is slow"
    assert 401 in sites.heard
    sites.wait(120)
    assert [number for number in sites.heard if number != 401] == list(range(401))
    assert sites.backlog.paged == 0


def test_a_snapshot_does_not_write_pages_again() -> None:
    sites = Sites()
    sites.publish(300)
    journal, store = sites.here.frontend.journal.storage, sites.here.store
    assert journal is not None
    assert store is not None
    journal.request_snapshot()
    sites.here.operate(lambda frontend: frontend.recovery.begin_snapshot_if_due(sites.simulation.now))
    sites.publish(1)
    assert journal.replay_from > 1
    sites.crash()
    assert len(sites.backlog) == 301
    report = recover(store.disk, lambda lsn, record: None)
    assert report is not None
    assert report.snapshot_bytes < 10_000
    assert sites.mend() == list(range(301))


def test_pages_that_have_expired_leave_although_the_peer_is_away() -> None:
    sites = Sites()
    sites.publish(100, expiry_s=60)
    paged = sites.backlog.paged
    assert paged
    sites.wait(90)
    assert sites.backlog.paged == 0
    assert sites.here.ledger.expired == paged
    assert not [*sites.files()]
    assert sites.mend() == []
    assert sites.here.ledger.expired == 100


def test_a_page_that_is_gone_is_told_and_the_rest_arrives() -> None:
    sites = Sites()
    sites.publish(100)
    lost, store = sites.backlog.pages[1], sites.here.store
    assert store is not None
    del store.disk.files[page_name(lost.number)]
    sites.here.crash(is_power_cut=False)
    journal = sites.here.frontend.journal.storage
    assert journal is not None
    [place] = journal.pages.damage
    assert place == f"{page_name(lost.number)}: the file is missing or too short; lost are 10 messages of a queue"
    assert sites.mend() == [number for number in range(100) if not 20 <= number < 30]
    assert sites.here.ledger.dropped[Cause.DAMAGED] == 10
    assert sites.here.ledger.queued == 0


def test_a_page_with_a_flipped_bit_is_set_aside_and_never_sent() -> None:
    sites = Sites()
    sites.publish(100)
    damaged, store = sites.backlog.pages[0], sites.here.store
    assert store is not None
    store.disk.flip(page_name(damaged.number), 8 * 100)
    assert sites.mend() == [number for number in range(100) if not 10 <= number < 20]
    assert list(store.disk.aside) == [page_name(damaged.number)]
    assert sites.here.ledger.dropped[Cause.DAMAGED] == 10
    assert sites.here.ledger.queued == 0


def test_another_topology_finds_the_same_pages() -> None:
    sites = Sites()
    sites.publish(100)
    before = [page.number for page in sites.backlog.pages]
    sites.here.change_topology(TOPOLOGY)
    assert [page.number for page in sites.backlog.pages] == before
    assert sites.mend() == list(range(100))
    assert sites.here.ledger.queued == 0


def test_every_copy_in_a_page_has_its_fate_in_the_log() -> None:
    sites = Sites(is_logged=True)
    sites.publish(100)
    assert sites.backlog.pages
    assert sites.mend() == list(range(100))
    sites.publish(1)
    assert not [*unbalanced(sites.here.closed_log())]


def test_copies_in_pages_stay_queued_when_the_log_is_closed() -> None:
    sites = Sites(is_logged=True)
    sites.publish(100, expiry_s=60)
    sites.wait(90)
    sites.publish(60)
    assert not [*unbalanced(sites.here.closed_log())]


def test_the_bound_is_one_of_bytes_and_without_a_journal_one_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = link_setup.link_options

    def narrow(topology: Topology, name: str, peer: str) -> LinkOptions:
        return replace(usual(topology, name, peer), bounds=OutboxBounds(memory_messages=32))

    monkeypatch.setattr(link_setup, "link_options", narrow)
    sites = Sites()
    sites.publish(60)
    assert not sites.publisher.refused
    assert OutboxBounds().bytes == 64 * MIB
    assert OutboxBounds().messages == 1_000_000


def test_the_records_of_pages_are_told_by_name() -> None:
    sites = Sites()
    sites.publish(100)
    number = sites.backlog.pages[0].number
    sites.gateways.road("a.0", "a.1").mend()
    sites.wait(10)
    assert sites.here.store is not None
    described = []
    state = JournalState()

    def apply(lsn: int, record: bytes) -> None:
        described.append(describe(record, lsn))
        state.apply_row(lsn, [record])

    recover(sites.here.store.disk, apply)
    [paged] = [one for one in described if one["kind"] == "link_paged" and one["page"] == number]
    assert (paged["peer"], paged["count"], paged["flows"]) == ("a.1", 10, 1)
    [unpaged] = [one for one in described if one["kind"] == "link_unpaged" and one["page"] == number]
    assert (unpaged["peer"], unpaged["messages"]) == ("a.1", 10)
    state.finish()
    assert state.invalid == 0
    assert state.last_page >= number
