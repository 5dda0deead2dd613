"""The journal of a federation: reordered events, interests of neighbours, reserved identifiers, received events.

An event that waits for others, or for the answers of other clusters (`ReorderStore`), was acknowledged to its sender,
so it must outlive the run. The interests of a neighbour that is down (`NeighbourInterestStore`) decide what its
sessions are owed meanwhile. No two runs give out the same identifier (`IdReservation`). A message that a peer sent is
handled in one transaction with the record of its receipt (`PeerInbox`); an unexpected error costs that message alone,
and is counted and told to the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.options import FrontendHost
from edgebroker.federation.effects import HoldEvent, StoreInterests
from edgebroker.federation.router import FederationRouter
from edgebroker.header import host_of
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.interest import Interest
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.link.journal_records import (
    StoredLinks,
    boot_record,
    delivered_record,
    held_record,
    interests_record,
)
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Forward, Message

EventId = tuple[int, int]


class ReorderStore:
    """Those of one gateway."""

    def __init__(self, session_journal: SessionJournal, stored: StoredLinks) -> None:
        """*stored*: what an earlier run left."""
        self._journal = session_journal
        self._events = dict(stored.held)
        self._last_events = stored.last_events
        self.forwarded_early = 0
        """Events that went on to peers before they were handed on here: each is two messages in the books."""

    def add(self, hold: HoldEvent, now: Instant) -> None:
        """An event waits from *now* on."""
        if self._journal.storage is None:
            return
        forward = hold.forward
        expires_in_ms = forward.expires_in_ms
        at = None if expires_in_ms is None else now + expires_in_ms * MILLISECOND + self._journal.clock_offset
        self._events[forward.header.eid] = (forward, hold.arrival, at)
        self._journal.append(held_record(forward, hold.arrival, at), True, now)

    def remove(self, eid: EventId, now: Instant) -> None:
        """An event is handed on, or leaves, and what it leads to is appended next to this."""
        if self._events.pop(eid, None) is not None:
            self._journal.append(delivered_record(eid), False, now)

    def note_delivered(self, eid: EventId, now: Instant) -> None:
        """An event of QoS 2 is delivered that did not wait: no later run takes it for a new one, nor does the gateway
        to which a reader goes that had it.
        """
        if self._journal.storage is not None:
            self._journal.append(delivered_record(eid), False, now)

    def restore_seen(self, peers: FederationRouter, links: Iterable[Link]) -> None:
        """Tell *peers* which events an earlier run has seen, as far as that is known: those that were delivered, and
        those of local clients that wait in the outboxes of *links*, which local readers have.
        """
        last, self._last_events = self._last_events, {}
        for event in (event for link in links for event in link.outbox.events()):
            publisher, sequence = event.header.eid
            if host_of(publisher) == peers.gateway.number:
                last[publisher] = max(sequence, last.get(publisher, 0))
        peers.forwarder.restore_seen(last)

    def recovered(self, now: Instant) -> list[tuple[Forward, str | None]]:
        """Return what an earlier run left: each event, and its `HoldEvent.arrival`."""
        return [(self._aged(forward, at, now), arrival) for forward, arrival, at in self._events.values()]

    def records(self, last_events: Mapping[int, int]) -> Iterator[bytes]:
        """All that the journal has to know, said again. *last_events*: publisher -> sequence of its last event that was
        seen here; it may be one that waits, which is said behind that.
        """
        for eid in last_events.items():
            yield delivered_record(eid)
        for event in tuple(self._events.values()):
            yield held_record(*event)

    def _aged(self, forward: Forward, at: int | None, now: Instant) -> Forward:
        if at is None:
            return forward
        return replace(forward, expires_in_ms=max(0, at - self._journal.clock_offset - now) // MILLISECOND)


INTERESTS_PER_RECORD: Final = 8
"""Interests in one record of a snapshot: 60 us."""


class NeighbourInterestStore:
    """Those of one gateway's neighbours."""

    def __init__(
        self, session_journal: SessionJournal, peers: FederationRouter, stored: Mapping[str, Iterable[Interest]]
    ) -> None:
        """*stored*: what an earlier run left."""
        self._journal = session_journal
        self._peers = peers
        self._stored = stored

    def take_recovered(self) -> Mapping[str, Iterable[Interest]]:
        """What an earlier run left, by neighbour; it is not kept any longer."""
        stored, self._stored = self._stored, {}
        return stored

    def update(self, learned: StoreInterests, now: Instant) -> None:
        """A neighbour wants more, or less."""
        if self._journal.storage is not None:
            change = learned.delta
            self._journal.append(interests_record(learned.peer, change.announce, change.withdraw), False, now)

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again. What is withdrawn meanwhile is not."""
        interests = self._peers.interests
        for peer in self._peers.gateway.neighbours:
            held = interests.announced_by(peer)
            for at in range(0, len(held), INTERESTS_PER_RECORD):
                yield interests_record(
                    peer,
                    [one for one in held[at : at + INTERESTS_PER_RECORD] if interests.has_announced(peer, one)],
                    (),
                )


IDS_RESERVED: Final = 16_384
"""Numbers that the journal is told of ahead of need: a restart leaves out as many at most. While half of them are left
the next are reserved; that record need not be on disk before they are given, for one commit sees fewer."""


class IdReservation:
    """What the journal knows of this run's numbers. No two runs give the same one to others.

    The first reservation of a run must be on disk before peers are met. A run that ends before that leaves no trace,
    so the next begins with the same numbers; peers would take its events for known ones, and its questions too.
    """

    def __init__(self, session_journal: SessionJournal, stored: StoredLinks, now: Instant) -> None:
        """*stored*: what an earlier run left; the clock of *session_journal* is set."""
        self.boot = max(stored.run + 1, (now + session_journal.clock_offset) // SECOND)
        """Grows with every run."""
        by_the_clock = self.boot * IDS_RESERVED  # where the journal does not know what was given
        self.first = max(stored.numbers, by_the_clock) if stored.is_damaged else stored.numbers or by_the_clock
        """Where the run's numbers begin."""
        self._journal = session_journal
        self.extend_at = 0
        """When more numbers than that are allocated, `extend` is to be called."""
        self._end = 0
        self._lsn = 0

    @property
    def is_on_disk(self) -> bool:
        """Whether peers may be met."""
        return self._lsn <= self._journal.synced

    def begin(self, numbers: IdAllocator, now: Instant) -> None:
        """The first reservation, which somebody waits for."""
        self._reserve(numbers, True, now)

    def extend(self, numbers: IdAllocator, now: Instant) -> None:
        """Reserve the numbers that are allocated next, of which less than half of a reservation is left."""
        self._reserve(numbers, False, now)

    def record(self) -> bytes:
        """What the journal has to know, said again."""
        return boot_record(self.boot, self._end)

    def _reserve(self, numbers: IdAllocator, waits: bool, now: Instant) -> None:
        self.extend_at = numbers.allocated + IDS_RESERVED // 2
        if self._journal.storage is not None:
            self._end = numbers.allocated + IDS_RESERVED
            lsn = self._journal.append(self.record(), waits, now)
            self._lsn = lsn if waits else self._lsn


