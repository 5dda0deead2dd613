"""SUBSCRIBE and UNSUBSCRIBE (MQTT 5.0 sections 3.8, 3.10): content filters, reason codes, retained messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.event_buffer import NOT_SUBSCRIBED, EventBuffer
from edgebridge.frontend.filter_quota import FilterQuota, FiltersTooCostly
from edgebridge.frontend.job import WORK_AT_ONCE, Job, start
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.memory_accounts import OVER_SHARE
from edgebridge.frontend.retained_replay import RetainedReplay
from edgebridge.frontend.shared_subscriptions import SharedSubscriptions
from edgebridge.session.filter_cost import FilterCost
from edgebridge.session.footprint import subscription_bytes
from edgebridge.session.journal.session_records import is_owed, owed, subscription_record
from edgebridge.session.journal.state import StoredSubscription
from edgebridge.session.session import Session
from edgebridge.session.subscription_text import (
    FILTER_PREFIX,
    SHARE_PREFIX,
    WHERE_PROPERTY,
    SubscriptionRequest,
    encode_subscription,
    parse_subscription,
)
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import PacketTooLarge, ProtocolViolation
from edgebridge.wire.packets import SubAck, Subscribe, SubscriptionOption, UnsubAck, Unsubscribe
from edgebridge.wire.properties import Properties, Property, subscription_identifiers, user_properties
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.errors import EdgebrokerError, FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.instants import Instant
from edgebroker.node.events import SubscribeRequest, UnsubscribeRequest
from edgebroker.node.node import Node, SubscriptionGrant, SubscriptionRefusal
from edgebroker.node.subscriptions import Subscription
from edgebroker.topics import check_levels

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember
    from edgebridge.frontend.federation.held_subacks import HeldSubacks

REASON_STRING_MAX: Final = 1_024  # characters; enough for the longest refusal of a filter with what is wrong in it
ENTRY_BYTES: Final = 256  # what an entry of a packet takes until all are done, with its answer

# Work in units of `errands.WORK_AT_ONCE`, about a microsecond. Of text each counts a quarter of its characters too.
READ_WORK: Final = 2  # to read an entry of the packet, which is done when its errand begins
ENTRY_WORK: Final = 24  # a subscription that comes or goes
TEST_WORK: Final = 4  # an elementary test that is put into the matching tree, or taken out
REPLAY_WORK: Final = 8  # to begin with retained messages
RETAINED_WORK: Final = 8  # to look at a retained message, and to send it


class StoreRefusal(EdgebrokerError):
    """What is asked for would have to be kept, and the disk takes nothing."""


_REASONS: Final[tuple[tuple[type[EdgebrokerError], ReasonCode, str], ...]] = (
    (FilterInvalid, ReasonCode.TOPIC_FILTER_INVALID, "filter_invalid"),
    (FiltersTooCostly, ReasonCode.QUOTA_EXCEEDED, "filters_too_costly"),
    (FilterTooComplex, ReasonCode.QUOTA_EXCEEDED, "filter_too_complex"),
    (TopicInvalid, ReasonCode.TOPIC_FILTER_INVALID, "topic_filter_invalid"),
    (StoreRefusal, ReasonCode.QUOTA_EXCEEDED, "disk"),
)
"""What the client hears, and the cause under which it is counted."""
_SEND_IF_NEW, _SEND_NEVER = 1, 2  # retain handling (section 3.8.3.1)


class DiskFailure(ProtocolViolation):
    """What was granted was to be kept, and the disk failed before it was answered. The client is not to blame."""

    reason = ReasonCode.QUOTA_EXCEEDED


class _SubscribeResult(NamedTuple):
    """To one entry of a SUBSCRIBE, and the work it was."""

    reason: int
    work: int
    why: str
    granted: SubscriptionGrant | None = None
    request: SubscriptionRequest | None = None
    gets_retained: bool = False
    """The client is to get what is retained."""


class SubscribeHandler:
    """What clients ask for, and what they get at once: the answer, then the retained messages that match."""

    def __init__(
        self,
        node: Node,
        session_journal: SessionJournal,
        sharing: SharedSubscriptions,
        replaying: RetainedReplay,
        filters: FilterQuota,
        events: EventBuffer,
    ) -> None:
        self._node = node
        self._journal = session_journal
        self._shared_subscriptions = sharing
        self.replay = replaying
        self.federation: FederationMember | None = None
        self.held_subacks: HeldSubacks | None = None
        """The SUBACKs that wait for other gateways; None: there are none to wait for."""
        self.filter_quota = filters
        self.refused: Counter[str] = Counter()
        """Entries of SUBSCRIBE that were not granted, by cause."""
        self.events = events

    def on_subscribe(self, connection: Connection, subscribe: Subscribe, now: Instant) -> None:
        """Grant or refuse each entry on its own, in as many turns as it takes. Raises PacketTooLarge."""
        count = len(subscribe.subscriptions)
        _check_answer(connection, SubAck(subscribe.packet_id, [0] * count))
        start(connection, self._subscribe(connection, subscribe), count * ENTRY_BYTES)

    def _subscribe(self, connection: Connection, subscribe: Subscribe) -> Job:
        session = connection.session
        assert session is not None
        identifiers = subscription_identifiers(subscribe.properties)
        identifier = identifiers[0] if identifiers else 0
        wheres = [value for name, value in user_properties(subscribe.properties) if name == WHERE_PROPERTY]
        awaited = 0
        reasons: list[int] = []
        is_alone, why = len(subscribe.subscriptions) == 1, ""
        shares = False
        # The same filter again in one packet: what the first is owed, the last gets [5: MQTT-3.8.4-5].
        recalls: dict[str, tuple[Subscription, SubscriptionRequest]] = {}
        skips_own: dict[str, bool] = {}
        changes = 0 if self.held_subacks is None else self.held_subacks.changes
        yield 0
        now = yield READ_WORK * len(subscribe.subscriptions)
        work = 0
        for option in subscribe.subscriptions:
            if reasons:  # who asks for one thing is answered in the same turn, however hard it was
                now = yield work
                self._check_promise(awaited)
            if connection.dialect.is_bridge:
                no_local = not option.topic_filter.startswith(SHARE_PREFIX)
                option = replace(option, no_local=no_local, retain_as_published=True)
            before = self._journal.awaited
            answer = self._ask(session, option, wheres, identifier, is_alone, now)
            if self._journal.awaited != before:
                awaited = self._journal.awaited
            reasons.append(answer.reason)
            if answer.why and len(why) < REASON_STRING_MAX:
                why += "; " * bool(why) + (answer.why if is_alone else f"{option.topic_filter[:80]}: {answer.why}")
            granted, request = answer.granted, answer.request
            if granted is not None and request is not None:
                if request.share is not None:  # retained messages are for each subscriber, so not for one of a group
                    shares = True
                else:
                    if answer.gets_retained:
                        skips_own[request.text] = skips_own.get(request.text, True) and option.no_local
                    if request.text in skips_own:
                        self.replay.schedule(granted.subscription, request, skips_own[request.text])
                        recalls[request.text] = granted.subscription, request
                    else:  # again, perhaps while retained messages are on their way: they stay owed (section 3.8.4)
                        self.replay.replace_subscription(granted.subscription)
            work = answer.work
        if why:
            asked = f"{subscribe.subscriptions[0].topic_filter[:80]}: " if is_alone else ""
            self.events.add_often(NOT_SUBSCRIBED, connection, max(reasons), asked + why)
        suback = encode_packet(SubAck(subscribe.packet_id, reasons), connection.dialect)
        if why and connection.has_problem_information:
            properties: Properties = {Property.REASON_STRING: why[:REASON_STRING_MAX]}
            explained = encode_packet(SubAck(subscribe.packet_id, reasons, properties), connection.dialect)
            if connection.fits(explained):  # [MQTT-3.9.2-1]
                suback = explained
        if self.held_subacks is not None and min(reasons) < FAILURE and self.held_subacks.must_hold(changes):
            self.held_subacks.hold(connection, suback, awaited)
        else:
            self._journal.add_barrier(connection, awaited)
            connection.send(suback)
        now = yield work
        for text, (subscription, request) in recalls.items():
            looked = self.replay.examined
            self.replay.resume(session, now)
            if self.replay.is_pending(session, text):
                self.replay.record_pending(session, text, True, now)
            if self.federation is not None:
                self.federation.retained.query(subscription, request, skips_own[text], now)
            now = yield REPLAY_WORK + RETAINED_WORK * (self.replay.examined - looked)
        if shares:
            self._shared_subscriptions.member_connected(session, now)

    def on_unsubscribe(self, connection: Connection, unsubscribe: Unsubscribe, now: Instant) -> None:
        """End the subscriptions with these texts. Messages on their way still arrive [MQTT-3.10.4-3].

        Raises PacketTooLarge.
        """
        count = len(unsubscribe.topic_filters)
        _check_answer(connection, UnsubAck(unsubscribe.packet_id, [0] * count))
        start(connection, self._unsubscribe(connection, unsubscribe), count * ENTRY_BYTES)

    def _unsubscribe(self, connection: Connection, unsubscribe: Unsubscribe) -> Job:
        session = connection.session
        assert session is not None
        awaited = 0
        reasons: list[int] = []
        yield 0
        now = yield READ_WORK * len(unsubscribe.topic_filters)
        work = 0
        for text in unsubscribe.topic_filters:
            if reasons:
                now = yield work
                self._check_promise(awaited)
            before = self._journal.awaited
            ended = self._node.handle(UnsubscribeRequest(session.client_id, text), now)
            if ended:
                session.subscribed -= 1
                session.subscription_bytes -= subscription_bytes(text)
            weight = self.filter_quota.release(session, text)
            work = ENTRY_WORK + len(text) // 4 + TEST_WORK * (0 if weight is None else weight.tests)
            self._journal.unsubscribed(session, text, now)
            reasons.append(ReasonCode.SUCCESS if ended else ReasonCode.NO_SUBSCRIPTION_EXISTED)
            if self._journal.awaited != before:
                awaited = self._journal.awaited
        self._journal.add_barrier(connection, awaited)
        connection.send(encode_packet(UnsubAck(unsubscribe.packet_id, reasons), connection.dialect))
        yield work

    def _ask(
        self,
        session: Session,
        option: SubscriptionOption,
        wheres: list[str],
        identifier: int,
        is_alone: bool,
        now: Instant,
    ) -> _SubscribeResult:
        """Grant or refuse one entry. Unless it *is_alone*, what is retained may be sent in a later turn."""
        work = ENTRY_WORK + len(option.topic_filter) // 4
        try:
            request = _request(option, wheres)
            check_levels(request.topic_filter.text, self._node.routes.topic_levels_max)
            work += 0 if request.filter is None else request.filter.work
            self._check_disk(session, option, wheres, identifier)
            weight = self.filter_quota.admit(session, request)
        except (TopicInvalid, FilterInvalid, FilterTooComplex, StoreRefusal) as error:
            reason, cause = _reason_of(error)
            self.refused[cause] += 1
            if cause == "filter_too_complex":  # nobody knows when that was found
                work = WORK_AT_ONCE
            return _SubscribeResult(reason, work + len(option.topic_filter), str(error))
        if session.rights is not None and not session.rights.subscribe(request.topic_filter):
            self.refused["not_authorized"] += 1
            return _SubscribeResult(ReasonCode.NOT_AUTHORIZED, work, "nothing of this may be read")
        is_known = request.text in self._node.subscriptions.of(session.client_id)
        if not self.filter_quota.admits_memory(session, request, weight, is_known, now):
            self.refused["memory"] += 1
            return _SubscribeResult(ReasonCode.QUOTA_EXCEEDED, work, OVER_SHARE)
        if weight is not None:
            work += TEST_WORK * weight.tests
        [effect] = self._node.handle(_subscribe_event(session, option, request, identifier), now)
        if isinstance(effect, SubscriptionRefusal):
            self.filter_quota.withdraw_memory(session, request, weight)
            self.refused["shared_groups" if effect.is_for_group else "subscriptions"] += 1
            return _SubscribeResult(ReasonCode.QUOTA_EXCEEDED, work, effect.reason)
        assert isinstance(effect, SubscriptionGrant)
        _count(session, effect)
        self.filter_quota.charge(session, request.text, weight)
        handling = option.retain_handling
        may_get = handling < _SEND_IF_NEW or (handling < _SEND_NEVER and effect.is_new)
        self._append_subscription(
            session, option, wheres, identifier, may_get and not is_alone and request.share is None, now
        )
        return _SubscribeResult(option.qos, work, "", effect, request, may_get)

    def restore(self, session: Session, stored: StoredSubscription, now: Instant) -> None:
        """Take back a subscription from the journal: what was granted stays granted, whatever quotas hold by now.

        Raises what a SUBSCRIBE would be refused for that nobody can read any more.
        """
        option = SubscriptionOption(stored.text, stored.qos, stored.no_local, stored.as_published)
        wheres = [stored.where] if stored.where else []
        request = _request(option, wheres)
        weight = None if request.filter is None else FilterCost.of(request.filter)
        if not self.filter_quota.restores_memory(session, request, weight):
            raise StoreRefusal("there is no room for it in memory")
        wanted = replace(_subscribe_event(session, option, request, stored.identifier), was_granted=True)
        [effect] = self._node.handle(wanted, now)
        assert isinstance(effect, SubscriptionGrant)
        _count(session, effect)
        self.filter_quota.charge(session, request.text, weight)
        session.subscription_records[stored.text] = _record(session, option, wheres, stored.identifier, stored.is_owed)
        if stored.is_owed:
            self.replay.schedule(effect.subscription, request, option.no_local)

    def _append_subscription(
        self,
        session: Session,
        option: SubscriptionOption,
        wheres: list[str],
        identifier: int,
        will_get: bool,
        now: Instant,
    ) -> None:
        if session.expiry_s:
            before = session.subscription_records.get(option.topic_filter)
            still_gets = before is not None and is_owed(before)
            record = _record(session, option, wheres, identifier, will_get or still_gets)
            self._journal.subscribed(session, option.topic_filter, record, now)

    def _check_promise(self, awaited: int) -> None:
        """Raise DiskFails if what was granted until *awaited* cannot be promised, and so the rest need not be done."""
        if self._journal.is_refusing and awaited > self._journal.synced:
            raise DiskFailure(f"the disk takes nothing: {self._journal.trouble}")

    def _check_disk(self, session: Session, option: SubscriptionOption, wheres: list[str], identifier: int) -> None:
        """Raise StoreRefuses if the subscription would have to be kept on a disk that takes nothing.

        Who asks for what he has already, as many do whenever they come, needs no room in a journal that is full.
        """
        session_journal = self._journal
        if not session_journal.is_refusing or not session.number:
            return
        known = session.subscription_records.get(option.topic_filter)
        is_known = known is not None and owed(known, False) == _record(session, option, wheres, identifier)
        if not is_known or session_journal.storage is None or not session_journal.storage.is_full:
            raise StoreRefusal(f"the disk takes nothing: {self._journal.trouble}")


def _count(session: Session, granted: SubscriptionGrant) -> None:
    """One subscription more, if it is none that the session has already."""
    if granted.is_new:
        session.subscribed += 1
        session.subscription_bytes += subscription_bytes(granted.subscription.text)


def _check_answer(connection: Connection, barest: SubAck | UnsubAck) -> None:
    """Nothing is done of what could not be answered. Raises PacketTooLarge."""
    if connection.packet_bytes_max and not connection.fits(encode_packet(barest, connection.dialect)):
        raise PacketTooLarge("its answer is larger than what the client takes", v5="MQTT-3.1.2-24")


def _request(option: SubscriptionOption, wheres: list[str]) -> SubscriptionRequest:
    if len(wheres) > 1:
        raise FilterInvalid(f"one {WHERE_PROPERTY} per SUBSCRIBE: join them with AND", 1)
    request = parse_subscription(option.topic_filter, wheres[0] if wheres else None)
    if request.share is not None and option.no_local:
        raise ProtocolViolation("no local on a shared subscription", v5="MQTT-3.8.3-4")
    return request


def _subscribe_event(
    session: Session, option: SubscriptionOption, request: SubscriptionRequest, identifier: int
) -> SubscribeRequest:
    label = _label(request)
    return SubscribeRequest(
        session.client_id,
        request.text,
        request.topic_filter,
        request.filter,
        option.qos,
        option.no_local,
        session,
        label,
        identifier,
        option.retain_as_published,
        "" if request.share is None else label,
        session.account or f"client {session.client_id}",
    )


def _record(
    session: Session, option: SubscriptionOption, wheres: list[str], identifier: int, gets: bool = False
) -> bytes:
    return subscription_record(
        session.number,
        option.topic_filter,
        wheres[0] if wheres else "",
        option.qos,
        option.no_local,
        option.retain_as_published,
        identifier,
        gets,
    )


def _label(request: SubscriptionRequest) -> str:
    """The subscription with its filter in it, whichever way that came.

    For a shared one it is the name of its group: who asks for the same in other words belongs to it.
    """
    if request.share is None and (request.filter is None or request.text.startswith(FILTER_PREFIX)):
        return request.text
    topic = request.topic_filter.text
    if request.share is None:
        return topic if request.filter is None else encode_subscription(request.filter.text, topic)
    if request.filter is not None:
        topic = encode_subscription(request.filter.canonical, topic)
    return f"{SHARE_PREFIX}{request.share}/{topic}"


def _reason_of(error: EdgebrokerError) -> tuple[ReasonCode, str]:
    return next((reason, cause) for kind, reason, cause in _REASONS if isinstance(error, kind))
