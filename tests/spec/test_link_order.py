"""Within a flow nothing overtakes what is in the BACKLOG, whether it has a number or not (P4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.header import EventHeader
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.outbox import BOUNDS, LinkOutbox, OutboxBounds
from edgebroker.overlay.link.sender import LinkSender
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import TrafficClass


def event(sequence: int, qos: int) -> Forward:
    return Forward(EventHeader(1, sequence, 0, 2), "t", b"%d" % sequence, qos, False, "bob")


def late_flow() -> LinkOutbox:
    """An open outbox whose BACKLOG holds, of one flow, a numbered event that the peer has, and then one without."""
    outbox = LinkOutbox("peer", BOUNDS, None)
    outbox.enqueue(event(1, 1), TrafficClass.LIVE, 0)
    outbox.opened({}, False)
    outbox.enqueue(event(2, 0), TrafficClass.LIVE, 0)
    assert len(outbox.queues[TrafficClass.BACKLOG].waiting) == 2
    entry = outbox.dequeue(TrafficClass.BACKLOG, 0)
    assert entry is not None
    outbox.sent(TrafficClass.BACKLOG, entry)
    outbox.acked(TrafficClass.BACKLOG, entry.number)
    return outbox


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_said_later_waits_behind_what_has_no_number(qos: int) -> None:
    outbox = late_flow()
    outbox.enqueue(event(3, qos), TrafficClass.LIVE, 0)
    entry = outbox.dequeue(TrafficClass.BACKLOG, 0)
    assert entry is not None
    outbox.enqueue(event(4, qos), TrafficClass.LIVE, 0)  # it is sent in part only, and LIVE would come in between
    assert not outbox.queues[TrafficClass.LIVE].waiting
    outbox.written(entry)
    assert [one.message.payload for one in outbox.queues[TrafficClass.BACKLOG].waiting] == [b"3", b"4"]


@pytest.mark.parametrize("ends", ["written", "requeue", "refused", "closed"])
def test_a_flow_is_late_no_longer_than_something_waits(ends: str) -> None:
    outbox = late_flow()
    if ends in ("written", "requeue"):
        entry = outbox.dequeue(TrafficClass.BACKLOG, 0)
        assert entry is not None
        getattr(outbox, ends)(entry)
    elif ends == "refused":
        outbox.refuse([TrafficClass.BACKLOG], Cause.QUEUE_FULL)
    else:
        outbox.closed()
        outbox.opened({}, True)
    outbox.enqueue(event(3, 0), TrafficClass.LIVE, 0)
    assert len(outbox.queues[TrafficClass.LIVE].waiting) == 1


class Disk:
    """A journal of which nothing is on disk until the outbox is told so."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def append(self, record: bytes, waits: bool) -> int:
        self.records.append(record)
        return len(self.records)


def test_nothing_is_sent_to_a_peer_that_lost_its_disk_before_what_it_had_is_settled_on_ours() -> None:
    disk = Disk()
    outbox = LinkOutbox("peer", BOUNDS, disk)
    outbox.opened({}, False)
    outbox.enqueue(event(1, 1), TrafficClass.LIVE, 0)
    outbox.synced(len(disk.records))
    entry = outbox.dequeue(TrafficClass.LIVE, 0)
    assert entry is not None
    outbox.sent(TrafficClass.LIVE, entry)
    outbox.acked(TrafficClass.LIVE, entry.number)
    outbox.closed()
    outbox.enqueue(event(2, 1), TrafficClass.LIVE, 0)
    outbox.synced(len(disk.records))
    outbox.opened({}, False)  # it knows nothing of the first one: if we lost power now, we would send it after this one
    assert outbox.dequeue(TrafficClass.BACKLOG, 0) is None
    outbox.synced(len(disk.records))
    later = outbox.dequeue(TrafficClass.BACKLOG, 0)
    assert later is not None
    assert later.message.payload == b"2"


def test_the_rest_of_a_long_message_in_the_backlog_takes_nothing_along_that_is_later_than_live() -> None:
    disk = Disk()
    outbox = LinkOutbox("peer", OutboxBounds(live_bytes=1), disk)
    long = Forward(EventHeader(2, 1, 0, 2), "u", bytes(20_000), 1, False, "eve")
    outbox.enqueue(long, TrafficClass.LIVE, 0)  # nobody is there: it goes into the BACKLOG
    outbox.opened({}, False)
    outbox.synced(len(disk.records))
    outflow = LinkSender(deflates=False)
    outflow.pull(outbox, TrafficClass, 5_000, 0)
    assert outflow.has_parts
    outbox.enqueue(event(1, 2), TrafficClass.LIVE, 0)  # waits for the disk
    outbox.enqueue(event(2, 1), TrafficClass.LIVE, 0)  # finds LIVE full
    lanes = outbox.queues
    outflow.pull(outbox, TrafficClass, 50_000, 0)
    assert not outflow.has_parts
    assert (len(lanes[TrafficClass.LIVE].waiting), len(lanes[TrafficClass.BACKLOG].waiting)) == (1, 1)
    outbox.synced(len(disk.records))
    outflow.pull(outbox, TrafficClass, 50_000, 0)
    assert (len(lanes[TrafficClass.LIVE].waiting), len(lanes[TrafficClass.BACKLOG].waiting)) == (0, 0)


@pytest.mark.parametrize("was_written", [True, False])
def test_what_the_peer_may_have_expires_at_the_peer_only(was_written: bool) -> None:
    outbox = LinkOutbox("peer", BOUNDS, None)
    outbox.opened({}, False)
    outbox.enqueue(replace(event(1, 2), expires_in_ms=5), TrafficClass.LIVE, 0)
    entry = outbox.dequeue(TrafficClass.LIVE, 0)
    assert entry is not None
    outbox.sent(TrafficClass.LIVE, entry)
    if was_written:
        outbox.written(entry)
    else:
        outbox.requeue(entry)  # the connection ended amid it
    outbox.closed()
    outbox.opened({}, True)  # whoever has it has not got it on disk yet
    again = outbox.dequeue(TrafficClass.LIVE, 5_000)
    assert (again is entry) == was_written
    assert [drop.fate for drop in outbox.drops] == ([] if was_written else [Fate.EXPIRED])
    assert entry.expires_in_ms(5_000) == 0
