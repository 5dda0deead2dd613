"""Messages that devices publish, their topics, and the sources that they come from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from edgebridge.wire.properties import Properties
from edgebroker.cbor import encode_cbor
from edgebroker.instants import Duration, Instant

UNSAFE = str.maketrans(dict.fromkeys("/+#\0", "_"))


def level(text: str) -> str:
    """Returns *text* as one topic level: without surrounding blanks, `/`, `+`, `#` and U+0000 replaced by `_`."""
    return text.strip().translate(UNSAFE)


def is_publishable(topic: str) -> bool:
    """Whether *topic* is a valid topic name: not empty, no wildcard, no U+0000, at most 65,535 bytes."""
    return bool(topic) and not set(topic) & set("+#\0") and len(topic.encode(errors="replace")) < 65_536


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Body: TypeAlias = dict[str, Json]


class PayloadForm(Enum):
    """Formats of payloads."""

    JSON = "json"
    CBOR = "cbor"

    def encode(self, body: Body) -> bytes:
        """Returns *body* as payload. JSON is compact UTF-8; raises ValueError for NaN and infinities, which are no
        JSON.
        """
        if self is PayloadForm.CBOR:
            return encode_cbor(body)
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class DeviceMessage:
    """One message to publish. `seq` counts from 1 per device; None for status messages, which are no measurements."""

    device: str
    seq: int | None
    topic: str
    body: Body
    form: PayloadForm
    qos: int
    retain: bool = False
    sent_us: Instant | None = None
    """When it was first passed to a connection, by this machine's monotonic clock; None before."""
    raw: bytes | None = None
    """Payload in place of the body, if a device misbehaves or the content is not an object."""

    def payload(self) -> bytes:
        """Returns the bytes to publish."""
        return self.form.encode(self.body) if self.raw is None else self.raw

    def noted(self) -> dict[str, Any]:
        """Returns its content for the journal."""
        if self.raw is not None:
            return {"form": "raw", "payload": None, "payload_bytes": len(self.raw)}
        return {"form": self.form.value, "payload": self.body}

    def properties(self) -> Properties:
        """Returns the MQTT 5 properties of its PUBLISH; measurements have none."""
        return {}


class MessageSource(Protocol):
    """The source of one connection's messages. It has no clock: its owner polls `due_us`."""

    @property
    def patient(self) -> bool:
        """Whether messages may wait for room (a file) or are produced regardless (a sensor)."""
        ...

    @property
    def due_us(self) -> Duration | None:
        """When the next message is due, in microseconds since the source was started; None after the last one."""
        ...

    def emit(self) -> DeviceMessage:
        """Returns the message that is due now. Call it once per due time, and only while `due_us` is not None."""
        ...
