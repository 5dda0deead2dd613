"""A packet in plain words and figures, for somebody who watches. Never its payload, a user name or a password."""

from __future__ import annotations

from typing import Any, Final

from edgebridge.wire.packets import Connect, Packet, Publish, SubAck, Subscribe, UnsubAck, Unsubscribe
from edgebridge.wire.properties import Property, number, user_properties
from edgebridge.wire.tracecontext import TRACEPARENT

TEXT_CHARS_MAX: Final = 300
FILTERS_MAX: Final = 20
"""Of one SUBSCRIBE; it may have thousands."""


def words(packet: Packet) -> dict[str, Any]:
    """Name -> value, as JSON can hold it; `packet` is the packet's name."""
    said: dict[str, Any] = {"packet": type(packet).__name__.upper()}
    match packet:
        case Connect():
            said |= {
                "version": packet.dialect.version,
                "clean": packet.clean_start,
                "keep_alive_s": packet.keep_alive_s,
                "has_user": packet.username is not None,
                "has_password": packet.password is not None,
            }
            if packet.will is not None:
                said["will"] = {"topic": _cut(packet.will.topic), "bytes": len(packet.will.payload)}
        case Publish():
            said |= {"topic": _cut(packet.topic), "qos": packet.qos, "bytes": len(packet.payload)}
            said |= {name: True for name in ("retain", "dup") if getattr(packet, name)}
        case Subscribe():
            shown = packet.subscriptions[:FILTERS_MAX]
            said["filters"] = [{"filter": _cut(one.topic_filter), "qos": one.qos} for one in shown]
            said["count"] = len(packet.subscriptions)
        case Unsubscribe():
            said["filters"] = [_cut(text) for text in packet.topic_filters[:FILTERS_MAX]]
            said["count"] = len(packet.topic_filters)
        case SubAck() | UnsubAck():
            said["reasons"] = [int(reason) for reason in packet.reasons[:FILTERS_MAX]]
    for name in ("packet_id", "session_present"):
        if value := getattr(packet, name, None):
            said[name] = value
    if reason := getattr(packet, "reason", 0):
        said["reason"] = reason.name.lower() if hasattr(reason, "name") else int(reason)
    properties = getattr(packet, "properties", None) or {}
    if alias := number(properties, Property.TOPIC_ALIAS, 0):
        said["alias"] = alias
    for name, value in user_properties(properties):
        if name == TRACEPARENT:
            said[TRACEPARENT] = _cut(value)
    return said


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"
