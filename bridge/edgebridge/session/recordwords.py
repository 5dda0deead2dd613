"""Records of the journal in words, for people and programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from edgebridge.session.records import (
    CLOCK,
    COPY,
    COPY_OF,
    GONE,
    MESSAGE,
    ONE,
    ONE_COPY,
    PACKET,
    QOS,
    SENT,
    SESSION,
    SUBSCRIPTION,
    WILL,
    Kind,
)
from edgebridge.session.storedmessage import MISREAD, publication_of
from edgebridge.wire.fields import read_text


def describe(record: bytes) -> dict[str, Any]:
    """A record in words, for people and programs: its kind and what it names."""
    try:
        kind = Kind(record[0])
        described: dict[str, Any] = {"kind": kind.name.lower()}
        described.update(_DESCRIBED[kind](record))
    except MISREAD:
        return {"kind": "unknown", "hex": record[:64].hex()}
    return described


def _describe_message(record: bytes) -> dict[str, Any]:
    _, flags, number, accepted_at, expires_at, publisher, packet_id, copies = MESSAGE.unpack_from(record)
    at = MESSAGE.size
    to = []
    for _ in range(copies):
        session, copy, copy_flags, copy_packet_id, count = ONE_COPY.unpack_from(record, at)
        _, at = read_text(record, at + ONE_COPY.size)
        at += 4 * count
        to.append({"session": session, "copy": copy, "qos": copy_flags & QOS, "packet_id": copy_packet_id})
    publication = publication_of(record, at, flags, accepted_at, expires_at, number)
    described: dict[str, Any] = {
        "message": number,
        "topic": publication.topic,
        "publisher": publication.publisher,
        "qos": publication.qos,
        "payload_bytes": len(publication.payload),
        "accepted_at": accepted_at,
        "copies": to,
    }
    if publisher:
        described.update(publisher_session=publisher, packet_id=packet_id)
    return described


def _describe_session(record: bytes) -> dict[str, Any]:
    _, number, expiry_s, flags = SESSION.unpack_from(record)
    return {
        "session": number,
        "client": read_text(record, SESSION.size)[0],
        "expiry_s": expiry_s,
        "has_will": flags & WILL != 0,
    }


def _named(*names: str) -> Callable[[bytes, Any], dict[str, Any]]:
    return lambda record, layout: dict(zip(names, layout.unpack_from(record)[1:], strict=True))


_SESSION_COPY: Final = _named("session", "copy")
_SESSION_PACKET: Final = _named("session", "packet_id")
_DESCRIBED: Final[dict[Kind, Callable[[bytes], dict[str, Any]]]] = {
    Kind.SESSION: _describe_session,
    Kind.ENDED: lambda record: _named("session")(record, ONE),
    Kind.GONE: lambda record: _named("session", "expiry_s", "flags", "clock")(record, GONE),
    Kind.SUBSCRIBED: lambda record: {
        **_named("session", "options", "identifier")(record, SUBSCRIPTION),
        "text": read_text(record, SUBSCRIPTION.size)[0],
    },
    Kind.UNSUBSCRIBED: lambda record: {**_named("session")(record, ONE), "text": read_text(record, ONE.size)[0]},
    Kind.MESSAGE: _describe_message,
    Kind.COPY: lambda record: _named("message")(record, COPY_OF),
    Kind.SENT: lambda record: _named("session", "copy", "packet_id")(record, SENT),
    Kind.RELEASED: lambda record: _SESSION_COPY(record, COPY),
    Kind.SETTLED: lambda record: _SESSION_COPY(record, COPY),
    Kind.RECEIVED: lambda record: _SESSION_PACKET(record, PACKET),
    Kind.FORGOTTEN: lambda record: _SESSION_PACKET(record, PACKET),
    Kind.RETAINED: _describe_message,
    Kind.CLEARED: lambda record: {"topic": read_text(record, 1)[0]},
    Kind.CLOCK: lambda record: _named("clock")(record, CLOCK),
    Kind.STATED: lambda record: {},
}
