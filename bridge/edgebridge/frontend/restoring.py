"""Back from the journal after a restart, and the whole state into it again for a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from edgebridge.frontend.adoption import go_on
from edgebridge.frontend.connecting import Connecting
from edgebridge.frontend.entitling import Entitling
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.subscribing import Subscribing
from edgebridge.session.acl import Acl, Rule, read_rule
from edgebridge.session.durability import Durability
from edgebridge.session.inflight import Entry
from edgebridge.session.records import (
    CLOCK,
    PACKET,
    Kind,
    copy_record,
    gone_record,
    message_record,
    retained_record,
    session_record,
)
from edgebridge.session.retained import Retained
from edgebridge.session.returned import take_back
from edgebridge.session.session import Session
from edgebridge.session.stored import Stored, StoredSession
from edgebridge.wire.properties import Property, number
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import SECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebridge.frontend.overlay import Overlay

TakeUp: TypeAlias = Callable[[Publication, int], None]
RESTATE: Final = ("restate",)
"""The deadline at which a snapshot goes on."""
LOOK_US: Final = SECOND
"""How often what is held is added up while the journal is full, when the disk was done: with 10,000 sessions it takes
2 ms. The clock is written every minute, so nobody waits longer for it."""
COPY_BYTES: Final = 60
"""What records say of a message besides its payload, topic and properties..."""
SESSION_BYTES: Final = 200
"""...and of a session or a subscription."""
LITTLE: Final = 4
"""To win fewer segments is not worth a snapshot."""
LAST_COPY: Final = 1 << 31
"""A session with so many copies is counted anew with the next snapshot, and that takes all that waits at once. Numbers
have 32 bits, and there is a snapshot for far fewer: at 1,000 messages a second this is once in 25 days."""
AT_ONCE: Final = 64
"""Records of a snapshot between two turns: 0.3 ms at 5 us each, well below the 5 ms that an event may wait."""
SYSTEM_TOPICS: Final = "$SYS/"
"""Retained messages of the broker itself: they are made anew."""


class Restoring:
    """Both directions between the front end's state and the journal."""

    def __init__(
        self,
        node: Node,
        keeping: Keeping,
        connecting: Connecting,
        entitling: Entitling,
        subscribing: Subscribing,
        retained: Retained,
    ) -> None:
        self._node = node
        self._keeping = keeping
        self._connecting = connecting
        self._entitling = entitling
        self._subscribing = subscribing
        self._retained = retained
        self._restating: Iterator[bytes] | None = None
        self._held_bytes = 0  # when the last snapshot began
        self._looked_at: Instant = -LOOK_US
        self.overlay: Overlay | None = None
        self.complaints: list[str] = []
        """What could not be taken back, in words for the operator."""

    # -- back -------------------------------------------------------------------------------------------------

    def begin(self, stored: Stored, wall: int, now: Instant) -> bool:
        """Go on behind the records that say *stored*, and set the stored clock. To be called before anything else.

        *wall*: microseconds since 1970, as far as the machine knows. Returns whether it knows for the first time.
        """
        if stored.is_undone:
            self._keeping.append(bytes((Kind.UNDONE,)), False, now)
        is_set = stored.set_clock(wall)
        if is_set:
            self._keeping.append(CLOCK.pack(Kind.CLOCK_SET, wall), False, now)
        self._keeping.clock = max(wall, stored.clock) - now
        return is_set

    def restore(self, stored: Stored, now: Instant) -> None:
        """Take back what *stored* says. To be called after `begin`, before anything else happens."""
        self._keeping.last_session = stored.last_session
        for publication in stored.retained.values():
            publication.accepted_at -= self._keeping.clock
            publication.expires_at = self._instant(publication.expires_at)
            if publication.has_expired(now):
                self._retained.expired += 1
            elif not self._retained.keep(publication):
                self._retained.not_kept += 1
                self.complaints.append(f"a retained message is beyond the limits: {publication.topic[:80]}")
        ledger = self._node.ledger
        take_up = partial(ledger.take_up, now)
        for kept in stored.sessions.values():
            self._restore_session(kept, take_up, now)
        for session in self._connecting.sessions.values():
            if not stored.sessions[session.number].gone_at:
                self._keeping.gone(session, now)  # or a gateway that is often off would let no session expire
            for entry in () if ledger.log is None else [*session.inflight, *session.outbox]:
                publication = entry.publication
                ledger.made(now, publication.publisher, session.client_id, publication.number, 1, entry.qos)

    def _restore_session(self, kept: StoredSession, take_up: TakeUp, now: Instant) -> None:
        # Whose client was connected when the records end lost its connection then, which is now.
        gone_at = kept.gone_at - self._keeping.clock if kept.gone_at else now
        session = self._connecting.begin_session(ClientId(kept.client_id))
        session.number, session.user = kept.number, kept.user
        session.expiry_s, session.gone_at = kept.expiry_s, gone_at
        session.waits, session.patience_us = kept.durability.waits, kept.durability.patience_us
        session.claims = None if kept.claims is None else Acl({}, tuple(self._rules(kept)))
        self._entitling.entitle(session)
        session.will = kept.will
        session.received = kept.received
        for asked in kept.subscriptions.values():
            try:
                self._subscribing.restore(session, asked, now)
            except EdgebrokerError as error:
                self.complaints.append(f"{kept.client_id[:80]}: {asked.text[:80]}: {error}")
        take_back(kept.copies, session, self._keeping.clock, take_up)
        timers = self._node.timers
        if session.outbox.expiring:
            timers.set(("expire", session.client_id), now + 1)
        timers.set(("session", session.client_id), gone_at + kept.expiry_s * SECOND)
        if session.will is not None:
            delay_s = number(session.will.properties, Property.WILL_DELAY_INTERVAL, 0)
            timers.set(("will", session.client_id), gone_at + min(delay_s, kept.expiry_s) * SECOND)

    def _rules(self, kept: StoredSession) -> Iterator[Rule]:
        """What the client's token allowed. A rule that cannot be read any more allows nothing."""
        for text in kept.claims or ():
            try:
                yield read_rule(text)
            except EdgebrokerError as error:
                self.complaints.append(f"{kept.client_id[:80]}: a rule of its token: {error}")

    def _instant(self, stored: Instant | None) -> Instant | None:
        return None if stored is None else stored - self._keeping.clock

    # -- and into it again --------------------------------------------------------------------------------------

    def restate_if_wanted(self, now: Instant) -> None:
        """Begin a snapshot if the journal has grown enough for one."""
        journal = self._keeping.journal
        if journal is None or self._restating is not None:
            return
        room = journal.room
        is_near_end = room.needs_count(journal.waiting_bytes) or journal.is_full
        if is_near_end and (now - self._looked_at >= LOOK_US or room.needs_another):
            self._looked_at = now
            held = self._count_held()
            room.count(held)
            much = 2 * held + LITTLE * journal.options.segment_bytes
            if 4 * held < 3 * self._held_bytes and (journal.is_full or journal.segments.bytes > much):
                journal.want_snapshot()
        if journal.wants_snapshot:
            for session in [one for one in self._connecting.sessions.values() if one.last_copy > LAST_COPY]:
                self._begin_anew(session, now)
            self._held_bytes = self._count_held()
            begun = journal.begin_snapshot(now)
            self._restating = self._state(begun, now)
            self._node.timers.set(RESTATE, now + 1)

    def _begin_anew(self, session: Session, now: Instant) -> None:
        """A session takes another number in the journal, where its copies are counted from 1 again."""
        keeping = self._keeping
        keeping.begin_together()
        session.number = session.last_copy = 0
        go_on(keeping, session, Durability(keeps=True, waits=session.waits, patience_us=session.patience_us), now)
        if session.connection is None:
            keeping.gone(session, now)
        keeping.end_together(now)

    def _count_held(self) -> int:
        """What a snapshot would take, in bytes, roughly."""
        octets = self._retained.held_bytes + COPY_BYTES * len(self._retained)
        for session in self._connecting.sessions.values():
            if session.number:
                inflight, outbox = session.inflight, session.outbox
                octets += inflight.held_bytes + outbox.held_bytes + COPY_BYTES * (len(inflight) + len(outbox))
                octets += SESSION_BYTES * (1 + len(session.asked))
        links = () if self.overlay is None else self.overlay.links
        return octets + sum([link.outbox.waiting_bytes for link in links])

    def restate(self, now: Instant) -> None:
        """Say some more of the state again; the timer RESTATE rings for the rest."""
        if self._restating is None:
            return
        for _ in range(AT_ONCE):
            record = next(self._restating, None)
            if record is None:
                self._restating = None
                self._keeping.end_snapshot(now)
                return
            self._keeping.append(record, False, now)
        self._node.timers.set(RESTATE, now + 1)

    def _state(self, begun: int, now: Instant) -> Iterator[bytes]:
        """Records that say everything. What changes meanwhile is in the journal already, behind *begun*.

        Between two records anything may have happened, so each is made of what is true when it is asked for.
        """
        for session in list(self._connecting.sessions.values()):
            if not session.number:
                continue
            is_away = session.connection is None
            yield session_record(session, is_away)
            for text in list(session.asked):
                if session.number and text in session.asked:
                    yield session.asked[text]
            for packet_id in list(session.received):
                if session.number and packet_id in session.received:
                    yield PACKET.pack(Kind.RECEIVED, session.number, packet_id)
            for entry in [*session.inflight, *session.outbox]:
                if session.number and entry.number:
                    yield self._copy(session, entry, begun)
            if session.number and session.connection is None:
                yield gone_record(session, session.gone_at + self._keeping.clock)
        for topic in self._retained.topics():
            publication = self._retained.find(topic)
            if publication is not None and not topic.startswith(SYSTEM_TOPICS):
                yield retained_record(publication, self._keeping.clock)
        yield from self._overlay_records()

    def _overlay_records(self) -> Iterator[bytes]:
        """What the overlay has to say; of another one that takes its place meanwhile, all from the start."""
        overlay = None
        while overlay is not self.overlay:
            overlay = self.overlay
            for record in () if overlay is None else overlay.records():
                if overlay is not self.overlay:
                    break
                yield record

    def _copy(self, session: Session, entry: Entry, begun: int) -> bytes:
        """A copy; the first of its message says the message too."""
        publication: Publication = entry.publication
        if publication.stated >= begun:
            return copy_record(publication, session, entry)
        publication.stated = self._keeping.next_record()
        return message_record(publication, self._keeping.clock, [(session, entry)])
