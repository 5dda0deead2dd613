"""The accounts of copies that leave for peers. A peer is a subscriber called `gateway:NAME`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from edgebridge.frontend.forwards import publication_of
from edgebroker.instants import Instant
from edgebroker.node.ledger import Ledger
from edgebroker.overlay.link.lanes import event_of, events_of, messages_in
from edgebroker.overlay.messages import Forward, Message, Series
from edgebroker.publication import Publication
from edgebroker.records import Cause, Fate

Eid = tuple[int, int]


class Departures:
    """Copies on their way to peers. Without a delivery log they are only counted."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # With a log: what its rows need to say. An event goes to a peer more than once if links fail on its way.
        self._open: dict[tuple[str, Eid], deque[Publication]] = {}
        self._has_begun = False

    def begin(self, waiting: Iterable[tuple[str, Forward]], now: Instant) -> None:
        """At first an earlier run's copies wait, each for a peer: they belong to messages of this run from now on."""
        if not self._has_begun:
            self._has_begun = True
            for peer, forward in waiting:
                self._take_up(peer, forward, now)

    def leaves(self, peer: str, eid: Eid, publication: Publication, now: Instant) -> None:
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

    def leave(self, now: Instant) -> None:
        """The books are closed: what is open stays queued."""
        for (peer, _), publications in self._open.items():
            for publication in publications:
                self._ledger.leave(now, publication, _subscriber(peer), "", publication.qos)

    def _take_up(self, peer: str, forward: Forward, now: Instant) -> None:
        publication = publication_of(forward, now)
        if self._ledger.log is not None:
            self._ledger.log.stamp(forward.header.eid)
        self._ledger.take_up(now, publication, 1)
        self.leaves(peer, forward.header.eid, publication, now)

    def _ended(self, peer: str, messages: Iterable[Message], now: Instant) -> Iterable[Publication]:
        for message in messages:
            for forward in events_of(message):
                yield self._closed((peer, forward.header.eid)) or publication_of(forward, now)

    def _closed(self, copy: tuple[str, Eid]) -> Publication | None:
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
        messages_in(message) for message in messages if isinstance(message, Series) or event_of(message) is not None
    )


def _subscriber(peer: str) -> str:
    return f"gateway:{peer}"
