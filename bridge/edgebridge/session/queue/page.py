"""A page: successive messages of one queue that are on the disk, or on their way there or back."""

from __future__ import annotations

from edgebridge.session.inflight import QueueEntry
from edgebroker.instants import Instant


class QueuePage:
    """What the gateway knows of a page. It takes 250 bytes, for 512 messages that would take 190 KiB."""

    __slots__ = (
        "accepted_at",
        "count",
        "entries",
        "expires_at",
        "expiring",
        "file_bytes",
        "first",
        "held_bytes",
        "is_accounted",
        "is_requested",
        "newest_at",
        "number",
    )

    def __init__(self, number: int, first: int, count: int, held_bytes: int, file_bytes: int) -> None:
        self.number = number
        """Names its file."""
        self.first = first
        """The number of its first message among the copies of the session; the others follow it without a gap."""
        self.count = count
        self.held_bytes = held_bytes
        """What its messages hold: their payloads, topics and properties."""
        self.file_bytes = file_bytes
        self.entries: list[QueueEntry] | None = None
        """Its messages until the file is known to be on the disk; None from then on."""
        self.is_requested = False
        """Whether it is being read."""
        self.is_accounted = False
        """Whether its messages have numbers of this boot in the accounts; else they get them when they are read."""
        self.accepted_at: Instant = 0
        """When its oldest message was accepted..."""
        self.newest_at: Instant = 0
        """...and its newest."""
        self.expiring = 0
        """How many of its messages will expire."""
        self.expires_at: Instant | None = None
        """When the last of them expires; None if some never do."""

    def has_expired(self, now: Instant) -> bool:
        """Whether all of its messages have expired at *now*, and it is not being read."""
        return self.expires_at is not None and now >= self.expires_at and not self.is_requested


def new_page(number: int, entries: list[QueueEntry]) -> QueuePage:
    """Return a page with *entries*, of which at least one must exist. The size of its file is not known yet."""
    publications = [entry.publication for entry in entries]
    held_bytes = sum([publication.held_bytes() for publication in publications])
    page = QueuePage(number, entries[0].number, len(entries), held_bytes, 0)
    page.entries = entries
    page.is_accounted = True
    page.accepted_at = min([publication.accepted_at for publication in publications])
    page.newest_at = max([publication.accepted_at for publication in publications])
    expiries = [publication.expires_at for publication in publications if publication.expires_at is not None]
    page.expiring = len(expiries)
    page.expires_at = max(expiries) if len(expiries) == len(entries) else None
    return page