class PeerInbox:
    """What the links of a gateway hand in; *handle* is called with the peer that said it."""

    def __init__(
        self, session_journal: SessionJournal, handle: Callable[[str, Message, Instant], None], host: FrontendHost
    ) -> None:
        self.failed = 0
        """Messages of peers whose handling ended in an error."""
        self._host = host
        self._journal = session_journal
        self._handle = handle

    def receive(self, link: Link, messages: Iterable[Message], now: Instant) -> None:
        """Handle *messages*. What they lead to is on disk together with the record that they came, or not at all."""
        session_journal = self._journal
        session_journal.begin_transaction()
        self.handle_each(link.peer, messages, now)
        if session_journal.is_in_transaction:
            link.handled(now)
            session_journal.commit_transaction(now)
        else:  # there is nothing but the record that says so
            session_journal.commit_transaction(now)
            link.handled(now)

    def handle_each(self, peer: str, messages: Iterable[Message], now: Instant) -> None:
        """Handle *messages* of *peer*, in a transaction. An error costs the message alone in which it occurs."""
        for message in messages:
            try:
                self._handle(peer, message, now)
            except Exception as error:
                self.fail(peer, message, error, now)
                self.failed += 1
                self._journal.begin_transaction()

    def fail(self, peer: str, what: object, error: Exception, now: Instant) -> None:
        """*error* was raised because of *what*, which is of *peer*. What is kept of it so far counts."""
        self._journal.abort_qos2()
        self._journal.commit_transaction(now)
        self._host.peer_message_failed(peer, what, error)
