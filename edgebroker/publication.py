"""A publication: one message accepted from a publisher, as the broker carries it to its subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edgebroker.instants import Instant
from edgebroker.log_schema import TraceParent

PROPERTIES_BYTES: Final = 300
"""What decoded properties occupy besides their text: a dictionary, and the list of the user properties..."""
USER_PROPERTY_BYTES: Final = 184
"""...and each user property: a tuple and two strings. 500 short ones in one message took 203 bytes each, 19 of which
are their text."""


class Publication:
    """One accepted message. All its copies share it, so it must not be changed after it was accepted.

    `number` is the message's number in the delivery log (0: not accepted yet); `expires_at` is None or the instant at
    which the message expires; `properties` belong to the front end that created it and are forwarded unchanged;
    `properties_bytes` is their size on the wire. `trace` is None unless the publisher wants the message traced.
    `stored` is the message's number in the journal, 0 if it is not there, and `stated` the LSN of the record that
    states it last. `origin` is `log_schema.MessageOrigin`, the place that it came from.
    """

    __slots__ = (
        "accepted_at",
        "content_type",
        "expires_at",
        "number",
        "origin",
        "payload",
        "properties",
        "properties_bytes",
        "publisher",
        "qos",
        "retain",
        "stated",
        "stored",
        "topic",
        "trace",
        "user",
    )

    def __init__(
        self,
        publisher: str,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        accepted_at: Instant,
        number: int = 0,
        properties: Any = None,
        expires_at: Instant | None = None,
        user: Sequence[tuple[str, str]] = (),
        content_type: str | None = None,
        properties_bytes: int = 0,
        trace: TraceParent | None = None,
    ) -> None:
        self.publisher = publisher
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.accepted_at = accepted_at
        self.number = number
        self.properties = properties
        self.expires_at = expires_at
        self.user = user
        self.content_type = content_type
        self.properties_bytes = properties_bytes
        self.trace = trace
        self.origin = 0
        self.stored = 0
        self.stated = 0

    def held_bytes(self) -> int:
        """Return the bytes that payload, topic and properties occupy in memory. All three may be large."""
        size = len(self.payload) + len(self.topic)
        if self.properties_bytes:
            size += self.properties_bytes + PROPERTIES_BYTES + USER_PROPERTY_BYTES * len(self.user)
        return size

    def has_expired(self, now: Instant) -> bool:
        """Return whether the message expiry interval has passed at *now*."""
        return self.expires_at is not None and now >= self.expires_at


def plain(publisher: str, topic: str, payload: bytes, qos: int, accepted_at: Instant) -> Publication:
    """Return a publication without properties, RETAIN flag or expiry, as most are. It takes a third of the time of
    `Publication()`.
    """
    made = Publication.__new__(Publication)
    made.publisher = publisher
    made.topic = topic
    made.payload = payload
    made.qos = qos
    made.retain = False
    made.accepted_at = accepted_at
    made.number = 0
    made.properties = None
    made.expires_at = None
    made.user = ()
    made.content_type = None
    made.properties_bytes = 0
    made.trace = None
    made.origin = 0
    made.stored = 0
    made.stated = 0
    return made
