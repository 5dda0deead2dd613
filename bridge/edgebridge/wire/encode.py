"""Packets to bytes, in the shortest form each dialect allows.

What a dialect cannot say is left out. A packet it cannot say at all (a refusal no 3.1.1 return code means, a
DISCONNECT with an error or an AUTH in 3.1.1) becomes no bytes: the peer sees the connection close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from edgebridge.wire.dialect import Dialect
from edgebridge.wire.fields import write_binary, write_text, write_variable
from edgebridge.wire.head import publish_head
from edgebridge.wire.packets import (
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from edgebridge.wire.properties import encode_properties
from edgebridge.wire.reasons import FAILURE, ReasonCode, connect_return_code

__all__ = ["encode_packet", "encode_properties", "publish_head"]

PING_REQ: Final = b"\xc0\x00"
PING_RESP: Final = b"\xd0\x00"

_FIRST_BYTE_OF_ACK: Final[dict[type[Ack], int]] = {PubAck: 0x40, PubRec: 0x50, PubRel: 0x62, PubComp: 0x70}


def encode_packet(packet: Packet, dialect: Dialect) -> bytes:
    """*packet* as *dialect* writes it (a Connect as its own dialect does).

    Raises ValueError for what no packet can hold: a string over 65,535 bytes, a packet over 256 MiB.
    """
    return _ENCODERS[type(packet)](packet, dialect)


def _frame(first: int, body: bytes) -> bytes:
    return bytes((first,)) + write_variable(len(body)) + body


def _encode_connect(connect: Connect, _: Dialect) -> bytes:
    dialect, will = connect.dialect, connect.will
    flags = connect.clean_start << 1
    payload = bytearray(write_text(connect.client_id))
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        if dialect.has_properties:
            payload += encode_properties(will.properties)
        payload += write_text(will.topic)
        payload += write_binary(will.payload)
    if connect.username is not None:
        flags |= 0x80
        payload += write_text(connect.username)
    if connect.password is not None:
        flags |= 0x40
        payload += write_binary(connect.password)
    head = bytearray(write_text(dialect.name))
    head += bytes((dialect.level, flags))
    head += connect.keep_alive_s.to_bytes(2, "big")
    if dialect.has_properties:
        head += encode_properties(connect.properties)
    return _frame(0x10, bytes(head + payload))


def _encode_connack(connack: ConnAck, dialect: Dialect) -> bytes:
    if dialect.has_reasons:
        body = bytes((connack.session_present, connack.reason)) + encode_properties(connack.properties)
        return _frame(0x20, body)
    code = connect_return_code(connack.reason)
    return b"" if code is None else bytes((0x20, 2, connack.session_present and not dialect.is_old, code))


def _encode_publish(publish: Publish, dialect: Dialect) -> bytes:
    properties = encode_properties(publish.properties) if dialect.has_properties else b""
    head = publish_head(
        publish.topic.encode(),
        publish.qos,
        publish.retain,
        publish.dup,
        properties,
        len(publish.payload),
        dialect.has_properties,
    )
    packet_id = publish.packet_id.to_bytes(2, "big") if publish.qos else b""
    return head + packet_id + properties + publish.payload


def _encode_ack(ack: Ack, dialect: Dialect) -> bytes:
    first, body = _FIRST_BYTE_OF_ACK[type(ack)], ack.packet_id.to_bytes(2, "big")
    if dialect.has_reasons and (ack.reason or ack.properties):
        return _frame(first, body + _reason_and_properties(ack))
    return bytes((first, len(body))) + body  # nearly all are


def _reason_and_properties(packet: Ack | Disconnect | Auth) -> bytes:
    """Success and no properties need no bytes, a bare reason needs one (sections 3.4.2.1, 3.14.2.1, 3.15.2.1)."""
    if packet.properties:
        return bytes((packet.reason,)) + encode_properties(packet.properties)
    # AUTH is the one that has no form with a reason and without a property length.
    if packet.reason and isinstance(packet, Auth):
        return bytes((packet.reason, 0))
    return bytes((packet.reason,)) if packet.reason else b""


def _encode_subscribe(subscribe: Subscribe, dialect: Dialect) -> bytes:
    body = bytearray(subscribe.packet_id.to_bytes(2, "big"))
    if dialect.has_properties:
        body += encode_properties(subscribe.properties)
    for option in subscribe.subscriptions:
        body += write_text(option.topic_filter)
        bits = option.qos
        if dialect.has_properties:
            bits |= option.no_local << 2 | option.retain_as_published << 3 | option.retain_handling << 4
        body.append(bits)
    return _frame(0x82, bytes(body))


def _encode_suback(suback: SubAck, dialect: Dialect) -> bytes:
    packet_id = suback.packet_id.to_bytes(2, "big")
    if dialect.has_reasons:
        return _frame(0x90, packet_id + encode_properties(suback.properties) + bytes(suback.reasons))
    return _frame(0x90, packet_id + bytes(min(reason, FAILURE) for reason in suback.reasons))


def _encode_unsubscribe(unsubscribe: Unsubscribe, dialect: Dialect) -> bytes:
    body = bytearray(unsubscribe.packet_id.to_bytes(2, "big"))
    if dialect.has_properties:
        body += encode_properties(unsubscribe.properties)
    for topic_filter in unsubscribe.topic_filters:
        body += write_text(topic_filter)
    return _frame(0xA2, bytes(body))


def _encode_unsuback(unsuback: UnsubAck, dialect: Dialect) -> bytes:
    body = unsuback.packet_id.to_bytes(2, "big")
    if dialect.has_reasons:
        body += encode_properties(unsuback.properties) + bytes(unsuback.reasons)
    return _frame(0xB0, body)


def _encode_disconnect(disconnect: Disconnect, dialect: Dialect) -> bytes:
    if dialect.has_reasons:
        return _frame(0xE0, _reason_and_properties(disconnect))
    # In 3.1.1 DISCONNECT means that all is well (and discards the will), so nothing else may be sent as one.
    return b"\xe0\x00" if disconnect.reason == ReasonCode.NORMAL_DISCONNECTION else b""


def _encode_auth(auth: Auth, dialect: Dialect) -> bytes:
    return _frame(0xF0, _reason_and_properties(auth)) if dialect.has_reasons else b""


_ENCODERS: Final[dict[type[Packet], Callable[[Any, Dialect], bytes]]] = {
    Connect: _encode_connect,
    ConnAck: _encode_connack,
    Publish: _encode_publish,
    PubAck: _encode_ack,
    PubRec: _encode_ack,
    PubRel: _encode_ack,
    PubComp: _encode_ack,
    Subscribe: _encode_subscribe,
    SubAck: _encode_suback,
    Unsubscribe: _encode_unsubscribe,
    UnsubAck: _encode_unsuback,
    PingReq: lambda packet, dialect: PING_REQ,
    PingResp: lambda packet, dialect: PING_RESP,
    Disconnect: _encode_disconnect,
    Auth: _encode_auth,
}
