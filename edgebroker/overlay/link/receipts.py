"""Receipts: what may be acknowledged to a peer. Received is not enough: it is handled, and its record is on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from edgebroker.overlay.classes import Service

from .hello import Heard
from .inflow import Positions
from .outbox import Storage
from .records import heard_record


class Receipts:
    """What was received from one peer, how far it is safe, and what of that the peer was told."""

    def __init__(self, peer: str, positions: Positions, storage: Storage | None) -> None:
        self.positions = positions
        self._peer = peer
        self._storage = storage
        self._handled = dict(positions.upto)
        self._safe = dict(positions.upto)
        self._told: dict[Service, int] = {}  # over the present connection
        self._unsynced: deque[tuple[int, dict[Service, int]]] = deque()

    def handled(self) -> bool:
        """All that was received is handled, and what it caused is appended. Whether anything became safe by that."""
        news = {service: upto for service, upto in self.positions.upto.items() if upto != self._handled.get(service)}
        if not news:
            return False
        self._handled.update(news)
        if self._storage is None:
            self._safe.update(news)
            return True
        words = news.pop(Service.CONTROL, None)
        if news:
            events = self._events()
            lsn = self._storage.append(heard_record(self._peer, self.positions.store, events), waits=True)
            self._unsynced.append((lsn, events))
        if words is not None:
            self._safe[Service.CONTROL] = words
        return words is not None

    def synced(self, lsn: int) -> bool:
        """The journal is on disk up to *lsn*. Whether anything became safe by that."""
        is_news = False
        while self._unsynced and self._unsynced[0][0] <= lsn:
            self._safe.update(self._unsynced.popleft()[1])
            is_news = True
        return is_news

    def met(self, run: bytes, store: bytes) -> None:
        """A connection begins, and the peer says who it is."""
        if store != self.positions.store:
            self._unsynced.clear()
        self.positions.met(run, store)
        known = self.positions.upto
        self._handled = {service: upto for service, upto in self._handled.items() if service in known}
        self._safe = {service: upto for service, upto in self._safe.items() if service in known}
        self._told = dict(self._safe)  # the hello said so

    def news(self) -> list[int]:
        """Class, number, class, number, ...: what the peer is to be told now."""
        news = {service: upto for service, upto in self._safe.items() if self._told.get(service, 0) < upto}
        self._told.update(news)
        return [part for service, upto in news.items() for part in (int(service), upto)]

    def heard(self) -> Heard:
        """What a hello says of it."""
        return Heard(self.positions.run, self.positions.store, dict(self._safe))

    def records(self) -> Iterator[bytes]:
        """What the journal has to know of it, said again."""
        events = self._events()
        if events:
            yield heard_record(self._peer, self.positions.store, events)

    def _events(self) -> dict[Service, int]:
        events = dict(self._handled)
        events.pop(Service.CONTROL, None)
        return events
