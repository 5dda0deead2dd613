"""One recorded message, and the MQTT 5 properties it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import cbor2

from edgebroker.instants import Instant

KEPT: Final = {
    "UserProperty": "user",
    "ContentType": "content_type",
    "ResponseTopic": "response_topic",
    "CorrelationData": "correlation",
    "PayloadFormatIndicator": "format",
    "MessageExpiryInterval": "expiry",
}
"""Properties of PUBLISH that are the message's own, as paho names them -> their keys in a recording.

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


def written(properties: Any) -> bytes:
    """The kept ones of paho's *properties* as a CBOR map; empty if there are none."""
    kept = {key: getattr(properties, name) for name, key in KEPT.items() if hasattr(properties, name)}
    return cbor2.dumps(kept) if kept else b""


def readable(properties: bytes) -> dict[str, Any]:
    """What `written` wrote, by paho's names. What nobody can have sent is left out: files come from anywhere."""
    if not properties:
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
        return all(isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(_is_text, pair)) for pair in value)
    if isinstance(value, int):
        return 0 <= value <= WHOLE_MAX[key]
    return len(value) < 65_536 if isinstance(value, bytes) else _is_text(value)


def _is_text(value: object) -> bool:
    """Whether MQTT can carry *value* as a string: MQTT 5.0, section 1.5.4."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        return len(value.encode()) < 65_536
    except UnicodeEncodeError:
        return False
