"""Links with one thing made wrong each. `tests/laws/test_link_faults.py` shows that the laws of links notice.

A fault changes one method of a class; a compiled module would not let it, and none of these is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import pytest

from edgebroker.instants import Instant
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.budget import LinkBudget
from edgebroker.overlay.link.class_queue import ClassQueue, QueuedMessage
from edgebroker.overlay.link.codec.frames import Item, LinkSignal, SignalCode
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import LinkUp
from edgebroker.overlay.link.handshake import Hello, ReceiveState
from edgebroker.overlay.link.journal_entries import SharedEntry
from edgebroker.overlay.link.journal_records import StoredLink, entry_record, settled_record, spent_record
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.link.outbox import LinkOutbox
from edgebroker.overlay.link.receiver import AckTracker, LinkReceiver, ReceivePositions
from edgebroker.overlay.link.sender import LinkSender
from edgebroker.overlay.messages import Message
from edgebroker.overlay.traffic_class import SHARED, TrafficClass

Patch: TypeAlias = pytest.MonkeyPatch

# -- acknowledgements ---------------------------------------------------------------------------------------------


def acknowledges_before_the_sync(patch: Patch) -> None:
    """What is handled counts as safe while the journal still has it in memory."""
    right = AckTracker.handled

    def handled(self: AckTracker) -> bool:
        is_news = right(self)
        self._safe.update(self._handled)
        return is_news

    patch.setattr(AckTracker, "handled", handled)


def says_in_a_hello_what_is_not_on_disk(patch: Patch) -> None:
    """The next connection begins with all that was received, and not with what is safe."""

    def heard(self: AckTracker) -> ReceiveState:
        return ReceiveState(self.positions.run, self.positions.store, dict(self.positions.upto))

    patch.setattr(AckTracker, "receive_state", heard)


def takes_an_acknowledgement_for_one_more(patch: Patch) -> None:
    """A cumulative acknowledgement is counted one too far."""
    right = LinkOutbox.acked
    patch.setattr(LinkOutbox, "acked", lambda self, service, upto: right(self, service, upto + 1))


def settles_more_than_was_acknowledged(patch: Patch) -> None:
    """The journal hears that everything sent is settled: nothing shows before a restart."""

    def settled(peer: str, service: TrafficClass, upto: int) -> bytes:
        return settled_record(peer, service, upto + 3)

    patch.setattr("edgebroker.overlay.link.outbox.settled_record", settled)


# -- numbers ------------------------------------------------------------------------------------------------------


def takes_what_it_has_taken(patch: Patch) -> None:
    """A number that came before is not left out."""
    right = LinkReceiver._take

    def take(self: LinkReceiver, items: list[Item], messages: list[Message]) -> list[LinkSignal]:
        self._positions.upto.clear()
        return right(self, items, messages)

    patch.setattr(LinkReceiver, "_take", take)


def gives_numbers_again_after_a_crash(patch: Patch) -> None:
    """A run begins behind the last number that its journal remembers, and not behind those it had reserved."""
    right = LinkOutbox.restore

    def restore(self: LinkOutbox, stored: StoredLink) -> int:
        broken = right(self, stored)
        for service, lane in self.queues.items():
            lane.next_number = stored.last.get(service, 0) + 1
        return broken

    patch.setattr(LinkOutbox, "restore", restore)


def sends_numbers_before_they_are_reserved_on_disk(patch: Patch) -> None:
    """A number is used as soon as its reservation was appended."""
    right = LinkOutbox._reserve

    def reserve(self: LinkOutbox, number: int, storage: object) -> None:
        right(self, number, storage)  # type: ignore[arg-type]
        self._reserved = self._requested

    patch.setattr(LinkOutbox, "_reserve", reserve)


def begins_a_connection_with_the_wrong_number(patch: Patch) -> None:
    """The peer is told the number before that of the message which comes."""
    right = LinkSender._add_number

    def tell_number(self: LinkSender, service: TrafficClass, entry: QueuedMessage) -> None:
        if service not in self._expected:
            self.add_signal(SignalCode.NEXT, int(service), entry.number - 1)
            self._expected[service] = entry.number
        right(self, service, entry)

    patch.setattr(LinkSender, "_add_number", tell_number)


def mistakes_another_store_for_the_one_it_knew(patch: Patch) -> None:
    """What was received of a peer's old disk counts for its new one."""

    def met(self: ReceivePositions, run: bytes, store: bytes) -> None:
        self.store = store
        if run != self.run:
            self.upto.pop(TrafficClass.CONTROL, None)
            self.run = run

    patch.setattr(ReceivePositions, "open", met)


def believes_what_was_heard_of_another_store(patch: Patch) -> None:
    """What the peer has received of our old disk counts as received of the new one."""
    right = Link._open

    def opened(self: Link, stream: LinkConnection, hello: Hello, now: Instant, leads: bool) -> None:
        upto = dict(hello.received.upto)
        right(self, stream, hello, now, leads)
        upto.pop(TrafficClass.CONTROL, None)
        for service, number in upto.items():
            self.outbox.acked(service, number)

    patch.setattr(Link, "_open", opened)


# -- order --------------------------------------------------------------------------------------------------------


def sends_what_was_under_way_behind_what_waits(patch: Patch) -> None:
    """After a connection was lost the newer messages of a class go first."""
    right = ClassQueue.lost

    def lost(self: ClassQueue) -> list[QueuedMessage]:
        under_way = len(self.unacked)
        gone = right(self)
        self.waiting.rotate(-under_way)
        return gone

    patch.setattr(ClassQueue, "lost", lost)


