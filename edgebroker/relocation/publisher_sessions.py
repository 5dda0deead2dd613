"""The trace sessions of a gateway's own publishers: which of their events are traced, and when records are asked for.

Published, a session follows the other. Asking costs two messages for each link behind which readers are, so a publisher
most of whose events stay at its gateway costs more than it could gain: 16 % of all messages in the source. Here the
next session waits until a share of the messages (`share_max`) pays for the last one (docs/relocation.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MINUTE, SECOND, Duration, Instant

GRACE: Final[Duration] = 2 * SECOND
"""Time for the last events of a session to arrive everywhere: control messages overtake events."""
SESSION_MAX: Final[Duration] = 10 * MINUTE
"""A session ends after that, if it has EVENTS_MIN events. With fewer it is abandoned: the publisher says too little for
a move to pay.
"""
EVENTS_MIN: Final = 10
SKIPPED_MAX: Final = 100_000
"""Events after which a publisher is traced again, whatever the last session cost."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How publishers are traced. PUBLISHED_SESSIONS are those of the source."""

    events: int = 100
    """G_threshold: the events of a session."""
    share_max: float | None = 0.025
    """The share of a publisher's messages that its statistics may be; None: sessions follow each other."""


PUBLISHED_SESSIONS: Final = SessionOptions(share_max=None)


class TracedPublisher:
    """The session of one publisher."""

    __slots__ = ("ends_at", "events", "session", "skipped")

    def __init__(self) -> None:
        self.session = 0
        """The sequence of its first event; 0: none."""
        self.events = 0
        """Events of the session so far."""
        self.skipped = 0
        """Events that are not traced before the next session."""
        self.ends_at: Instant | None = None
        """When the session ends at the latest; None: its records are being asked for, or there is none."""


class PublisherSessions:
    """The trace sessions of all publishers of one gateway."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._publishers: dict[int, TracedPublisher] = {}

    def session_of(self, publisher: int, sequence: int, now: Instant) -> int:
        """Return the session of the event *sequence*, which is published now; 0: it is not traced."""
        traced = self._publishers.get(publisher)
        if traced is None:
            traced = self._publishers[publisher] = TracedPublisher()
        if not traced.session:
            if traced.skipped:
                traced.skipped -= 1
                return 0
            self._begin(traced, sequence, now)
        if traced.ends_at is None or traced.events >= self._options.events:
            return 0
        traced.events += 1
        if traced.events == self._options.events:
            traced.ends_at = now + GRACE
        return traced.session

    def begin(self, publisher: int, sequence: int, now: Instant) -> Instant:
        """Begin a session with the publisher's next event, *sequence*, whatever is unpaid. Return when it ends at the
        latest.
        """
        return self._begin(self._publishers.setdefault(publisher, TracedPublisher()), sequence, now)

    def _begin(self, traced: TracedPublisher, sequence: int, now: Instant) -> Instant:
        traced.session, traced.events, traced.ends_at, traced.skipped = sequence, 0, now + SESSION_MAX, 0
        return traced.ends_at

    def ends_at(self, publisher: int) -> Instant | None:
        """Return when the session of *publisher* ends at the latest; None: there is none, or it has ended."""
        traced = self._publishers.get(publisher)
        return None if traced is None else traced.ends_at

    def is_full(self, publisher: int) -> bool:
        """Return whether the session of *publisher* has all its events."""
        traced = self._publishers.get(publisher)
        return traced is not None and traced.session > 0 and traced.events >= self._options.events

    def take_due(self, now: Instant) -> Iterator[tuple[int, int]]:
        """Yield publisher and session of each session that has ended; its records are to be asked for."""
        for publisher in self._publishers:
            session = self.take(publisher, now)
            if session:
                yield publisher, session

    def take(self, publisher: int, now: Instant) -> int:
        """Return the session of *publisher* whose records are to be asked for, because it has ended at *now*; 0: there
        is none, or it had too few events.
        """
        traced = self._publishers[publisher]
        if traced.ends_at is None or traced.ends_at > now:
            return 0
        traced.ends_at = None
        if traced.events < EVENTS_MIN:
            traced.session = 0
        return traced.session

    def unpaid_of(self, publisher: int) -> int:
        """Return after how many further events the last session of *publisher* is paid for."""
        traced = self._publishers.get(publisher)
        return 0 if traced is None else traced.skipped

    @property
    def next_due(self) -> Instant | None:
        """Return when to call `take_due`; None: no session is open."""
        dues = (traced.ends_at for traced in self._publishers.values() if traced.ends_at is not None)
        return min(dues, default=None)

    def end(self, publisher: int, asked: int, visits: int) -> int:
        """End a session after its records have arrived, and return how many events it had; 0: it is unknown.

        asked: the gateways that were asked, each with two messages. visits: the gateways that the events of the session
        entered, all together.
        """
        traced = self._publishers.get(publisher)
        if traced is None or not traced.session:
            return 0
        traced.session, traced.skipped = 0, self.unpaid(asked, visits, traced.events)
        return traced.events

    def unpaid(self, asked: int, visits: int, events: int) -> int:
        """Return after how many further events a session of *events* events is paid for, if these entered, or would
        enter, *visits* gateways. asked: as in `end`.
        """
        share = self._options.share_max
        if share is None or not visits:
            return 0
        earned = visits / events * share / (1 - share)  # messages that one event pays for
        return max(0, min(SKIPPED_MAX, ceil(2 * asked / earned) - events))

    def skip(self, publisher: int, events: int) -> None:
        """Do not trace the next *events* events of a publisher that has moved here: its last session is unpaid."""
        self._publishers.setdefault(publisher, TracedPublisher()).skipped = events

    def forget(self, publisher: int) -> None:
        """Forget a publisher that has moved or ended."""
        self._publishers.pop(publisher, None)
