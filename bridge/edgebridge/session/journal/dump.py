"""Journal records described by name, for people and programs (`edgebroker journal`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from edgebridge.session.journal.copy_record import CopyReader
from edgebridge.session.journal.message import READ_ERRORS, read_publication
from edgebridge.session.journal.message_header import MessageHeader
from edgebridge.session.journal.session_records import (
    BATCHED,
    CLOCK,
    COPY,
    COPY_OF,
    GONE,
    ONE,
    PACKET,
    PAGED,
    PAGED_ROW,
    QOS,
    ROW,
    SENT,
    SESSION,
    SUBSCRIPTION,
    UNPAGED,
    WILL,
    SessionRecordKind,
    read_bridge_sync,
)
from edgebridge.session.journal.text import TextInterner
from edgebridge.session.journal.transfer_records import (
    COPY_EVENT,
    EVENT_ROW,
    KNOWN_EVENTS,
    TRANSFER,
    TransferFlag,
)
from edgebridge.wire.fields import read_text
from edgebroker.overlay.link.journal_records import LinkRecordKind, describe_page_record

LINK_PAGE_KINDS: Final = (LinkRecordKind.PAGED, LinkRecordKind.UNPAGED)
"""The records of links that are described by name."""


def describe(record: bytes, lsn: int = 0) -> dict[str, Any]:
    """The record *lsn* in words, for people and programs: its kind and what it names."""
    try:
        page = describe_page_record(record)
        if page is not None:
            return page
        kind = SessionRecordKind(record[0])
        described: dict[str, Any] = {"kind": kind.name.lower()}
        if kind in (SessionRecordKind.MESSAGE, SessionRecordKind.RETAINED):
            described.update(_describe_message(record, lsn))
        else:
            described.update(_DESCRIBED[kind](record))
    except READ_ERRORS:
        return {"kind": "unknown", "hex": record[:64].hex()}
    return described


def _describe_message(record: bytes, lsn: int) -> dict[str, Any]:
    head = MessageHeader()
    head.read(record, lsn)
    at = head.at
    one, to = CopyReader(), []
    for _ in range(head.copies):
        one.read(record, at)
        at = one.end
        to.append({"session": one.session, "copy": one.copy, "qos": one.flags & QOS, "packet_id": one.packet_id})
    publication = read_publication(
        record, at, head.flags, head.accepted_at, head.expires_at, head.number, TextInterner()
    )
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
    } | _describe_bridge_sync(flags, expiry_s)


def _describe_gone(record: bytes) -> dict[str, Any]:
    _, number, expiry_s, flags, at = GONE.unpack_from(record)
    described = {"session": number, "expiry_s": expiry_s, "flags": flags, "clock": at}
    return described | _describe_bridge_sync(flags, expiry_s)


def _describe_bridge_sync(flags: int, expiry_s: int) -> dict[str, Any]:
    state, _ = read_bridge_sync(flags, expiry_s)
    return {} if state is None else {"bridge_sync": state.name.lower()}


def _describe_paged(record: bytes) -> dict[str, Any]:
    names = ("session", "page", "first", "count", "file_bytes", "held_bytes", "oldest_at", "newest_at", "expiring")
    rows = PAGED_ROW.iter_unpack(memoryview(record)[PAGED.size :])
    copies = [{"first": first, "count": count} for first, count in rows]
    return dict(zip((*names, "expires_at"), PAGED.unpack_from(record)[1:], strict=True)) | {"copies": copies}


def _describe_unpaged(record: bytes) -> dict[str, Any]:
    names = ("session", "page", "first", "oldest_at")
    described = dict(zip(names, UNPAGED.unpack_from(record)[1:], strict=True))
    return described | {"content_bytes": len(record) - UNPAGED.size}


def _describe_retained_by(record: bytes) -> dict[str, Any]:
    topic, at = read_text(record, 1)
    return {"topic": topic, "account": read_text(record, at)[0]}


def _describe_transfer(record: bytes) -> dict[str, Any]:
    names = ("session", "flags", "peer", "gateway", "number", "sequence")
    described = dict(zip(names, TRANSFER.unpack_from(record)[1:], strict=True))
    flags = TransferFlag(described.pop("flags"))
    described["flags"] = [flag.name.lower() for flag in TransferFlag if flag in flags and flag.name]
    return described | {"client": read_text(record, TRANSFER.size)[0]}


def _describe_events(record: bytes) -> dict[str, Any]:
    rows = EVENT_ROW.iter_unpack(memoryview(record)[KNOWN_EVENTS.size :])
    return {**_named("session")(record, ONE), "events": [{"publisher": one, "sequence": last} for one, last in rows]}


def _named(*names: str) -> Callable[[bytes, Any], dict[str, Any]]:
    return lambda record, layout: dict(zip(names, layout.unpack_from(record)[1:], strict=True))


_SESSION_PACKET: Final = _named("session", "packet_id")
_DESCRIBED: Final[dict[SessionRecordKind, Callable[[bytes], dict[str, Any]]]] = {
    SessionRecordKind.SESSION: _describe_session,
    SessionRecordKind.ENDED: lambda record: _named("session")(record, ONE),
    SessionRecordKind.GONE: _describe_gone,
    SessionRecordKind.SUBSCRIBED: lambda record: {
        **_named("session", "options", "identifier")(record, SUBSCRIPTION),
        "text": read_text(record, SUBSCRIPTION.size)[0],
    },
    SessionRecordKind.UNSUBSCRIBED: lambda record: {
        **_named("session")(record, ONE),
        "text": read_text(record, ONE.size)[0],
    },
    SessionRecordKind.COPY: lambda record: _named("message")(record, COPY_OF),
    SessionRecordKind.SENT: lambda record: _named("session", "copy", "packet_id")(record, SENT),
    SessionRecordKind.RELEASED: lambda record: _named("session", "copy")(record, COPY),
    SessionRecordKind.SETTLED: _describe_settled,
    SessionRecordKind.RECEIVED: lambda record: _SESSION_PACKET(record, PACKET),
    SessionRecordKind.FORGOTTEN: lambda record: _SESSION_PACKET(record, PACKET),
    SessionRecordKind.CLEARED: lambda record: {"topic": read_text(record, 1)[0]},
    SessionRecordKind.RETAINED_BY: _describe_retained_by,
    SessionRecordKind.UNCLEARED: lambda record: {
        **_named("session")(record, ONE),
        "topic": read_text(record, ONE.size)[0],
    },
    SessionRecordKind.CLOCK: lambda record: _named("clock")(record, CLOCK),
    SessionRecordKind.CLOCK_SET: lambda record: _named("clock")(record, CLOCK),
    SessionRecordKind.PAGED: _describe_paged,
    SessionRecordKind.UNPAGED: _describe_unpaged,
    SessionRecordKind.TRANSFER: _describe_transfer,
    SessionRecordKind.COPY_EVENT: lambda record: _named("session", "copy", "is_held", "publisher", "sequence")(
        record, COPY_EVENT
    ),
    SessionRecordKind.KNOWN_EVENTS: _describe_events,
    SessionRecordKind.LAST_EVENTS: _describe_events,
    **dict.fromkeys(
        (SessionRecordKind.STATED, SessionRecordKind.TOGETHER, SessionRecordKind.WHOLE, SessionRecordKind.UNDONE),
        lambda record: {},
    ),
}
