"""The ledger: the fate of every message and every copy. `published = sum of fates` always holds.

It counts everything; with a delivery log, each fate is logged too. A *run* is a series of messages with consecutive
numbers that share publisher, topic, QoS and size: one call accounts for all of them. Messages that get no
rows, because QoS 0 is sampled, need not even share their topic: as long as one publisher sends them, the ledger
collects their run and tells the log of it once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edgebroker.instants import Instant
from edgebroker.log_schema import NO_EVENT, Cause, EventId, Fate, MessageOrigin, TraceParent
from edgebroker.publication import Publication

if TYPE_CHECKING:
    from edgebroker.storage.deliverylog.writer import DeliveryLog

DROPS_MAX: Final = 1_000
"""Subscribers and causes whose drops are counted one by one until `take_drops`: about 150 KiB."""


class Ledger:
    """The accounts of one run of a broker."""

    def __init__(self, log: DeliveryLog | None = None) -> None:
        self.set_log(log)
        self.published = 0
        """Messages accepted; also the number of the last one."""
        self.filtered = 0
        """Messages without copies."""
        self.matched = 0
        """Copies made."""
        self.delivered = 0
        self.expired = 0
        self.dropped: dict[Cause, int] = {}
        self._drops: dict[tuple[str, Cause], int] = {}
        self._run_publisher = ""
        self._run_origin = 0
        self._run_first = 0
        self._run_count = 0  # of the run that is being collected; 0: there is none

    def set_log(self, log: DeliveryLog | None) -> None:
        """Log each fate in *log* from now on."""
        self.log = log
        self._sample_qos0 = 1 if log is None else log.sample_qos0

    @property
    def queued(self) -> int:
        """Copies that have no final fate yet."""
        return self.matched - self.delivered - self.expired - sum(self.dropped.values())

    def accept(
        self,
        now: Instant,
        publisher: str,
        count: int,
        topic: str,
        qos: int,
        payload_bytes: int,
        copies: int,
        no_copies_cause: Cause = Cause.NO_SUBSCRIBER,
        trace: TraceParent | None = None,
        event: EventId = NO_EVENT,
        origin: int = 0,
    ) -> int:
        """Number a run of *count* messages with *copies* copies each, or *no_copies_cause*; return the first number.

        event: the identity of the first in the overlay. origin: `MessageOrigin`.
        """
        first = self.published + 1
        self.published += count
        self.matched += count * copies
        if not copies:
            self.filtered += count
        log = self.log
        if log is not None:
            if not qos and copies and trace is None and not self.is_sampled(first, count):
                if (
                    not self._run_count
                    or publisher != self._run_publisher
                    or origin != self._run_origin
                    or first != self._run_first + self._run_count
                ):
                    self.end_run(now)
                    self._run_publisher = publisher
                    self._run_origin = origin
                    self._run_first = first
                self._run_count += count
                return first
            log.published(now, publisher, first, count, topic, qos, payload_bytes, copies, trace, event, origin)
            if not copies:
                log.filtered(now, publisher, first, count, topic, qos, no_copies_cause, payload_bytes, trace, origin)
        return first

    def is_sampled(self, first: int, count: int) -> bool:
        """Return whether one of *count* messages of QoS 0 from *first* on gets a row in the log."""
        step = self._sample_qos0
        return step > 0 and (first + count - 1) // step != (first - 1) // step

    def end_run(self, now: Instant) -> None:
        """Tell the log of the run that was collected, if there is one."""
        count = self._run_count
        if count and self.log is not None:
            self._run_count = 0
            self.log.count_published(now, self._run_publisher, self._run_first, count, self._run_origin)

    def take_up(self, now: Instant, publication: Publication, copies: int, event: EventId = NO_EVENT) -> None:
        """Account for a message that was restored from the journal, with *copies* open copies, as a message of this
        boot.
        """
        publication.origin = MessageOrigin.RESUMED
        publication.number = self.accept(
            now,
            publication.publisher,
            1,
            publication.topic,
            publication.qos,
            len(publication.payload),
            copies,
            trace=publication.trace,
            event=event,
            origin=MessageOrigin.RESUMED,
        )

    def made(
        self, now: Instant, publisher: str, subscriber: str, first: int, count: int, qos: int, origin: int = 0
    ) -> None:
        """Log the copies of a run for *subscriber*, already counted by `accept`. Does nothing without a log."""
        if self.log is not None:
            self.log.matched(now, publisher, subscriber, first, count, qos, origin)

    def deliver(self, now: Instant, publication: Publication, subscriber: str, text: str, qos: int) -> None:
        """Record that a copy reached its receiver."""
        self.delivered += 1
        if self.log is not None:
            self._fate(now, publication, subscriber, text, qos, Fate.DELIVERED, Cause.NONE)

    def expire(self, now: Instant, publication: Publication, subscriber: str, text: str, qos: int) -> None:
        """Record that a copy expired while it waited."""
        self.expired += 1
        if self.log is not None:
            self._fate(now, publication, subscriber, text, qos, Fate.EXPIRED, Cause.NONE)

    def drop(self, now: Instant, publication: Publication, subscriber: str, text: str, qos: int, cause: Cause) -> None:
        """Record that a copy was dropped."""
        self.count_dropped(subscriber, cause, 1)
        if self.log is not None:
            self._fate(now, publication, subscriber, text, qos, Fate.DROPPED, cause)

    def count_dropped(self, subscriber: str, cause: Cause, count: int) -> None:
        """Count *count* dropped copies for *subscriber*, without a row in the log."""
        self.dropped[cause] = self.dropped.get(cause, 0) + count
        drops = self._drops
        key = (subscriber, cause)
        if key not in drops and len(drops) >= DROPS_MAX:
            key = ("", cause)
        drops[key] = drops.get(key, 0) + count

    def take_drops(self) -> dict[tuple[str, Cause], int]:
        """Return copies dropped since the last call by (subscriber, cause); subscribers beyond DROPS_MAX are counted
        under "".
        """
        taken = self._drops
        if taken:
            self._drops = {}
        return taken

    def leave(self, now: Instant, publication: Publication, subscriber: str, text: str, qos: int) -> None:
        """Record that a copy is still queued when the broker stops."""
        if self.log is not None:
            self._fate(now, publication, subscriber, text, qos, Fate.QUEUED, Cause.NONE)

    def _fate(
        self, now: Instant, publication: Publication, subscriber: str, text: str, qos: int, fate: Fate, cause: Cause
    ) -> None:
        assert self.log is not None
        self.log.fate(
            now,
            publication.publisher,
            subscriber,
            publication.number,
            1,
            publication.topic,
            text,
            qos,
            fate,
            cause,
            now - publication.accepted_at,
            len(publication.payload),
            publication.trace,
            publication.origin,
        )
