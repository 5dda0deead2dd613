"""Admission of a PUBLISH: why a message is refused, and whether the queues of its readers have room for it.

A refused message gets no number and no fate; it is counted by its `Refusal` (docs/fates.md). `has_room` asks queues
whose policy is to refuse the publisher when they are full (`QueueFull.REFUSE`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

from edgebridge.frontend.journal.session_journal import DURABLE_MESSAGE_BYTES_MAX, SessionJournal
from edgebridge.frontend.memory_accounts import MemoryAccounts
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.authorization import Rights
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import Session
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import frame_bounds
from edgebridge.wire.properties import Properties, Property, number
from edgebridge.wire.reasons import ReasonCode
from edgebroker.limits import JOURNAL_LARGE_BYTES
from edgebroker.node.routes import Route
from edgebroker.node.shared_groups import RemoteMembers, SharedGroup
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication
from edgebroker.topics import RESERVED_TREES, is_reserved

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember

BRIDGE_STATE: Final = "$SYS/broker/connection/{}/state"
"""Where Mosquitto's bridges say whether they are connected, each under its own client identifier (`notifications`)."""

PACKET_BYTES_LIMIT: Final = 1 << 28
"""Bytes: no packet is larger (MQTT 5.0 section 2.1.4)."""


class Refusal(StrEnum):
    """The causes (docs/fates.md). Who said it hears of it where MQTT has a word for that, but for UNREAD."""

    NOT_ALLOWED = "not_allowed"
    """Its client may not publish that."""
    RESERVED_TOPIC = "reserved_topic"
    """Its topic is in `$SYS` or another tree of the broker itself."""
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
    MEMORY_SHARE = "memory_share"
    """It is to be retained, and the clients of its user or address hold their share of the memory."""
    UNREAD = "unread"
    """QoS 0: it had arrived, and was not read yet when its connection ended."""


NOT_ALLOWED: Final = "you may not publish under this topic"
RESERVED: Final = f"{', '.join(sorted(RESERVED_TREES))} are the broker's own trees of topics"
CONTENT_NOT_ALLOWED: Final = "you may publish under this topic, but not this: the rule has a condition"
DISALLOWED_TEXT: Final = "the text of a property has control characters or non-characters"


class PublishRefusal(ProtocolError):
    """A PUBLISH that is not accepted: `cause` is counted, `reason` and the text are what a version 5 publisher reads.

    `is_temporary`: the same message may be accepted later. A 3.1.1 publisher, which cannot be told, is disconnected
    then, so that it sends it again; otherwise it is acknowledged, as it can do nothing about it.
    """

    is_temporary: ClassVar[bool] = False

    def __init__(self, cause: Refusal, what: str) -> None:
        super().__init__(what)
        self.cause = cause


class AuthorizationRefusal(PublishRefusal):
    """The publisher has no right to it."""

    reason = ReasonCode.NOT_AUTHORIZED


class FormatRefusal(PublishRefusal):
    """The payload is not what its format indicator says (MQTT 5.0 section 3.3.2.3.2)."""

    reason = ReasonCode.PAYLOAD_FORMAT_INVALID


class RetainedRefusal(PublishRefusal):
    """The retained store has no room for it."""

    reason = ReasonCode.QUOTA_EXCEEDED


class QuotaRefusal(PublishRefusal):
    """The disk, the memory, a queue or a link has no room for it now."""

    reason = ReasonCode.QUOTA_EXCEEDED
    is_temporary = True


class MessageTooLarge(QuotaRefusal):
    """It is larger than a queue that refuses may be: another attempt would be in vain."""

    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


