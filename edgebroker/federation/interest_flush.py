"""Interest flushes: a gateway learns when the others know the interests that it has announced.

A flush follows the announcements through the site, in the same class, so it arrives behind them. Each gateway sends it
on to its other neighbours, and returns it when these have returned it and the hosts to which it sends answers to
advertisements have confirmed the last one. So it takes one round trip to the gateway that learns of the interests last.

Only open links are waited for, of peers that know the message. What goes around a link that is down, by relays or over
deputies, is not waited for: it may be lost, and is compared now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import Effect, EndFlush, SendMessage
from edgebroker.instants import Duration, Instant
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import InterestFlush, InterestFlushed
from edgebroker.overlay.secondary_advertisements import SecondaryAdvertisements
from edgebroker.overlay.topology.topology import TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass

FLUSHES_MAX: Final = 1_024
"""Flushes of other gateways that are remembered; 500 bytes each. The oldest is forgotten: who began it waits in vain,
as it would if this gateway were dead.
"""


@dataclass(slots=True)
class _OpenFlush:
    """origin: the neighbour that sent it; None: this gateway began it. due: when this gateway waits no longer."""

    origin: str | None
    peers: set[str]
    """The neighbours that have not returned it."""
    hosts: dict[str, int]
    """Host -> the number of the last answer that it has not confirmed."""
    due: Instant = 0


class InterestFlushes:
    """The flushes that this gateway began, and those that pass through it."""

    def __init__(
        self, gateway: TopologyGateway, ids: IdAllocator, status: LinkStatus, secondary: SecondaryAdvertisements
    ) -> None:
        self._neighbours = gateway.neighbours
        self._peers = gateway.peers()
        self._ids = ids
        self._status = status
        self._secondary = secondary
        self._able: set[str] = set()  # neighbours with an open link that know the message
        self._own: dict[int, _OpenFlush] = {}
        self._others: dict[int, _OpenFlush] = {}
        self.forgotten = 0
        """Flushes of other gateways that were forgotten, because there were too many."""

    @property
    def next_due(self) -> Instant | None:
        """The earliest instant at which a flush of this gateway is `overdue`."""
        return next((flush.due for flush in self._own.values()), None)

    def link_up(self, peer: str, is_able: bool) -> None:
        """Handle an open link. *is_able*: the peer knows flushes."""
        if is_able and peer in self._neighbours:
            self._able.add(peer)

    def link_down(self, peer: str) -> list[Effect]:
        """Handle the loss of a link: nothing more is waited for there."""
        self._able.discard(peer)
        for request in [request for request, flush in self._others.items() if flush.origin == peer]:
            del self._others[request]
        for flush in (*self._own.values(), *self._others.values()):
            flush.peers.discard(peer)
            flush.hosts.pop(peer, None)
        return self._returned((*self._own, *self._others))

    def begin(self, now: Instant, wait: Duration) -> tuple[int, list[Effect]]:
        """Begin a flush that waits for *wait* at most. Returns its number, and what to do; `EndFlush` ends it, perhaps
        at once.
        """
        request = self._ids.next()
        self._own[request], sends = self._sent_on(request, None, now + wait)
        return request, [*sends, *self._returned((request,))]

    def receive(self, peer: str, flush: InterestFlush) -> list[Effect]:
        """Handle a flush of the neighbour *peer*."""
        if peer not in self._able or flush.request in self._others or flush.request in self._own:
            return []
        if len(self._others) >= FLUSHES_MAX:
            del self._others[next(iter(self._others))]
            self.forgotten += 1
        self._others[flush.request], sends = self._sent_on(flush.request, peer, 0)
        return [*sends, *self._returned((flush.request,))]

    def receive_return(self, peer: str, flushed: InterestFlushed) -> list[Effect]:
        """Handle a flush that *peer* returns; one that is not waited for any more is ignored."""
        flush = self._own.get(flushed.request) or self._others.get(flushed.request)
        if flush is None:
            return []
        flush.peers.discard(peer)
        return self._returned((flushed.request,))

    def confirmed(self, host: str, number: int) -> list[Effect]:
        """Record that *host* has all answers up to *number*."""
        confirmed = []
        for flushes in (self._own, self._others):
            for request, flush in flushes.items():
                if flush.hosts.get(host, number + 1) <= number:
                    del flush.hosts[host]
                    confirmed.append(request)
        return self._returned(confirmed)

    def overdue(self, now: Instant) -> list[Effect]:
        """End the flushes of this gateway that have waited for too long."""
        ended = [request for request, flush in self._own.items() if flush.due <= now]
        for request in ended:
            del self._own[request]
        return [EndFlush(request, False) for request in ended]

    def _sent_on(self, request: int, origin: str | None, due: Instant) -> tuple[_OpenFlush, list[SendMessage]]:
        """Send a flush on to the neighbours but *origin*; return what is waited for."""
        peers = [peer for peer in self._neighbours if peer in self._able and peer != origin]
        hosts = {host: last for host, last in self._secondary.last_unconfirmed() if self._is_up(host)}
        sends = [SendMessage(peer, InterestFlush(request), TrafficClass.CONTROL) for peer in peers]
        return _OpenFlush(origin, set(peers), hosts, due), sends

    def _returned(self, requests: Iterable[int]) -> list[Effect]:
        """Return those of *requests* for which nothing is waited for any more to where they came from."""
        effects: list[Effect] = []
        for request in requests:
            flushes = self._own if request in self._own else self._others
            flush = flushes[request]
            if flush.peers or flush.hosts:
                continue
            del flushes[request]
            if flush.origin is None:
                effects.append(EndFlush(request, True))
            else:
                effects.append(SendMessage(flush.origin, InterestFlushed(request), TrafficClass.CONTROL))
        return effects

    def _is_up(self, host: str) -> bool:
        return host in self._peers and self._status.is_up(host)
