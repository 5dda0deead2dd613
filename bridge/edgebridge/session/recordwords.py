"""Records of the journal in words, for people and programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from edgebridge.session.knowntexts import KnownTexts
from edgebridge.session.records import (
    BATCHED,
    CLOCK,
    COPY,
    COPY_OF,
    GONE,
    ONE,
    PACKET,
    QOS,
    ROW,
    SENT,
    SESSION,
    SUBSCRIPTION,
    WILL,
    Kind,
)
from edgebridge.session.saidcopy import SaidCopy
from edgebridge.session.saidhead import SaidHead
from edgebridge.session.storedmessage import MISREAD, publication_of
from edgebridge.wire.fields import read_text


def describe(record: bytes, lsn: int = 0) -> dict[str, Any]:
    """The record *lsn* in words, for people and programs: its kind and what it names."""
    try:
        kind = Kind(record[0])
        described: dict[str, Any] = {"kind": kind.name.lower()}
        if kind in (Kind.MESSAGE, Kind.RETAINED):
            described.update(_describe_message(record, lsn))
        else:
            described.update(_DESCRIBED[kind](record))
    except MISREAD:
        return {"kind": "unknown", "hex": record[:64].hex()}
    return described


def _describe_message(record: bytes, lsn: int) -> dict[str, Any]:
    head = SaidHead()
    head.read(record, lsn)
    at = head.at
    one, to = SaidCopy(), []
    for _ in range(head.copies):
        one.read(record, at)
        at = one.end
        to.append({"session": one.session, "copy": one.copy, "qos": one.flags & QOS, "packet_id": one.packet_id})
    publication = publication_of(record, at, head.flags, head.accepted_at, head.expires_at, head.number, KnownTexts())
    described: dict[str, Any] = {
        "message": head.number,
        "topic": publication.topic,
        "publisher": publication.publisher,
        "qos": publication.qos,
        "payload_bytes": len(publication.payload),
        "accepted_at": head.accepted_at,
        "copies": to,
    }
    if head.cause is not None:
        described.update(publisher_session=head.cause[0], packet_id=head.cause[1])
    if head.instead_of is not None:
        described.update(instead_of=dict(zip(("session", "copy"), head.instead_of, strict=True)))
    return described


def _describe_settled(record: bytes) -> dict[str, Any]:
    rows = ROW.iter_unpack(memoryview(record)[1:])
    return {"copies": [{"session": session, "first": first, "count": count} for session, first, count in rows]}


def _describe_session(record: bytes) -> dict[str, Any]:
    _, number, expiry_s, flags = SESSION.unpack_from(record)
    return {
        "session": number,
        "client": read_text(record, SESSION.size)[0],
        "expiry_s": expiry_s,
        "has_will": flags & WILL != 0,
        "is_batched": flags & BATCHED != 0,
    }


def _named(*names: str) -> Callable[[bytes, Any], dict[str, Any]]:
    return lambda record, layout: dict(zip(names, layout.unpack_from(record)[1:], strict=True))


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
    Kind.COPY: lambda record: _named("message")(record, COPY_OF),
    Kind.SENT: lambda record: _named("session", "copy", "packet_id")(record, SENT),
    Kind.RELEASED: lambda record: _named("session", "copy")(record, COPY),
    Kind.SETTLED: _describe_settled,
    Kind.RECEIVED: lambda record: _SESSION_PACKET(record, PACKET),
    Kind.FORGOTTEN: lambda record: _SESSION_PACKET(record, PACKET),
    Kind.CLEARED: lambda record: {"topic": read_text(record, 1)[0]},
    Kind.CLOCK: lambda record: _named("clock")(record, CLOCK),
    Kind.CLOCK_SET: lambda record: _named("clock")(record, CLOCK),
    **dict.fromkeys((Kind.STATED, Kind.TOGETHER, Kind.WHOLE, Kind.UNDONE), lambda record: {}),
}
