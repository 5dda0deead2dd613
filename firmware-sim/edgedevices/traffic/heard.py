"""One recorded message, and the MQTT 5 properties it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cbor2

from edgebridge.wire.properties import PROPERTIES_BYTES_MAX, REPEATS_MAX, Properties, Property
from edgebroker.instants import Instant
from edgedevices.topictext import is_publishable

KEPT: Final = {
    Property.USER_PROPERTY: "user",
    Property.CONTENT_TYPE: "content_type",
    Property.RESPONSE_TOPIC: "response_topic",
    Property.CORRELATION_DATA: "correlation",
    Property.PAYLOAD_FORMAT_INDICATOR: "format",
    Property.MESSAGE_EXPIRY_INTERVAL: "expiry",
}
"""Properties of PUBLISH that are the message's own -> their keys in a recording.

Topic aliases and subscription identifiers belong to the connection on which the recorder heard the message.
"""
KINDS: Final = {
    "user": list, "content_type": str, "response_topic": str, "correlation": bytes, "format": int, "expiry": int
}  # fmt: skip
WHOLE_MAX: Final = {"format": 1, "expiry": 2**32 - 1}


@dataclass(frozen=True, slots=True)
class Heard:
    """A message as a recorder heard it. t_us: by the recorder's monotonic clock. client: "" if not known."""

    t_us: Instant
    client: str
    topic: str
    qos: int
    retain: bool
    payload: bytes
    properties: bytes = b""
    """As `written` made them."""


def written(properties: Properties) -> bytes:
    """The kept ones of *properties* as a CBOR map; empty if there are none."""
    kept = {key: properties[name] for name, key in KEPT.items() if name in properties}
    return cbor2.dumps(kept) if kept else b""


def readable(properties: bytes) -> Properties:
    """What `written` wrote. What nobody can have sent is left out: files come from anywhere."""
    if not properties or len(properties) > PROPERTIES_BYTES_MAX:
        return {}
    try:
        kept = cbor2.loads(properties)
    except Exception:  # cbor2 answers hostile input with many kinds of exception
        return {}
    if not isinstance(kept, dict):
        return {}
    return {name: kept[key] for name, key in KEPT.items() if key in kept and _is_sendable(key, kept[key])}


def _is_sendable(key: str, value: object) -> bool:
    if type(value) is not KINDS[key]:
        return False
    if isinstance(value, list):
        return len(value) <= REPEATS_MAX and all(map(_is_pair, value))
    if isinstance(value, int):
        return 0 <= value <= WHOLE_MAX[key]
    if isinstance(value, bytes):
        return len(value) < 65_536
    return is_text(value) and (key != "response_topic" or is_publishable(str(value)))  # MQTT-3.3.2-14


def _is_pair(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_text, value))


def is_text(value: object) -> bool:
    """Whether MQTT can carry *value* as a string: MQTT 5.0, section 1.5.4."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return len(value.encode()) < 65_536
    except UnicodeEncodeError:
        return False
