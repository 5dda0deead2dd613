"""Why a message of a client was not accepted: it has no number and no fate, and is counted here instead."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import frame_bounds
from edgebridge.wire.reasons import ReasonCode

ANY: Final = 1 << 28
"""Bytes: no packet is larger (MQTT 5.0 section 2.1.4)."""


class Refusal(StrEnum):
    """The causes (docs/fates.md). Who said it hears of it where MQTT has a word for that, but for UNREAD."""

    NOT_ALLOWED = "not_allowed"
    """Its client may not publish that."""
    RESERVED_TOPIC = "reserved_topic"
    """Its topic begins with `$`."""
    PAYLOAD_FORMAT = "payload_format"
    """Its payload is said to be UTF-8, and is not."""
    TOO_LARGE = "too_large"
    """It would have to be kept, and is larger than a record of the journal may be, or than a queue that refuses."""
    DISK_FULL = "disk_full"
    """It would have to be on disk, and the disk takes nothing, or has no room for it."""
    MEMORY_FULL = "memory_full"
    """What waits for kept sessions fills its part of memory, and a reader of it is away or behind."""
    QUEUE_FULL = "queue_full"
    """A reader's queue is full, and is to refuse publishers then (`mqtt.queue_full`)."""
    OUTBOX_FULL = "outbox_full"
    """Too much waits for a peer gateway that wants it."""
    RETAINED_FULL = "retained_full"
    """There is no room for another retained message."""
    UNREAD = "unread"
    """QoS 0: it had arrived, and was not read yet when its connection ended."""


WHY: Final[dict[ReasonCode, str]] = {
    ReasonCode.NOT_AUTHORIZED: "you may not publish under this topic",
    ReasonCode.QUOTA_EXCEEDED: "there is no room for another retained message",
    ReasonCode.PAYLOAD_FORMAT_INVALID: "the payload is said to be UTF-8, and is not",
}
"""What a publisher reads in the answer to a message that is not taken..."""
RESERVED: Final = "topics that begin with $ are the broker's own"
OF_OTHER_CONTENT: Final = "you may publish under this topic, but not this: the rule has a condition"
"""...and where that is not all."""


DISALLOWED: Final = "the text of a property has control characters or non-characters"


class DiskRefuses(ProtocolError):
    """A message would have to be on disk before it is acknowledged, and the disk takes nothing (P1)."""

    reason = ReasonCode.QUOTA_EXCEEDED


class QueueRefuses(ProtocolError):
    """A reader's queue is full, and the operator wants publishers to be refused then (`QueueFull.REFUSE`)."""

    reason = ReasonCode.QUOTA_EXCEEDED


class MemoryRefuses(QueueRefuses):
    """What waits for kept sessions fills its part of memory, and a reader that is away or behind would get more."""


class NeverFits(QueueRefuses):
    """A message is larger than such a queue may be: another attempt would be in vain."""

    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


class OutboxRefuses(QueueRefuses):
    """So much waits for another gateway that no more of local clients is taken for it."""


def count_qos_0(data: bytes) -> int:
    """How many whole PUBLISH packets of QoS 0 *data* begins with, other packets among them; it begins with a packet."""
    found = at = 0
    end = len(data)
    while at + 1 < end:
        first, stop = data[at], at + 2 + data[at + 1]
        if data[at + 1] > 0x7F:  # a length of more bytes
            try:
                bounds = frame_bounds(data, at, ANY)
            except ProtocolError:
                break
            if bounds is None:
                break
            stop = bounds[2]
        if stop > end:
            break
        found += first >> 4 == 3 and not first & 0x06
        at = stop
    return found
