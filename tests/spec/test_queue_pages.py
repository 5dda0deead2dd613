"""Long queues on the disk: what a session gets, in which order, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from edgebridge.frontend.journal.restore import LAST_COPY
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.inflight import new_queue_entry
from edgebridge.session.queue.outbox import OverflowPolicy, SessionOutbox
from edgebridge.session.session import Session
from edgebridge.wire.packets import Connect, PubAck, PubComp, Publish, PubRec, PubRel, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Properties, Property
from edgebroker.errors import JournalDamaged
from edgebroker.instants import SECOND
from edgebroker.limits import MIB
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.publication import Publication
from edgebroker.storage.journal.page_files import decode_page, encode_page, page_name, page_number
from edgebroker.storage.journal.recovery import recover
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import OPTIONS, WALL, SimulatedStore

STORE = b"sixteen bytes..."
PAGE = 10


class Site:
    """A gateway with pages of ten messages, bob who publishes, and alice who is away."""

    def __init__(self, qos: int = 1, wall: int = WALL, **options: object) -> None:
        self.simulation = Simulation()
        self.store = SimulatedStore(self.simulation, replace(OPTIONS, page_messages=PAGE, snapshot_min_bytes=MIB))
        self.store.wall = wall
        self.broker = SimulatedBroker(
            self.simulation,
            FrontendOptions(inflight_max=5, **options),  # type: ignore[arg-type]
            store=self.store,
        )
        self.alice = SimulatedClient("alice", self.broker)
        self.bob = SimulatedClient("bob", self.broker)
        self.connect_alice()
        self.alice.send(Subscribe(1, [SubscriptionOption("t/#", qos, False, False)], {}))
        self.wait()
        self.alice.receive()
        self.alice.cut()
        self.bob.send(Connect("bob"))
        self.wait()
        self._packet_id = 0

    def connect_alice(self) -> None:
        self.alice.send(Connect("alice", False, properties={Property.SESSION_EXPIRY_INTERVAL: 86_400}))

    def wait(self, seconds: float = 1) -> None:
        self.simulation.run_until(self.simulation.now + int(seconds * SECOND))

    def publish(self, first: int, count: int, qos: int = 1, expiry_s: int = 0) -> None:
        properties: Properties = {Property.MESSAGE_EXPIRY_INTERVAL: expiry_s} if expiry_s else {}
        for number in range(first, first + count):
            self._packet_id += 1
            payload = str(number).encode()
            self.bob.send(Publish("t/x", payload, qos, packet_id=self._packet_id, properties=properties))
            if qos == 2:
                self.bob.send(PubRel(self._packet_id))
            self.wait(0.01)
        self.wait()

    @property
    def session(self) -> Session:
        return self.broker.frontend.connect_handler.sessions[ClientId("alice")]

    def fetch(self, seconds: int = 20) -> Iterator[int]:
        """What alice gets and acknowledges."""
        for _ in range(seconds * 100):
            self.wait(0.01)
            for packet in self.alice.receive():
                match packet:
                    case Publish(qos=1, packet_id=number, payload=payload):
                        yield int(payload)
                        self.alice.send(PubAck(number))
                    case Publish(qos=2, packet_id=number, payload=payload):
                        yield int(payload)
                        self.alice.send(PubRec(number))
                    case PubRel(packet_id=number):
                        self.alice.send(PubComp(number))

    def restate(self) -> None:
        """Begin a snapshot."""
        journal = self.broker.frontend.journal.storage
        assert journal is not None
        journal.request_snapshot()
        self.broker.operate(lambda frontend: frontend.recovery.begin_snapshot_if_due(self.simulation.now))

    def files(self) -> list[str]:
        return [name for name in self.store.disk.files if page_number(name) is not None]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_long_queue_lies_on_the_disk_and_arrives_in_its_order(qos: int) -> None:
    site = Site(qos)
    site.publish(0, 200, qos)
    outbox = site.session.outbox
    assert len(outbox) == 200
    assert outbox.paged_messages >= 180
    assert len(list(outbox)) < 3 * PAGE, "in memory is only the end"
    assert len(site.files()) == len(outbox.pages)
    site.connect_alice()
    assert list(site.fetch()) == list(range(200))
    assert not site.files(), "what was read back is removed"
    assert site.broker.ledger.queued == 0


def test_a_restart_reads_no_page_and_loses_none() -> None:
    site = Site()
    site.publish(0, 200)
    before = [page.number for page in site.session.outbox.pages]
    site.broker.crash()
    assert [page.number for page in site.session.outbox.pages] == before
    assert len(site.session.outbox) == 200
    assert len(list(site.session.outbox)) < 4 * PAGE
    site.wait()
    site.connect_alice()
    assert list(site.fetch()) == list(range(200))


def test_what_is_read_back_survives_a_crash_and_is_sent_once_at_qos_2() -> None:
    site = Site(2)
    site.publish(0, 100, 2)
    site.connect_alice()
    got: list[int] = []
    for number in site.fetch():
        got.append(number)
        if len(got) == 37:
            break
    site.broker.crash()
    site.wait()
    site.connect_alice()
    again = list(site.fetch())
    assert sorted(set(got + again)) == list(range(100))
    assert set(got[:32]).isdisjoint(again), "beyond the window nothing comes twice"


def test_a_snapshot_does_not_write_pages_again() -> None:
    site = Site()
    site.publish(0, 300)
    journal = site.broker.frontend.journal.storage
    assert journal is not None
    site.restate()
    site.publish(300, 1)
    assert journal.replay_from > 1
    site.broker.crash()
    assert len(site.session.outbox) == 301
    report = recover(site.store.disk, lambda lsn, record: None)
    assert report is not None
    assert report.snapshot_bytes < 8_000


def test_pages_that_have_expired_leave_without_a_reader() -> None:
    site = Site()
    site.publish(0, 100, expiry_s=60)
    assert site.session.outbox.pages
    site.wait(90)
    assert len(site.session.outbox) == 0
    assert site.broker.ledger.expired == 100
    assert not site.files()


def test_what_has_expired_at_the_begin_of_the_tail_takes_nothing_from_the_head() -> None:
    outbox = SessionOutbox(9, 1_000)
    for expires_at, queue in ((None, outbox.restore_head), (5, outbox.restore), (None, outbox.restore)):
        publication = Publication("p", "t", b"x", 1, False, 0, expires_at=expires_at)
        queue(new_queue_entry(publication, 1, False, (), "t"))
    [expired] = outbox.dequeue_expired(6, 9)
    assert expired.publication.expires_at == 5
    assert [entry.publication.expires_at for entry in outbox] == [None, None]


def test_the_oldest_pages_make_room() -> None:
    site = Site(queue_messages_max=100, queue_full=OverflowPolicy.DROP_OLDEST)
    site.publish(0, 150)
    assert 80 <= len(site.session.outbox) <= 100
    dropped = site.broker.ledger.dropped[Cause.QUEUE_FULL]
    assert dropped == 150 - len(site.session.outbox)
    site.connect_alice()
    assert list(site.fetch()) == list(range(dropped, 150))


def test_a_queue_that_refuses_drops_no_page_for_what_another_gateway_has_acknowledged() -> None:
    site = Site(queue_messages_max=100, queue_full=OverflowPolicy.REFUSE)
    site.publish(0, 100)
    publication = Publication("far", "t/x", b"100", 1, False, site.simulation.now)
    publication.number = site.broker.ledger.accept(site.simulation.now, "far", 1, "t/x", 1, 3, 1)
    copies = site.broker.frontend.node.routes.route("t/x").copies_for(publication)
    site.broker.operate(lambda one: one.delivery.deliver_promised(publication, copies, site.simulation.now))
    assert Cause.QUEUE_FULL not in site.broker.ledger.dropped
    site.wait()
    site.connect_alice()
    assert list(site.fetch()) == list(range(101))


def test_copies_are_numbered_anew_while_a_page_is_written() -> None:
    site = Site()
    site.store.disk.sync_us = (SECOND, SECOND)
    for number in range(25):
        site.bob.send(Publish("t/x", str(number).encode(), 1, packet_id=number + 1))
    site.wait(0.5)
    session = site.session
    assert session.outbox.pages[0].entries is not None, "it is on its way to the disk"
    session.last_copy = LAST_COPY + 1
    for entry in session.outbox:
        entry.number += LAST_COPY
    session.outbox.pages[0].first += LAST_COPY
    site.restate()
    site.store.disk.sync_us = (500, 3_000)
    site.wait(10)
    assert session.last_copy == 25
    assert [page.first for page in session.outbox.pages] == [1]
    site.broker.crash(is_power_cut=False)
    site.wait()
    site.connect_alice()
    assert list(site.fetch()) == list(range(25))


def test_a_session_that_ends_gives_its_pages_a_fate_and_their_room_back() -> None:
    site = Site()
    site.publish(0, 100)
    site.alice.send(Connect("alice", True))
    site.wait(5)
    assert site.broker.ledger.dropped[Cause.SESSION_ENDED] == 100
    assert site.broker.ledger.queued == 0
    assert not site.files()


def test_a_page_that_is_gone_is_told_and_the_rest_arrives() -> None:
    site = Site()
    site.publish(0, 100)
    lost = site.session.outbox.pages[1]
    del site.store.disk.files[page_name(lost.number)]
    site.broker.crash(is_power_cut=False)
    journal = site.broker.frontend.journal.storage
    assert journal is not None
    [place] = journal.pages.damage
    assert place == f"{page_name(lost.number)}: the file is missing or too short; lost are 10 messages of a queue"
    site.connect_alice()
    assert list(site.fetch()) == [number for number in range(100) if not 10 <= number < 20]
    assert site.broker.ledger.dropped[Cause.DAMAGED] == 10
    assert site.broker.ledger.queued == 0


def test_a_page_with_a_flipped_bit_is_set_aside_and_never_served() -> None:
    site = Site()
    site.publish(0, 100)
    damaged = site.session.outbox.pages[0]
    site.store.disk.flip(page_name(damaged.number), 8 * 200)
    site.connect_alice()
    assert list(site.fetch()) == list(range(10, 100))
    journal = site.broker.frontend.journal.storage
    assert journal is not None
    assert "another checksum" in journal.pages.damage[0]
    assert list(site.store.disk.aside) == [page_name(damaged.number)]
    assert site.broker.ledger.dropped[Cause.DAMAGED] == 10


def test_a_disk_that_takes_no_pages_costs_memory_and_nothing_else() -> None:
    site = Site()
    site.store.disk.bytes_max = site.store.disk.bytes_used + 200_000
    site.publish(0, 100)
    assert not site.session.outbox.pages, "a quarter of what is left is too little"
    site.connect_alice()
    assert list(site.fetch()) == list(range(100))


def test_what_a_run_wrote_and_did_not_name_is_removed_by_the_next() -> None:
    site = Site()
    site.publish(0, 30)
    stray = page_name(77)
    site.store.disk.files[stray] = site.store.disk.files[site.files()[0]].copy()
    site.broker.crash(is_power_cut=False)
    site.wait()
    assert stray not in site.files()
    assert site.broker.frontend.pager.last_page == 77
    site.connect_alice()
    assert list(site.fetch()) == list(range(30))


def test_a_gateway_that_learns_the_time_loses_no_page_by_it() -> None:
    """Pages were written in 1970; then everything that is stored moves to the present, and pages are read."""
    site = Site(wall=SECOND)
    site.publish(0, 60, expiry_s=3_600)
    before = site.session.outbox.pages[0].accepted_at + site.broker.frontend.journal.clock_offset
    site.store.wall = WALL
    site.broker.crash(is_power_cut=False)
    after = site.session.outbox.pages[0].accepted_at + site.broker.frontend.journal.clock_offset
    assert after - before > 50 * 365 * 86_400 * SECOND
    site.connect_alice()
    assert list(site.fetch()) == list(range(60))
    assert site.broker.ledger.expired == 0


def test_a_page_file_is_exactly_what_was_written_or_refused() -> None:
    content = b"some messages, " * 80
    data = encode_page(STORE, 7, content)
    assert len(data) % 512 == 0
    assert decode_page(STORE, 7, data) == content
    for changed in (b"", data[:30], data[:600], bytes(len(data)), data[:100] + b"y" + data[101:]):
        with pytest.raises(JournalDamaged):
            decode_page(STORE, 7, changed)
    with pytest.raises(JournalDamaged, match="this page of this journal"):
        decode_page(STORE, 8, data)
    with pytest.raises(JournalDamaged, match="this page of this journal"):
        decode_page(b"another journal.", 7, data)
    assert page_number(page_name(7)) == 7
    assert page_number("segment-0001.ebj") is None
    assert page_number("page-7.ebq") is None