def lets_the_backlog_overtake(patch: Patch) -> None:
    """BACKLOG does not wait for what was LIVE before."""

    def ready(self: LinkOutbox, allowed: frozenset[TrafficClass]) -> list[TrafficClass]:
        self._ahead = 0
        return [service for service in allowed if self._may_send(service)]

    patch.setattr(LinkOutbox, "ready", ready)


def lets_a_flow_leave_the_backlog(patch: Patch) -> None:
    """An event is LIVE although older ones of its flow are in the BACKLOG."""
    right = LinkOutbox.enqueue

    def take(
        self: LinkOutbox, message: Message, service: TrafficClass, now: Instant, shared: SharedEntry | None = None
    ) -> Cause:
        late = self._backlog_flows
        late.counts, counts = {}, late.counts
        try:
            return right(self, message, service, now, shared)
        finally:
            for flow, count in late.counts.items():
                counts[flow] = counts.get(flow, 0) + count
            late.counts = counts

    patch.setattr(LinkOutbox, "enqueue", take)


# -- what waits ---------------------------------------------------------------------------------------------------


def forgets_what_was_sent_last(patch: Patch) -> None:
    """The newest message under way is not sent again over the next connection."""
    right = ClassQueue.lost

    def lost(self: ClassQueue) -> list[QueuedMessage]:
        if self.unacked:
            self.unacked.pop()
        return right(self)

    patch.setattr(ClassQueue, "lost", lost)


def forgets_the_end_of_the_outbox(patch: Patch) -> None:
    """A restart leaves out the last entry of each class."""
    right = LinkOutbox.restore

    def restore(self: LinkOutbox, stored: StoredLink) -> int:
        for entries in stored.entries.values():
            if entries:
                entries.pop(max(entries))
        return right(self, stored)

    patch.setattr(LinkOutbox, "restore", restore)


def leaves_an_event_out_of_the_journal(patch: Patch) -> None:
    """The outbox takes one event in seven without a record that says so."""

    def written(peer: str, service: TrafficClass, number: int, expires_at: int | None, item: bytes) -> bytes:
        if number % 7:
            return entry_record(peer, service, number, expires_at, item)
        return spent_record(peer, 0, 0)

    patch.setattr("edgebroker.overlay.link.outbox.entry_record", written)


def sends_qos_2_before_it_is_on_disk(patch: Patch) -> None:
    """After a power cut its publisher gives it again, as another event."""
    right = LinkOutbox.enqueue

    def take(
        self: LinkOutbox, message: Message, service: TrafficClass, now: Instant, shared: SharedEntry | None = None
    ) -> Cause:
        cause = right(self, message, service, now, shared)
        for lane in self.queues.values():
            if lane.waiting:
                lane.waiting[-1].lsn = 0
        return cause

    patch.setattr(LinkOutbox, "enqueue", take)


# -- connections --------------------------------------------------------------------------------------------------


def goes_on_with_a_conversation_that_is_over(patch: Patch) -> None:
    """A peer that has forgotten what CONTROL said is not told anew."""
    right = Link._open

    def opened(self: Link, stream: LinkConnection, hello: Hello, now: Instant, leads: bool) -> None:
        right(self, stream, hello, now, leads)
        self._events = [replace(event, goes_on=True) if isinstance(event, LinkUp) else event for event in self._events]

    patch.setattr(Link, "_open", opened)


def goes_on_with_half_a_frame_of_an_older_connection(patch: Patch) -> None:
    """What was read of the last connection's frame is put before what the next one says."""
    right = Link._open

    def opened(self: Link, stream: LinkConnection, hello: Hello, now: Instant, leads: bool) -> None:
        rest = self._receiver._frames._buffer
        right(self, stream, hello, now, leads)
        self._receiver._frames._buffer = rest

    patch.setattr(Link, "_open", opened)


def ends_the_new_connection_with_an_older_one(patch: Patch) -> None:
    """That an older connection is over is taken for the end of the present one."""
    right = Link.ended

    def ended(self: Link, stream: LinkConnection, reason: str, now: Instant) -> None:
        right(self, self.connection or stream, reason, now)

    patch.setattr(Link, "ended", ended)


def spends_what_it_has_not(patch: Patch) -> None:
    """The shared classes do not wait for the budget."""
    patch.setattr(LinkBudget, "allowed", lambda self, now: frozenset(SHARED))


def lets_what_the_peer_may_have_expire(patch: Patch) -> None:
    """What was sent, and was on its way to the peer's disk when the connection ended, expires here as well."""
    patch.setattr(
        QueuedMessage, "has_expired", lambda self, now: self.expires_at is not None and now >= self.expires_at
    )


FAULTS: Final[tuple[Callable[[Patch], None], ...]] = (
    acknowledges_before_the_sync,
    says_in_a_hello_what_is_not_on_disk,
    takes_an_acknowledgement_for_one_more,
    settles_more_than_was_acknowledged,
    takes_what_it_has_taken,
    gives_numbers_again_after_a_crash,
    sends_numbers_before_they_are_reserved_on_disk,
    begins_a_connection_with_the_wrong_number,
    mistakes_another_store_for_the_one_it_knew,
    believes_what_was_heard_of_another_store,
    sends_what_was_under_way_behind_what_waits,
    lets_the_backlog_overtake,
    lets_a_flow_leave_the_backlog,
    forgets_what_was_sent_last,
    forgets_the_end_of_the_outbox,
    leaves_an_event_out_of_the_journal,
    sends_qos_2_before_it_is_on_disk,
    goes_on_with_a_conversation_that_is_over,
    goes_on_with_half_a_frame_of_an_older_connection,
    ends_the_new_connection_with_an_older_one,
    spends_what_it_has_not,
    lets_what_the_peer_may_have_expire,
)
"""All of them."""
