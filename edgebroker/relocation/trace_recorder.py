"""The trace recorder of a gateway: what it notes of traced events, and how the records come together [GRAPE 4.1].

A traced event carries the session that it belongs to. Each gateway that it passes notes whether local clients got it,
in a bit vector, and to which peers it went. When the session has ended, the publisher's gateway asks these peers with a
TIR; each asks the peers to which it sent copies, and answers with all records behind it, in a TIA. Then it forgets the
session.

Call `record` for each traced event, `receive` for each TIR and TIA, and `fire` when `next_due` has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration, Instant
from edgebroker.relocation.delay_monitor import DelayMonitor
from edgebroker.relocation.messages import RelocationEffect, SendRelocation, SessionEnd
from edgebroker.trace_records import OFFSET_MAX, TraceInformationAnswer, TraceInformationRequest, TraceRecord

ANSWER_TIMEOUT: Final[Duration] = 2 * SECOND
LEVEL_TIMEOUT: Final[Duration] = 500 * MILLISECOND
"""A gateway waits ANSWER_TIMEOUT and so much more for each further link that its request may pass, so that those behind
it give up first and their answers still arrive in time.
"""
LEVELS: Final = 32
"""Links that a TIR may pass: the longest path of 63 positions in a balanced tree has 10, and one iLink."""
SESSIONS_MAX: Final = 20_000
"""Sessions that a gateway records at a time, about 10 MiB. Others are not recorded, and counted."""
FORGOTTEN_AFTER: Final[Duration] = 15 * MINUTE
"""A session for which nobody asks is forgotten. The longest one lasts ten minutes (`publisher_sessions`)."""

SessionKey = tuple[int, int]
"""The publisher's number, and the sequence of the session's first event."""


class TraceSession:
    """What a gateway has recorded of a session so far."""

    __slots__ = ("copies", "delivered", "deliveries", "marked", "peers", "since")

    def __init__(self, since: Instant) -> None:
        self.since = since
        self.delivered = 0
        self.deliveries = 0
        self.copies = 0
        self.marked = 0
        self.peers: tuple[str, ...] = ()


@dataclass(slots=True)
class TraceCollection:
    """A session whose records are being collected."""

    asker: str | None
    """The peer that asked; None: the publisher is this gateway's own."""
    missing: set[str]
    records: list[TraceRecord]
    due: Instant
    is_partial: bool = False


class TraceRecorder:
    """Records the sessions of all publishers at one gateway."""

    def __init__(self, name: str, monitor: DelayMonitor) -> None:
        self._name = name
        self._monitor = monitor
        self._sessions: dict[SessionKey, TraceSession] = {}  # the oldest first
        self._collections: dict[SessionKey, TraceCollection] = {}
        self.refused = 0
        """Events that were not recorded: their session would have been one too many, or they do not belong to it."""
        self.forgotten = 0
        """Sessions that nobody asked for."""

    def __len__(self) -> int:
        """Return the number of sessions that are recorded."""
        return len(self._sessions)

    def record(
        self, header: EventHeader, served: Iterable[str], deliveries: int, was_marked: bool, now: Instant
    ) -> None:
        """Record a traced event.

        served: the peers to which copies went. deliveries: the local clients that got it. was_marked: whether it has
        been on a detour.
        """
        key = header.publisher, header.trace
        offset = header.sequence - header.trace
        session = self._sessions.get(key)
        if not 0 <= offset < OFFSET_MAX or (session is None and len(self._sessions) >= SESSIONS_MAX):
            self.refused += 1
            return
        if session is None:
            session = self._sessions[key] = TraceSession(now)
        session.copies += 1
        session.marked += was_marked
        session.deliveries += deliveries
        session.delivered |= (deliveries > 0) << offset
        session.peers += tuple(peer for peer in served if peer not in session.peers)

    def add_peers(self, header: EventHeader, served: Iterable[str]) -> None:
        """Note that copies of a recorded event went to the peers *served* later on, after it had waited."""
        session = self._sessions.get((header.publisher, header.trace))
        if session is not None:
            session.peers += tuple(peer for peer in served if peer not in session.peers)

    def collect(self, publisher: int, session: int, now: Instant) -> list[RelocationEffect]:
        """Ask for the records of a session of this gateway's publisher, which has ended."""
        return self._ask((publisher, session), None, LEVELS, now)

    def receive(
        self, peer: str, message: TraceInformationRequest | TraceInformationAnswer, now: Instant
    ) -> list[RelocationEffect]:
        """Handle a TIR or TIA of *peer*."""
        key = message.publisher, message.session
        if isinstance(message, TraceInformationRequest):
            if key in self._collections:  # events came here on two ways; the other one brings the record
                return [SendRelocation(peer, TraceInformationAnswer(*key, (), False))]
            return self._ask(key, peer, message.levels, now)
        collection = self._collections.get(key)
        if collection is None or peer not in collection.missing:
            return []  # it came too late
        collection.missing.discard(peer)
        collection.records += message.records
        collection.is_partial |= message.is_partial
        return [] if collection.missing else self._answer(key)

    @property
    def next_due(self) -> Instant | None:
        """Return when to call `fire`; None: nothing is recorded."""
        dues = [collection.due for collection in self._collections.values()]
        oldest = next((session for key, session in self._sessions.items() if key not in self._collections), None)
        if oldest is not None:
            dues.append(oldest.since + FORGOTTEN_AFTER)
        return min(dues, default=None)

    def fire(self, now: Instant) -> list[RelocationEffect]:
        """Answer with what there is where an answer is overdue, and forget sessions for which nobody asked."""
        effects: list[RelocationEffect] = []
        for key, collection in [*self._collections.items()]:
            if collection.due <= now:
                collection.is_partial = True
                effects += self._answer(key)
        for key, session in [*self._sessions.items()]:
            if session.since + FORGOTTEN_AFTER > now:
                break
            if key not in self._collections:
                del self._sessions[key]
                self.forgotten += 1
        return effects

    def forget(self, publisher: int) -> None:
        """Forget the sessions of a publisher that has moved."""
        for key in [key for key in self._sessions if key[0] == publisher and key not in self._collections]:
            del self._sessions[key]

    def _ask(self, key: SessionKey, asker: str | None, levels: int, now: Instant) -> list[RelocationEffect]:
        session = self._sessions.get(key)
        peers = () if session is None else tuple(peer for peer in session.peers if peer != asker)
        records = [] if session is None else [self._record_of(session)]
        is_partial = session is None or (bool(peers) and levels <= 0)
        if levels <= 0:
            peers = ()
        due = now + ANSWER_TIMEOUT + levels * LEVEL_TIMEOUT
        self._collections[key] = TraceCollection(asker, set(peers), records, due, is_partial)
        if not peers:
            return self._answer(key)
        return [SendRelocation(peer, TraceInformationRequest(*key, levels - 1)) for peer in peers]

    def _answer(self, key: SessionKey) -> list[RelocationEffect]:
        collection = self._collections.pop(key)
        self._sessions.pop(key, None)
        if collection.asker is None:
            return [SessionEnd(*key, tuple(collection.records), collection.is_partial)]
        answer = TraceInformationAnswer(*key, tuple(collection.records), collection.is_partial)
        return [SendRelocation(collection.asker, answer)]

    def _record_of(self, session: TraceSession) -> TraceRecord:
        return TraceRecord(
            self._name,
            session.delivered,
            session.deliveries,
            session.copies,
            session.marked,
            self._monitor.snapshot(),
        )
