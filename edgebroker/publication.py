"""A publication: one message a publisher handed to the broker, as the broker carries it to its readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgebroker.instants import Instant
from edgebroker.log_schema import TraceParent


class Publication:
    """One accepted message. Shared by all copies, so nobody changes it after it was accepted.

    `number` is the message's number in the delivery log (0: not accepted yet); `expires_at` is None or the instant
    after which it is of no use; `properties` belong to the front end that made it and are passed on untouched;
    `properties_bytes` is their size. `trace` is None unless the publisher wants it recorded. `stored` is its number in
    the journal, 0 if it is not kept there, and `stated` the record that says it last.
    """

    __slots__ = (
        "accepted_at",
        "content_type",
        "expires_at",
        "number",
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
        self.stored = 0
        self.stated = 0

    def held_bytes(self) -> int:
        """What keeping the message takes: payload, topic and properties. All three may be large."""
        return len(self.payload) + len(self.topic) + self.properties_bytes

    def has_expired(self, now: Instant) -> bool:
        """Whether the message is of no use any more at *now*."""
        return self.expires_at is not None and now >= self.expires_at


def plain(publisher: str, topic: str, payload: bytes, qos: int, accepted_at: Instant) -> Publication:
    """A publication without anything else, as most are: made in a third of the time that `Publication()` takes."""
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
    made.stored = 0
    made.stated = 0
    return made
