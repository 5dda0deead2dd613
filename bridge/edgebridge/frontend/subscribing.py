"""SUBSCRIBE and UNSUBSCRIBE: carriers of content filters, refusals entry by entry, and retained messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.replaying import Replaying
from edgebridge.frontend.sharing import Sharing
from edgebridge.session.carriers import (
    FILTER_PREFIX,
    SHARE_PREFIX,
    WHERE_PROPERTY,
    SubscriptionRequest,
    filter_topic,
    parse_subscription,
)
from edgebridge.session.records import subscription_record
from edgebridge.session.session import Session
from edgebridge.session.stored import StoredSubscription
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import PacketTooLarge, ProtocolViolation
from edgebridge.wire.packets import SubAck, Subscribe, SubscriptionOption, UnsubAck, Unsubscribe
from edgebridge.wire.properties import Properties, Property, subscription_identifiers, user_properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError, FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.filters import Filter
from edgebroker.instants import Instant
from edgebroker.limits import FILTER_TESTS_PER_CLIENT_MAX
from edgebroker.node.effects import Granted, Refused
from edgebroker.node.events import Subscribed, Unsubscribed
from edgebroker.node.node import Node
from edgebroker.node.subscriptions import Subscription

REASON_STRING_MAX: Final = 1_024  # characters; enough for the longest refusal of a filter with what is wrong in it


class StoreRefuses(EdgebrokerError):
    """What is asked for would have to be kept, and the disk takes nothing."""


_REASONS: Final[tuple[tuple[type[EdgebrokerError], ReasonCode], ...]] = (
    (FilterInvalid, ReasonCode.TOPIC_FILTER_INVALID),
    (FilterTooComplex, ReasonCode.QUOTA_EXCEEDED),
    (TopicInvalid, ReasonCode.TOPIC_FILTER_INVALID),
    (StoreRefuses, ReasonCode.QUOTA_EXCEEDED),
)
_SEND_IF_NEW, _SEND_NEVER = 1, 2  # retain handling (section 3.8.3.1)


class Subscribing:
    """What clients ask for, and what they get at once: the answer, then the retained messages that match."""

    def __init__(
        self, node: Node, delivery: Delivery, keeping: Keeping, sharing: Sharing, replaying: Replaying
    ) -> None:
        self._node = node
        self._delivery = delivery
        self._keeping = keeping
        self._sharing = sharing
        self.replaying = replaying
        self.filter_tests_max = FILTER_TESTS_PER_CLIENT_MAX
        """Elementary tests in all content filters of one client."""

    def on_subscribe(self, connection: Connection, subscribe: Subscribe, now: Instant) -> None:
        """Grant or refuse each entry on its own. Raises ProtocolViolation for what the standard forbids."""
        session = connection.session
        assert session is not None
        _check_answer(connection, SubAck(subscribe.packet_id, [0] * len(subscribe.subscriptions)))
        awaited = self._keeping.awaited
        identifiers = subscription_identifiers(subscribe.properties)
        identifier = identifiers[0] if identifiers else 0
        wheres = [value for name, value in user_properties(subscribe.properties) if name == WHERE_PROPERTY]
        reasons: list[int] = []
        complaints: list[str] = []
        granted: list[tuple[Granted, SubscriptionOption, SubscriptionRequest]] = []
        for option in subscribe.subscriptions:
            if connection.dialect.is_bridge:
                no_local = not option.topic_filter.startswith(SHARE_PREFIX)
                option = replace(option, no_local=no_local, retain_as_published=True)
            try:
                request = _request(option, wheres)
                self._check_disk(session)
                self._check_tests(session, request)
            except (TopicInvalid, FilterInvalid, FilterTooComplex, StoreRefuses) as error:
                reasons.append(_reason_of(error))
                complaints.append(_complaint(error, option.topic_filter, len(subscribe.subscriptions)))
                continue
            if session.rights is not None and not session.rights.subscribe(request.topic_filter):
                reasons.append(ReasonCode.NOT_AUTHORIZED)
                complaints.append(f"{request.topic_filter.text[:80]}: nothing of this may be read")
                continue
            for effect in self._node.handle(_wanted(session, option, request, identifier), now):
                if isinstance(effect, Granted):
                    reasons.append(option.qos)
                    granted.append((effect, option, request))
                    session.subscribed += effect.is_new
                    _charge(session, request)
                    self._keep(session, option, wheres, identifier, now)
                elif isinstance(effect, Refused):
                    reasons.append(ReasonCode.QUOTA_EXCEEDED)
                    complaints.append(effect.reason)
        answer = encode_packet(SubAck(subscribe.packet_id, reasons), connection.dialect)
        if complaints and connection.has_problem_information:
            why: Properties = {Property.REASON_STRING: "; ".join(complaints)[:REASON_STRING_MAX]}
            explained = encode_packet(SubAck(subscribe.packet_id, reasons, why), connection.dialect)
            if connection.fits(explained):  # [MQTT-3.9.2-1]
                answer = explained
        if self._keeping.awaited != awaited:
            self._keeping.hold(connection, self._keeping.awaited)
        connection.send(answer)
        shares = False
        # The same filter again in one packet: what the first is owed, the last gets [5: MQTT-3.8.4-5].
        replays: dict[str, tuple[Subscription, SubscriptionRequest]] = {}
        skips_own: dict[str, bool] = {}
        for effect, option, request in granted:
            if request.share is not None:  # retained messages are for each subscriber, so not for one of a group
                shares = True
                continue
            is_owed = option.retain_handling < _SEND_IF_NEW
            if is_owed or (option.retain_handling < _SEND_NEVER and effect.is_new):
                skips_own[request.text] = skips_own.get(request.text, True) and option.no_local
            if request.text in skips_own:
                replays[request.text] = effect.subscription, request
        for text, (subscription, request) in replays.items():
            self.replaying.begin(subscription, request, skips_own[text], now)
        if shares:
            self._sharing.arrived(session, now)

    def on_unsubscribe(self, connection: Connection, unsubscribe: Unsubscribe, now: Instant) -> None:
        """End the subscriptions with these texts. Messages on their way still arrive [MQTT-3.10.4-3]."""
        session = connection.session
        assert session is not None
        _check_answer(connection, UnsubAck(unsubscribe.packet_id, [0] * len(unsubscribe.topic_filters)))
        awaited = self._keeping.awaited
        reasons: list[int] = []
        for text in unsubscribe.topic_filters:
            ended = self._node.handle(Unsubscribed(session.client_id, text), now)
            session.subscribed -= len(ended)
            session.tests.pop(text, None)
            self._keeping.unsubscribed(session, text, now)
            reasons.append(ReasonCode.SUCCESS if ended else ReasonCode.NO_SUBSCRIPTION_EXISTED)
        if self._keeping.awaited != awaited:
            self._keeping.hold(connection, self._keeping.awaited)
        connection.send(encode_packet(UnsubAck(unsubscribe.packet_id, reasons), connection.dialect))

    def restore(self, session: Session, stored: StoredSubscription, now: Instant) -> None:
        """Take back a subscription from the journal. Raises what a SUBSCRIBE would be refused for."""
        option = SubscriptionOption(stored.text, stored.qos, stored.no_local, stored.as_published)
        wheres = [stored.where] if stored.where else []
        request = _request(option, wheres)
        for effect in self._node.handle(_wanted(session, option, request, stored.identifier), now):
            if isinstance(effect, Granted):
                session.subscribed += effect.is_new
                _charge(session, request)
                session.asked[stored.text] = _record(session, option, wheres, stored.identifier)

    def _keep(
        self, session: Session, option: SubscriptionOption, wheres: list[str], identifier: int, now: Instant
    ) -> None:
        if session.number:
            self._keeping.subscribed(session, option.topic_filter, _record(session, option, wheres, identifier), now)

    def _check_tests(self, session: Session, request: SubscriptionRequest) -> None:
        """Raise FilterTooComplex if the content filters of the client would be too many and too large together."""
        if request.filter is not None:
            others = sum(session.tests.values()) - session.tests.get(request.text, 0)
            if others + tests_in(request.filter) > self.filter_tests_max:
                raise FilterTooComplex(f"all filters of a client have at most {self.filter_tests_max:,} tests together")

    def _check_disk(self, session: Session) -> None:
        """Raise StoreRefuses if the subscription would have to be kept on a disk that takes nothing."""
        if self._keeping.is_refusing and session.number:
            raise StoreRefuses(f"the disk takes nothing: {self._keeping.trouble}")


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


def _wanted(session: Session, option: SubscriptionOption, request: SubscriptionRequest, identifier: int) -> Subscribed:
    label = _label(request)
    return Subscribed(
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
    )


def _record(session: Session, option: SubscriptionOption, wheres: list[str], identifier: int) -> bytes:
    return subscription_record(
        session.number,
        option.topic_filter,
        wheres[0] if wheres else "",
        option.qos,
        option.no_local,
        option.retain_as_published,
        identifier,
    )


def _label(request: SubscriptionRequest) -> str:
    """The subscription with its filter in it, whichever way that came.

    For a shared one it is the name of its group: who asks for the same in other words belongs to it.
    """
    if request.share is None and (request.filter is None or request.text.startswith(FILTER_PREFIX)):
        return request.text
    topic = request.topic_filter.text
    if request.share is None:
        return topic if request.filter is None else filter_topic(request.filter.text, topic)
    if request.filter is not None:
        topic = filter_topic(request.filter.canonical, topic)
    return f"{SHARE_PREFIX}{request.share}/{topic}"


def _reason_of(error: EdgebrokerError) -> ReasonCode:
    return next(reason for kind, reason in _REASONS if isinstance(error, kind))


def _complaint(error: EdgebrokerError, topic_filter: str, entries: int) -> str:
    return str(error) if entries == 1 else f"{topic_filter[:80]}: {error}"


def tests_in(content_filter: Filter) -> int:
    """The elementary tests of a filter as the matching tree holds it: what it costs in memory and, at worst, in
    time.
    """
    return sum(map(len, content_filter.predicates))


def _charge(session: Session, request: SubscriptionRequest) -> None:
    if request.filter is None:
        session.tests.pop(request.text, None)
    else:
        session.tests[request.text] = tests_in(request.filter)