class PublishAdmission:
    """The one rule about which publications are accepted: rights, format, durability, memory, queues and peers.

    Every way of a PUBLISH asks it. A fast path need not where the answer cannot be a refusal: QoS 0 without retain and
    properties from a client whose rights to the topic depend on no content; QoS 1 of that kind while the journal takes
    everything (`is_refusing`, `is_full`), no queue refuses and no peer's outbox may be full.
    """

    def __init__(
        self,
        session_journal: SessionJournal,
        retained: RetainedStore,
        memory_accounts: MemoryAccounts,
        options: FrontendOptions,
    ) -> None:
        self._journal = session_journal
        self._retained = retained
        self.memory_accounts = memory_accounts
        self._checks_format = options.payload_format_checked
        self.refuses_when_full = options.queue_full is OverflowPolicy.REFUSE
        """Whether a full queue refuses its publisher; set while the gateway runs if a bridge wants it."""
        self.federation: FederationMember | None = None

    def admit(self, publication: Publication, route: Route, rights: Rights | None) -> PublishRefusal | None:
        """Why *publication*, whose readers *route* knows, is not accepted; None if it is. Asking changes nothing."""
        return (
            self._refuse_content(publication, rights)
            or self._refuse_by_journal(publication, route)
            or self._refuse_by_queues(publication, route)
            or self._refuse_by_peers(publication, route)
        )

    def _refuse_content(self, publication: Publication, rights: Rights | None) -> PublishRefusal | None:
        topic = publication.topic
        if rights is not None and not rights.may_write(publication):
            if is_reserved(topic):
                return AuthorizationRefusal(Refusal.NOT_ALLOWED, RESERVED)
            has_condition = bool(rights.write(topic).conditions)
            return AuthorizationRefusal(Refusal.NOT_ALLOWED, CONTENT_NOT_ALLOWED if has_condition else NOT_ALLOWED)
        if is_reserved(topic) and not _is_own_state(publication):
            return AuthorizationRefusal(Refusal.RESERVED_TOPIC, RESERVED)
        if publication.properties and not self.has_valid_format(publication.payload, publication.properties):
            return FormatRefusal(Refusal.PAYLOAD_FORMAT, "the payload is said to be UTF-8, and is not")
        return None

    def _refuse_by_journal(self, publication: Publication, route: Route) -> PublishRefusal | None:
        journal, size = self._journal, publication.held_bytes()
        is_refusing = journal.is_refusing and not self.frees_journal(publication)
        if (is_refusing or size > JOURNAL_LARGE_BYTES) and self._must_be_durable(publication, route):
            if is_refusing:
                return QuotaRefusal(Refusal.DISK_FULL, f"the disk takes nothing: {journal.trouble}")
            if size > DURABLE_MESSAGE_BYTES_MAX:
                why = f"a message of more than {DURABLE_MESSAGE_BYTES_MAX:,} bytes cannot be kept"
                return QuotaRefusal(Refusal.TOO_LARGE, why)
            storage = journal.storage
            if storage is not None and not storage.space.has_room_for(size, storage.waiting_bytes):
                why = f"there is no room on the disk for a message of {size:,} bytes"
                return QuotaRefusal(Refusal.DISK_FULL, why)
        if journal.is_full and self._would_wait(publication, route):
            return QuotaRefusal(Refusal.MEMORY_FULL, "memory is full of messages that wait for readers")
        return None

    def _refuse_by_queues(self, publication: Publication, route: Route) -> PublishRefusal | None:
        if not self.refuses_when_full or has_room(publication, route):
            return None
        if would_have_room(publication, route):
            return QuotaRefusal(Refusal.QUEUE_FULL, "a reader's queue is full")
        why = "it is larger than the queue of a reader may be, which refuses what it has no room for"
        return MessageTooLarge(Refusal.TOO_LARGE, why)

    def _refuse_by_peers(self, publication: Publication, route: Route) -> PublishRefusal | None:
        if self.federation is None or not publication.qos:
            return None
        peer = self.federation.backpressure.full_peer(publication)
        peer = peer or self.federation.groups.full_gateway(publication, route)
        return QuotaRefusal(Refusal.OUTBOX_FULL, f"too much waits for gateway {peer}") if peer else None

    def has_readers(self, publication: Publication, route: Route) -> bool:
        """Whether somebody gets *publication* now, here or at another gateway."""
        own = publication.publisher
        if any(copy.without_own(own) is not None for copy in route.copies_for(publication)) or route.wanting():
            return True
        return self.federation is not None and bool(self.federation.peers.next_peers(publication))

    def frees_journal(self, publication: Publication) -> bool:
        """Whether *publication* clears a retained message, which makes room in a journal that is merely full."""
        journal = self._journal.storage
        is_empty = publication.retain and not publication.payload
        return is_empty and journal is not None and journal.is_full and bool(self._retained.find(publication.topic))

    def has_valid_format(self, payload: bytes, properties: Properties) -> bool:
        """Whether *payload* is what its format indicator says, if that is checked here (section 3.3.2.3.2)."""
        if self._checks_format and number(properties, Property.PAYLOAD_FORMAT_INDICATOR, 0):
            try:
                payload.decode()
            except UnicodeDecodeError:
                return False
        return True

    def _must_be_durable(self, publication: Publication, route: Route) -> bool:
        """Whether somebody is promised that *publication* is on disk."""
        if not publication.qos:
            return False
        if self.federation is not None:  # somebody elsewhere may be promised it
            return True
        copies = route.copies_for(publication)
        members = [member.alone() for group in route.wanting() for member in group.members]
        return publication.retain or any(copy.qos and copy.receiver.number for copy in (*copies, *members))

    def _would_wait(self, publication: Publication, route: Route) -> bool:
        """Whether *publication* would wait in the queue of a durable session that is away or behind."""
        return publication.qos > 0 and (
            any(_is_behind(copy) for copy in route.copies_for(publication))
            or any(
                group.is_local and all(_is_behind(member.alone()) for member in group.members)
                for group in route.wanting()
            )
        )


def _is_behind(copy: Copy) -> bool:
    session: Session = copy.receiver
    return copy.qos > 0 and session.number > 0 and session.is_behind


def _is_own_state(publication: Publication) -> bool:
    """Whether a bridge publishes its own state: the one topic of the broker that clients may write."""
    return publication.topic == BRIDGE_STATE.format(publication.publisher)


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
    sessions = [each for each in members if not isinstance(each, RemoteMembers)]
    return [*(copy.receiver for copy in copies if copy.qos), *sessions]


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
    return any(member.qos and member.receiver.must_refuse(size) for member in group.own_members)


def would_have_room(publication: Publication, route: Route) -> bool:
    """As `has_room`, if nothing waited anywhere: who says it again later would be refused again."""
    size = publication.held_bytes()
    if any(copy.qos and _is_too_small(copy.receiver, size) for copy in route.copies_for(publication)):
        return False
    for group in route.wanting():
        if group.is_local and all(member.qos and _is_too_small(member.receiver, size) for member in group.members):
            return False
    waiting = _waiting(_readers(publication, route.copies_for(publication), route))
    in_all = sum(waiting.values())
    return all(
        session.outbox.policy is not OverflowPolicy.REFUSE or session.outbox.could_hold_copies(size, copies, in_all)
        for session, copies in waiting.items()
    )


def _is_too_small(session: Session, size: int) -> bool:
    return session.outbox.policy is OverflowPolicy.REFUSE and size > session.outbox.bytes_max
