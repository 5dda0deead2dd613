"""Compares what a subscriber received with what the broker acknowledged: everything, in order, only QoS 1 twice."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from edgebridge.wire.packets import Publish
from edgedevices.message import DeviceMessage

DIGEST_BYTES: Final = 8
"""Two of a million messages share one with a likelihood of 3 in 100 million (birthday bound)."""
EXAMPLES_MAX: Final = 5


class MessageMark:
    """Facts about one message. Integers, because an IntFlag keeps every combination that it ever had."""

    SAID: Final = 1
    OWED: Final = 2
    """Acknowledged (QoS 1 or 2)."""
    HEARD: Final = 4
    ONCE: Final = 8
    """Published at QoS 2, so it must be received only once."""
    AGAIN: Final = 16
    """Published twice, because the session was lost."""
    LIGHT: Final = 32
    """Published at QoS 0, once, so it must be received only once."""


NUMBER: Final = 64
"""Until a message is received, its number times this is stored above its marks: small integers use no memory of their
own.
"""


ONLY: Final = (MessageMark.LIGHT, 0, MessageMark.ONCE)
"""Marks of the QoS."""


class DeliveryAudit:
    """Keeps a digest of each payload, which names device and number: 100 bytes of memory for each."""

    def __init__(self) -> None:
        self._marks: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}  # of acknowledged messages that are not received yet: a few at any time
        self._latest: dict[str, int] = {}  # topic -> number: every device has a topic of its own
        self._late: list[str] = []
        self.received = 0
        """Messages received, of any device; retained ones are not counted."""
        self.foreign = 0
        """Messages that none of our devices published."""
        self.doubled = 0
        """QoS 2 messages received again."""
        self.doubled_qos_0 = 0
        """QoS 0 messages received again: no broker sends them twice."""
        self.disordered = 0
        """Messages received first after a later one of the same device (MQTT-4.6.0-6)."""
        self.repeated = 0
        """Messages received again and permitted: QoS 1, or published twice because a session was lost."""

    def record_published(self, message: DeviceMessage, payload: bytes) -> None:
        """Records that a device publishes *message* for the first time."""
        if message.seq is not None:
            key = _key(payload)
            self._marks[key] = self._marks.get(key, message.seq * NUMBER) | MessageMark.SAID | ONLY[message.qos]
            if message.qos and not self._marks[key] & MessageMark.HEARD:
                self._names[key] = f"{message.device} {message.seq} (QoS {message.qos})"

    def record_acknowledged(self, payload: bytes) -> None:
        """Records that the broker acknowledged the message."""
        key = _key(payload)
        mark = self._marks.get(key)
        if mark is not None:
            self._marks[key] = mark | MessageMark.OWED

    def allow_duplicate(self, payload: bytes) -> None:
        """Records that a device publishes the message again, because it cannot know whether it arrived."""
        key = _key(payload)
        if key in self._marks:
            self._marks[key] |= MessageMark.AGAIN

    def record_received(self, publish: Publish) -> None:
        """Records that the subscriber received *publish*."""
        if publish.retain:
            return
        self.received += 1
        key = _key(publish.payload)
        mark = self._marks.get(key)
        if mark is None:
            self.foreign += 1
            return
        if not mark & MessageMark.HEARD:
            self._marks[key] = mark % NUMBER | MessageMark.HEARD
            self._names.pop(key, None)
            self._check_order(publish.topic, mark // NUMBER)
        elif mark & MessageMark.LIGHT:
            self.doubled_qos_0 += 1
        elif mark & MessageMark.ONCE and not mark & MessageMark.AGAIN:
            self.doubled += 1
        else:
            self.repeated += 1

    def _check_order(self, topic: str, number: int) -> None:
        latest = self._latest.get(topic, 0)
        if number >= latest:
            self._latest[topic] = number
            return
        self.disordered += 1
        if len(self._late) < EXAMPLES_MAX:
            self._late.append(f"{topic} {number} after {latest}")

    @property
    def missing(self) -> list[str]:
        """Acknowledged messages that were not received, by device and number."""
        return [name for key, name in self._names.items() if self._marks[key] & MessageMark.OWED]

    def summary(self) -> dict[str, object]:
        """Returns the audit as JSON values."""
        missing = self.missing
        owed = sum(1 for mark in self._marks.values() if mark & MessageMark.OWED)
        return {
            "acknowledged": owed,
            "heard": self.received,
            "missing": len(missing),
            "doubled": self.doubled,
            "doubled_qos_0": self.doubled_qos_0,
            "disordered": self.disordered,
            "repeated": self.repeated,
            "foreign": self.foreign,
            "first_missing": missing[:EXAMPLES_MAX],
            "first_disordered": self._late,
        }


def _key(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()
