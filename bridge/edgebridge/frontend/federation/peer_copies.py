"""The accounts of copies that are sent to peers. In the ledger a peer is a subscriber called `gateway:NAME`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from edgebridge.frontend.connection import OutBatch
from edgebridge.frontend.federation.convert import to_publication
from edgebroker.dataclasses import dataclass
from edgebroker.federation.link_pager import PageAccounts
from edgebroker.instants import Instant
from edgebroker.log_schema import PEER_PREFIX, Cause, EventId, Fate, MessageOrigin
from edgebroker.node.ledger import Ledger
from edgebroker.overlay.link.class_queue import LinkPage, event_of, events_of, messages_in
from edgebroker.overlay.messages import EventSeries, Forward, Message
from edgebroker.publication import Publication


@dataclass(slots=True)
class _OpenRun:
    """Copies of a run of QoS 0 for one peer."""

    sequence: int
    """That of the first event, in the numbering of its publisher in the overlay."""
    batch: OutBatch


class PeerCopyLedger(PageAccounts):
    """Copies on their way to peers. Without a delivery log they are only counted."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # With a log: what its rows need to say. An event goes to a peer more than once if links fail on its way.
        self._open: dict[tuple[str, EventId], deque[Publication]] = {}
        # Of runs, by peer and number of the publisher in the overlay: a link sends what it gets of one in order.
        self._open_batches: dict[tuple[str, int], deque[_OpenRun]] = {}
        self._has_begun = False
        self._earlier_pages: set[int] = set()  # their messages are numbered when they are read

    def begin(self, waiting: Iterable[tuple[str, Forward]], pages: Iterable[LinkPage], now: Instant) -> None:
        """At first an earlier run's copies wait, each for a peer, some of them in *pages*: they belong to messages of
        this run from now on.
        """
        if not self._has_begun:
            self._has_begun = True
            for peer, forward in waiting:
                self.resume_copy(peer, forward, now)
            for page in pages:
                self._earlier_pages.add(page.number)
                self._ledger.matched += page.count

    def open_copy(self, peer: str, eid: EventId, publication: Publication, now: Instant) -> None:
        """A copy of *publication*, which is numbered and counted, is for *peer*."""
        if self._ledger.log is not None:
            self._ledger.made(
                now,
                publication.publisher,
                _subscriber(peer),
                publication.number,
                1,
                publication.qos,
                publication.origin,
            )
            self._open.setdefault((peer, eid), deque()).append(publication)

    def resume_copy(self, peer: str, forward: Forward, now: Instant) -> None:
        """A copy of *forward* for *peer*, which an earlier run or another link had, is one of this run."""
        publication = to_publication(forward, now)
        self._ledger.take_up(now, publication, 1, forward.header.eid)
        self.open_copy(peer, forward.header.eid, publication, now)

    def open_batch(self, peer: str, eid: EventId, batch: OutBatch, now: Instant) -> None:
        """The copies of *batch*, which is numbered and counted, are for *peer*. *eid*: that of its first event."""
        if batch.has_rows:
            self._ledger.made(now, batch.publisher, _subscriber(peer), batch.first, batch.count, 0, batch.origin)
        self._open_batches.setdefault((peer, eid[0]), deque()).append(_OpenRun(eid[1], batch))

    def delivered(self, peer: str, messages: Iterable[Message], now: Instant) -> None:
        """*peer* has them, or at QoS 0 they were written."""
        if self._ledger.log is None:
            self._ledger.delivered += sum(map(messages_in, messages))
            return
        self._end(peer, messages, Fate.DELIVERED, Cause.NONE, now)

    def dropped(self, peer: str, messages: Iterable[Message], cause: Cause, fate: Fate, now: Instant) -> None:
        """They will not be sent: they expired, or *cause* says why."""
        if self._ledger.log is None:
            if fate is Fate.EXPIRED:
                self._ledger.expired += _count(messages)
            elif count := _count(messages):
                self._ledger.count_dropped(_subscriber(peer), cause, count)
            return
        self._end(peer, messages, fate, cause, now)

    # -- pages: copies that are on the disk alone are no longer open here --------------------------------------------

    def numbers(self, peer: str, messages: Sequence[Message]) -> list[int]:
        if self._ledger.log is None:
            return []
        opened = [self._open.get((peer, event.header.eid)) for event in map(event_of, messages) if event is not None]
        return [publications[0].number if publications else 0 for publications in opened]

    def paged_out(self, peer: str, messages: Sequence[Message], now: Instant) -> None:
        if self._ledger.log is not None:
            for event in map(event_of, messages):
                publication = None if event is None else self._close_copy((peer, event.header.eid))
                if publication is not None:
                    self._ledger.leave(now, publication, _subscriber(peer), "", publication.qos)

    def paged_in(self, peer: str, page: int, messages: Sequence[Message], numbers: Sequence[int], now: Instant) -> None:
        is_earlier = page in self._earlier_pages
        self._earlier_pages.discard(page)
        if self._ledger.log is None and not is_earlier:
            return
        for message, number in zip(messages, numbers, strict=True):
            event = event_of(message)
            if event is None:
                continue
            if is_earlier:
                self.resume_copy(peer, event, now)
                self._ledger.matched -= 1  # it was counted with its page
            elif number:
                publication = to_publication(event, now)
                publication.number, publication.origin = number, MessageOrigin.RESUMED
                self.open_copy(peer, event.header.eid, publication, now)

    def page_lost(self, peer: str, page: int, count: int, cause: Cause) -> None:
        self._earlier_pages.discard(page)
        if not self._has_begun:
            self._ledger.matched += count
        self._ledger.count_dropped(_subscriber(peer), cause, count)

    # -- the end ------------------------------------------------------------------------------------------------------

    def close_books(self, now: Instant) -> None:
        """The books are closed: what is open stays queued."""
        for (peer, _), publications in self._open.items():
            for publication in publications:
                self._ledger.leave(now, publication, _subscriber(peer), "", publication.qos)
        log = self._ledger.log
        if log is None:
            return
        for (peer, _), batches in self._open_batches.items():
            for each in batches:
                each.batch.end(log, _subscriber(peer), Fate.QUEUED, Cause.NONE, now)

    def _end(self, peer: str, messages: Iterable[Message], fate: Fate, cause: Cause, now: Instant) -> None:
        for message in messages:
            first = message.first if isinstance(message, EventSeries) else event_of(message)
            if first is None:
                continue
            count, eid = messages_in(message), first.header.eid
            publication = self._close_copy((peer, eid)) if count == 1 else None
            batch = None if publication is not None else self._close_batch(peer, eid, count)
            if batch is not None:
                self._end_batch(_subscriber(peer), batch, fate, cause, now)
                continue
            for forward in events_of(message):
                if count > 1:  # of a series of QoS 1 each has a copy of its own
                    publication = self._close_copy((peer, forward.header.eid))
                self._end_copy(_subscriber(peer), publication or to_publication(forward, now), fate, cause, now)

    def _end_copy(self, subscriber: str, publication: Publication, fate: Fate, cause: Cause, now: Instant) -> None:
        if fate is Fate.DELIVERED:
            self._ledger.deliver(now, publication, subscriber, "", publication.qos)
        elif fate is Fate.EXPIRED:
            self._ledger.expire(now, publication, subscriber, "", publication.qos)
        else:
            self._ledger.drop(now, publication, subscriber, "", publication.qos, cause)

    def _end_batch(self, subscriber: str, batch: OutBatch, fate: Fate, cause: Cause, now: Instant) -> None:
        if fate is Fate.DELIVERED:
            self._ledger.delivered += batch.count
        elif fate is Fate.EXPIRED:
            self._ledger.expired += batch.count
        else:
            self._ledger.count_dropped(subscriber, cause, batch.count)
        assert self._ledger.log is not None
        batch.end(self._ledger.log, subscriber, fate, cause, now)

    def _close_batch(self, peer: str, eid: EventId, count: int) -> OutBatch | None:
        """Close the copies of *count* events from *eid* on, and return them; None if they are in no open run."""
        key = (peer, eid[0])
        batches = self._open_batches.get(key)
        if batches is None:
            return None
        for at, each in enumerate(batches):
            start = eid[1] - each.sequence
            left = each.batch.count - start - count
            if start < 0 or left < 0:
                continue
            ended = each.batch.part(start, count)
            del batches[at]
            if left:
                batches.insert(at, _OpenRun(eid[1] + count, each.batch.part(start + count, left)))
            if start:
                batches.insert(at, _OpenRun(each.sequence, each.batch.part(0, start)))
            if not batches:
                del self._open_batches[key]
            return ended
        return None

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
    return PEER_PREFIX + peer
