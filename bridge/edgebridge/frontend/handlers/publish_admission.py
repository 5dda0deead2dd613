"""Admission of a PUBLISH: why a message is refused, and whether the queues of its readers have room for it.

A refused message gets no number and no fate; it is counted by its `Refusal` (docs/fates.md). `has_room` asks queues
whose policy is to refuse the publisher when they are full (`QueueFull.REFUSE`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.session.session import Session
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import frame_bounds
from edgebridge.wire.reasons import ReasonCode
from edgebroker.node.routes import Route
from edgebroker.node.shared_groups import SharedGroup
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication

PACKET_BYTES_LIMIT: Final = 1 << 28
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


REASON_TEXTS: Final[dict[ReasonCode, str]] = {
    ReasonCode.NOT_AUTHORIZED: "you may not publish under this topic",
    ReasonCode.QUOTA_EXCEEDED: "there is no room for another retained message",
    ReasonCode.PAYLOAD_FORMAT_INVALID: "the payload is said to be UTF-8, and is not",
}
"""What a publisher reads in the answer to a message that is not taken..."""
RESERVED: Final = "topics that begin with $ are the broker's own"
CONTENT_NOT_ALLOWED: Final = "you may publish under this topic, but not this: the rule has a condition"
"""...and where that is not all."""


DISALLOWED_TEXT: Final = "the text of a property has control characters or non-characters"


class DiskRefusal(ProtocolError):
    """A message would have to be on disk before it is acknowledged, and the disk takes nothing (P1)."""

    reason = ReasonCode.QUOTA_EXCEEDED


class QueueRefusal(ProtocolError):
    """A reader's queue is full, and the operator wants publishers to be refused then (`QueueFull.REFUSE`)."""

    reason = ReasonCode.QUOTA_EXCEEDED


class MemoryRefusal(QueueRefusal):
    """What waits for kept sessions fills its part of memory, and a reader that is away or behind would get more."""


class MessageTooLarge(QueueRefusal):
    """A message is larger than such a queue may be: another attempt would be in vain."""

    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


class OutboxRefusal(QueueRefusal):
    """So much waits for another gateway that no more of local clients is taken for it."""


def count_qos_0(data: bytes) -> int:
    """How many whole PUBLISH packets of QoS 0 *data* begins with, other packets among them; it begins with a packet."""
    found = at = 0
    end = len(data)
    while at + 1 < end:
        first, stop = data[at], at + 2 + data[at + 1]
        if data[at + 1] > 0x7F:  # a length of more bytes
            try:
                bounds = frame_bounds(data, at, PACKET_BYTES_LIMIT)
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


def has_room(publication: Publication, route: Route) -> bool:
    """Whether no queue refuses *publication*, which is not accepted yet: every copy can be sent or queued, and so can
    that of whom each group would choose. All of them together, not only each by itself.
    """
    if not publication.qos:
        return True
    size = publication.held_bytes()
    copies = route.copies_for(publication)
    for copy in copies:
        session: Session = copy.receiver
        if copy.qos and session.must_refuse(size):
            return False
    groups = route.wanting()
    if not all(group.has_room(publication, route.may_read) or not _refuses(group, size) for group in groups):
        return False
    if not groups and (not copies or copies[0].receiver.outbox.has_room_for(size, 0, len(copies))):
        return True  # no session has two, and each was asked
    return _have_room_together(size, _readers(publication, copies, route))


def _readers(publication: Publication, copies: tuple[Copy, ...], route: Route) -> list[Session]:
    """Who gets a copy that may have to wait, once for each."""
    chosen = [group.would_choose(publication, route.may_read) for group in dict.fromkeys(route.wanting())]
    members = [member.receiver for member in chosen if member is not None and member.qos]
    return [*(copy.receiver for copy in copies if copy.qos), *members]


def _have_room_together(size: int, readers: list[Session]) -> bool:
    """Whether the queues that refuse have room when each reader's copy has come, and none leaves meanwhile."""
    waiting = _waiting(readers)
    in_all = sum(waiting.values())
    return all(
        session.outbox.policy is not OverflowPolicy.REFUSE or session.outbox.has_room_for(size, copies, in_all)
        for session, copies in waiting.items()
    )


def _waiting(readers: list[Session]) -> dict[Session, int]:
    """How many copies would wait for whom. Of several for one reader only the first is on its way for certain."""
    waiting: dict[Session, int] = {}
    for session in readers:
        waiting[session] = waiting.get(session, 0) + (session in waiting or not session.can_send_now())
    return {session: copies for session, copies in waiting.items() if copies}


def _refuses(group: SharedGroup, size: int) -> bool:
    return any(member.qos and member.receiver.must_refuse(size) for member in group.members)


def would_have_room(publication: Publication, route: Route) -> bool:
    """As `has_room`, if nothing waited anywhere: who says it again later would be refused again."""
    size = publication.held_bytes()
    if any(copy.qos and _is_too_small(copy.receiver, size) for copy in route.copies_for(publication)):
        return False
    for group in route.wanting():
        if all(member.qos and _is_too_small(member.receiver, size) for member in group.members):
            return False
    waiting = _waiting(_readers(publication, route.copies_for(publication), route))
    in_all = sum(waiting.values())
    return all(
        session.outbox.policy is not OverflowPolicy.REFUSE or session.outbox.could_hold_copies(size, copies, in_all)
        for session, copies in waiting.items()
    )


def _is_too_small(session: Session, size: int) -> bool:
    return session.outbox.policy is OverflowPolicy.REFUSE and size > session.outbox.bytes_max
