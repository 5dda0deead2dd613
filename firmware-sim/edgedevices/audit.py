"""What a subscriber heard against what devices were promised: every acknowledged message once, at QoS 2 only once."""

from __future__ import annotations

from enum import IntFlag
from hashlib import blake2b
from typing import Final

from edgebridge.wire.packets import Publish
from edgedevices.message import Message

DIGEST_BYTES: Final = 8
"""Two of a million messages share one with a likelihood of 3 in 100 million (birthday bound)."""
EXAMPLES_MAX: Final = 5


class Mark(IntFlag):
    """What is known of one message."""

    SAID = 1
    OWED = 2
    """It was acknowledged (QoS 1 or 2)."""
    HEARD = 4
    ONCE = 8
    """It was said at QoS 2, so it may be heard once only."""
    AGAIN = 16
    """The session was lost in between: it was said twice."""


class Audit:
    """Knows messages by a digest of their payloads, which name device and number: 100 bytes of memory for each."""

    def __init__(self) -> None:
        self._marks: dict[bytes, int] = {}
        self._names: dict[bytes, str] = {}  # of what is owed and was not heard: a handful at any time
        self.heard = 0
        """Messages that arrived, whatever they were; retained ones are not counted."""
        self.foreign = 0
        """Messages that no device of ours said."""
        self.doubled = 0
        """QoS 2 messages that came again."""
        self.repeated = 0
        """Messages that came again and may: QoS 1, or said twice because a session was lost."""

    def say(self, message: Message, payload: bytes) -> None:
        """A device sends *message* for the first time."""
        if message.seq is not None:
            key = _key(payload)
            self._marks[key] = self._marks.get(key, 0) | Mark.SAID | (Mark.ONCE if message.qos == 2 else 0)
            if message.qos and not self._marks[key] & Mark.HEARD:
                self._names[key] = f"{message.device} {message.seq} (QoS {message.qos})"

    def owe(self, payload: bytes) -> None:
        """The broker has acknowledged the message."""
        key = _key(payload)
        mark = self._marks.get(key)
        if mark is not None:
            self._marks[key] = mark | Mark.OWED

    def allow_twice(self, payload: bytes) -> None:
        """The message is said again, by a device that cannot know whether it arrived."""
        key = _key(payload)
        if key in self._marks:
            self._marks[key] |= Mark.AGAIN

    def hear(self, publish: Publish) -> None:
        """The subscriber got *publish*."""
        if publish.retain:
            return
        self.heard += 1
        key = _key(publish.payload)
        mark = self._marks.get(key)
        if mark is None:
            self.foreign += 1
            return
        if not mark & Mark.HEARD:
            self._marks[key] = mark | Mark.HEARD
            self._names.pop(key, None)
        elif mark & Mark.ONCE and not mark & Mark.AGAIN:
            self.doubled += 1
        else:
            self.repeated += 1

    @property
    def missing(self) -> list[str]:
        """What was acknowledged and not heard, by device and number."""
        return [name for key, name in self._names.items() if self._marks[key] & Mark.OWED]

    def summary(self) -> dict[str, object]:
        """The audit as plain data, for `--json`."""
        missing = self.missing
        owed = sum(1 for mark in self._marks.values() if mark & Mark.OWED)
        return {
            "acknowledged": owed,
            "heard": self.heard,
            "missing": len(missing),
            "doubled": self.doubled,
            "repeated": self.repeated,
            "foreign": self.foreign,
            "first_missing": missing[:EXAMPLES_MAX],
        }


def _key(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()
