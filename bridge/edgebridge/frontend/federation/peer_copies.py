"""The accounts of copies that are sent to peers. In the ledger a peer is a subscriber called `gateway:NAME`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from edgebridge.frontend.federation.convert import to_publication
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause, Fate
from edgebroker.node.ledger import Ledger
from edgebroker.overlay.link.class_queue import event_of, events_of, messages_in
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.publication import Publication

EventId = tuple[int, int]


class PeerCopyLedger:
    """Copies on their way to peers. Without a delivery log they are only counted."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # With a log: what its rows need to say. An event goes to a peer more than once if links fail on its way.
        self._open: dict[tuple[str, EventId], deque[Publication]] = {}
        self._has_begun = False

    def begin(self, waiting: Iterable[tuple[str, Forward]], now: Instant) -> None:
        """At first an earlier run's copies wait, each for a peer: they belong to messages of this run from now on."""
        if not self._has_begun:
            self._has_begun = True
            for peer, forward in waiting:
                self._restore_copy(peer, forward, now)

    def open_copy(self, peer: str, eid: EventId, publication: Publication, now: Instant) -> None:
        """A copy of *publication*, which is numbered and counted, is for *peer*."""
        if self._ledger.log is not None:
            self._ledger.made(now, publication.publisher, _subscriber(peer), publication.number, 1, publication.qos)
            self._open.setdefault((peer, eid), deque()).append(publication)

    def delivered(self, peer: str, messages: Iterable[Message], now: Instant) -> None:
        """*peer* has them, or at QoS 0 they were written."""
        if self._ledger.log is None:
            self._ledger.delivered += sum(map(messages_in, messages))
            return
        for publication in self._ended(peer, messages, now):
            self._ledger.deliver(now, publication, _subscriber(peer), "", publication.qos)

    def dropped(self, peer: str, messages: Iterable[Message], cause: Cause, fate: Fate, now: Instant) -> None:
        """They will not be sent: they expired, or *cause* says why."""
        if self._ledger.log is None:
            if fate is Fate.EXPIRED:
                self._ledger.expired += _count(messages)
            elif count := _count(messages):
                self._ledger.count_dropped(_subscriber(peer), cause, count)
            return
        for publication in self._ended(peer, messages, now):
            if fate is Fate.EXPIRED:
                self._ledger.expire(now, publication, _subscriber(peer), "", publication.qos)
            else:
                self._ledger.drop(now, publication, _subscriber(peer), "", publication.qos, cause)

    def close_books(self, now: Instant) -> None:
        """The books are closed: what is open stays queued."""
        for (peer, _), publications in self._open.items():
            for publication in publications:
                self._ledger.leave(now, publication, _subscriber(peer), "", publication.qos)

    def _restore_copy(self, peer: str, forward: Forward, now: Instant) -> None:
        publication = to_publication(forward, now)
        if self._ledger.log is not None:
            self._ledger.log.stamp(forward.header.eid)
        self._ledger.take_up(now, publication, 1)
        self.open_copy(peer, forward.header.eid, publication, now)

    def _ended(self, peer: str, messages: Iterable[Message], now: Instant) -> Iterable[Publication]:
        for message in messages:
            for forward in events_of(message):
                yield self._close_copy((peer, forward.header.eid)) or to_publication(forward, now)

    def _close_copy(self, copy: tuple[str, EventId]) -> Publication | None:
        """The oldest message of which *copy* is open; None without a log."""
        publications = self._open.get(copy)
        if publications is None:
            return None
        publication = publications.popleft()
        if not publications:
            del self._open[copy]
        return publication


def _count(messages: Iterable[Message]) -> int:
    """How many events there are in *messages*."""
    return sum(
        messages_in(message)
        for message in messages
        if isinstance(message, EventSeries) or event_of(message) is not None
    )


def _subscriber(peer: str) -> str:
    return f"gateway:{peer}"
