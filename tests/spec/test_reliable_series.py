"""Events of QoS 1 that cross a link together: one record, one item, and each with a number of its own."""

from __future__ import annotations

from collections import Counter

import pytest

from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PubAck, Publish
from edgebroker.header import EventHeader
from edgebroker.instants import SECOND
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.class_queue import QueueFigures
from edgebroker.overlay.link.codec.events import RELIABLE_SERIES_MAX, FlowWriter
from edgebroker.overlay.link.codec.frames import FrameWriter, SignalCode, signal_item
from edgebroker.overlay.link.journal_entries import RepeatedEntries, SharedEntry
from edgebroker.overlay.link.journal_records import LinkRecordKind, StoredLink, StoredLinks
from edgebroker.overlay.link.outbox import BOUNDS, SERIES_BYTES, LinkOutbox, OutboxBounds
from edgebroker.overlay.link.receiver import LinkReceiver, ReceivePositions
from edgebroker.overlay.link.sender import RELIABLE_SERIES_CAPABILITY, LinkSender
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgelab.simworld.broker import FAIR
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

LIVE, BACKLOG = TrafficClass.LIVE, TrafficClass.BACKLOG
COUNT = 20


class RecordList:
    """A journal that is on disk as far as the outbox is told so."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def append(self, record: bytes, waits: bool) -> int:
        self.records.append(record)
        return len(self.records)

    @property
    def entries(self) -> int:
        return sum(record[0] == LinkRecordKind.ENTRY for record in self.records)

    def stored(self, peer: str = "peer") -> StoredLink:
        links = StoredLinks()
        for record in self.records:
            links.apply(record)
        return links.links[peer]


def series(count: int = COUNT, size: int = 8, sequence: int = 1, topic: str = "t") -> EventSeries:
    payload = b"".join(b"%0*d" % (size, number) for number in range(count))
    return EventSeries(Forward(EventHeader(1, sequence, 0, 2), topic, payload, 1, False, "bob"), count)


def opened(disk: RecordList | None, bounds: OutboxBounds = BOUNDS) -> LinkOutbox:
    outbox = LinkOutbox("peer", bounds, disk)
    outbox.opened({}, False)
    return outbox


def sent(outbox: LinkOutbox, disk: RecordList, *capabilities: str) -> bytes:
    outbox.synced(len(disk.records))
    return LinkSender(False, capabilities).pull(outbox, TrafficClass, 1 << 20, 0)


def received(data: bytes, positions: ReceivePositions) -> list[Message]:
    messages: list[Message] = []
    LinkReceiver(False, positions).feed(data, messages, 0)
    return messages


def numbers(outbox: LinkOutbox, service: TrafficClass = LIVE) -> list[int]:
    return [entry.number for entry in outbox.queues[service].in_memory()]


def restored(disk: RecordList) -> LinkOutbox:
    outbox = LinkOutbox("peer", BOUNDS, RecordList())
    assert outbox.restore(disk.stored()) == 0
    return outbox


def test_it_is_one_record_and_one_item_and_is_acknowledged_by_its_last_number() -> None:
    disk, positions = RecordList(), ReceivePositions()
    outbox = opened(disk)
    assert outbox.enqueue(series(), LIVE, 0) is Cause.NONE
    assert (disk.entries, outbox.use[0]) == (1, COUNT)
    assert received(sent(outbox, disk, RELIABLE_SERIES_CAPABILITY), positions) == [series()]
    assert positions.upto == {LIVE: COUNT}
    outbox.acked(LIVE, COUNT - 1)
    assert (outbox.delivered, outbox.unacked_upto({LIVE: 5}), outbox.use[0]) == ([], 5, COUNT)
    outbox.acked(LIVE, COUNT)
    assert (outbox.delivered, outbox.use) == ([series()], (0, 0, 0))
    assert restored(disk).use == (0, 0, 0)


def test_a_peer_that_does_not_know_it_gets_its_events_with_the_same_numbers() -> None:
    disk, positions = RecordList(), ReceivePositions()
    outbox = opened(disk)
    outbox.enqueue(series(), LIVE, 0)
    assert received(sent(outbox, disk, "series"), positions) == [*series().events()]
    assert positions.upto == {LIVE: COUNT}


def test_after_the_connection_is_lost_its_events_wait_one_by_one_and_the_peer_gets_those_that_it_lacks() -> None:
    disk, positions = RecordList(), ReceivePositions()
    outbox = opened(disk)
    outbox.enqueue(series(), LIVE, 0)
    size = outbox.use[1]
    sent(outbox, disk, RELIABLE_SERIES_CAPABILITY)
    assert outbox.queues[LIVE].figures == QueueFigures(COUNT, COUNT, 0, 0)
    outbox.closed()
    assert outbox.queues[LIVE].figures == QueueFigures(COUNT, 0, COUNT, size)
    assert (numbers(outbox), outbox.use) == ([*range(1, COUNT + 1)], (COUNT, size, size))
    outbox.opened({LIVE: 7}, False)
    assert outbox.delivered == [*series().events()][:7]
    assert received(sent(outbox, disk, RELIABLE_SERIES_CAPABILITY), positions) == [*series().events()][7:]


@pytest.mark.parametrize("settled", [0, 7, COUNT])
def test_a_restart_finds_each_event_with_its_number(settled: int) -> None:
    disk = RecordList()
    outbox = opened(disk)
    outbox.enqueue(series(), LIVE, 0)
    if settled:
        outbox.closed()
        outbox.acked(LIVE, settled)
    again = restored(disk)
    assert numbers(again) == [*range(settled + 1, COUNT + 1)]
    assert again.events() == [*series().events()][settled:]


def test_a_snapshot_repeats_it_though_the_connection_is_lost_in_between() -> None:
    disk, snapshot, repeated = RecordList(), RecordList(), RepeatedEntries()
    outbox = opened(disk)
    outbox.enqueue(series(), LIVE, 0)
    snapshot.records += outbox.records(repeated)
    outbox.closed()
    outbox.acked(LIVE, 3)
    snapshot.records += repeated.records()
    assert numbers(restored(snapshot)) == [*range(1, COUNT + 1)]
    snapshot.records.append(disk.records[-1])  # what was acknowledged meanwhile
    assert numbers(restored(snapshot)) == [*range(4, COUNT + 1)]


def test_for_several_peers_it_is_one_record_and_each_finds_its_own_numbers() -> None:
    disk = RecordList()
    outboxes = {name: LinkOutbox(name, BOUNDS, disk) for name in ("peer", "other", "away")}
    for name in ("peer", "other"):
        outboxes[name].opened({}, False)
    outboxes["other"].enqueue(series(3, topic="other"), LIVE, 0)
    shared, whole = SharedEntry(disk), series()
    for outbox in outboxes.values():
        outbox.enqueue(whole, LIVE, 0, shared.following(whole))
    shared.append()
    kinds = Counter(record[0] for record in disk.records)
    assert (kinds[LinkRecordKind.ENTRIES], kinds[LinkRecordKind.ENTRY]) == (1, 1 + COUNT)
    for name, first, service in (("peer", 1, LIVE), ("other", 4, LIVE), ("away", 1, BACKLOG)):
        again = LinkOutbox(name, BOUNDS, RecordList())
        assert again.restore(disk.stored(name)) == 0
        assert numbers(again, service)[-COUNT:] == [*range(first, first + COUNT)]
        assert again.events()[-COUNT:] == [*whole.events()]


def test_where_nobody_is_connected_or_a_flow_is_late_its_events_wait_one_by_one() -> None:
    disk = RecordList()
    outbox = LinkOutbox("peer", BOUNDS, disk)
    outbox.enqueue(series(3), LIVE, 0)
    outbox.opened({}, False)
    outbox.enqueue(series(3, sequence=4), LIVE, 0)
    outbox.enqueue(series(3, topic="other"), LIVE, 0)
    assert (numbers(outbox, BACKLOG), numbers(outbox), disk.entries) == ([1, 2, 3, 4, 5, 6], [3], 7)


def test_it_has_bounds_and_its_events_count_one_by_one() -> None:
    for each in (series(RELIABLE_SERIES_MAX + 9, 3), series(9, SERIES_BYTES // 3)):
        outbox = opened(RecordList())
        outbox.enqueue(each, LIVE, 0)
        parts = [entry.message for entry in outbox.queues[LIVE].waiting]
        assert outbox.use[0] == each.count
        assert len(parts) > 1
        assert b"".join(part.first.payload for part in parts if isinstance(part, EventSeries)) == each.first.payload
    full = opened(None, OutboxBounds(messages=COUNT, memory_messages=COUNT))
    assert full.has_room(1, COUNT * 15 // 16)
    assert not full.has_room(1, COUNT)
    full.enqueue(series(COUNT + 2), LIVE, 0)
    assert (full.use[0], full.dropped) == (COUNT, {Cause.QUEUE_FULL: 2})


def test_of_events_that_came_before_only_the_others_are_new() -> None:
    frames, positions = FrameWriter(False), ReceivePositions(upto={LIVE: 14})
    frames.add(signal_item(SignalCode.NEXT, int(LIVE), 10))
    frames.add(FlowWriter().write_series(series(), int(LIVE)))
    data = frames.take()
    assert received(data, positions) == [*series().events()][5:]
    assert (positions.upto, positions.duplicates) == ({LIVE: 9 + COUNT}, 0)
    assert received(data, positions) == []
    assert positions.duplicates == COUNT


@pytest.mark.parametrize("which", ["sender", "receiver", "link"])
def test_what_was_acknowledged_arrives_once_and_in_order_whatever_fails_then(which: str) -> None:
    simulation = Simulation(1)
    gateways = SimulatedGateways(simulation, Topology.product(Scot(Factor.parse("a-b"), 1)), is_stored=True)
    gateways.wait_for_links()
    first, last = gateways
    reader = Participant("reader", last, V5, True, 20, FAIR)
    reader.connect()
    simulation.run_until(simulation.now + SECOND)
    reader.subscribe("t", 1)
    publisher = SimulatedClient("publisher", first)
    publisher.send(Connect("publisher", dialect=V5))
    simulation.run_until(simulation.now + 3 * SECOND)
    said = [b"%03d" % number for number in range(100)]
    packets = [encode_packet(Publish("t", each, 1, packet_id=number), V5) for number, each in enumerate(said, 1)]
    publisher.write(b"".join(packets[:1]))
    simulation.run_until(simulation.now + 3 * SECOND)
    publisher.write(b"".join(packets[1:]))
    acknowledged = 0
    while acknowledged < len(said):
        simulation.run_until(simulation.now + 1_000)
        acknowledged += sum(isinstance(packet, PubAck) for packet in publisher.receive())
    if which == "link":
        gateways.road(first.name, last.name).shake()
    else:
        lost = first if which == "sender" else last
        lost.power_off()
        lost.power_on()
    simulation.run_until(simulation.now + 20 * SECOND)
    if which == "receiver":
        reader.connect()
        simulation.run_until(simulation.now + 3 * SECOND)
    assert list(dict.fromkeys(heard.payload for heard in reader.received)) == said
    if which != "receiver":  # a client whose gateway lost power gets again what it did not acknowledge in time
        assert len(reader.received) == len(said)
