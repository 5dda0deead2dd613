"""The MQTT handshakes of a bridge: CONNECT, SUBSCRIBE and UNSUBSCRIBE at both ends, and the end of a session.

A remote broker that kept our session may hold subscriptions of earlier rules: they are unsubscribed. A CONNECT that
the remote refused is repeated in another way. `SessionTeardown` ends the session of a bridge that was removed: a
client that connects with clean start and leaves has no session afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from enum import Enum
from typing import Final

from edgebridge.bridge import handshake
from edgebridge.bridge.endpoints import Endpoints, reason_text
from edgebridge.bridge.options import U16_MAX, BridgeOptions, LocalSession, RemoteCapabilities
from edgebridge.bridge.rules import BridgeRule, BridgeSubscription, RuleSet
from edgebridge.session.session import BRIDGE_SYNC_PROPERTY, BridgeSyncState
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, V311_BRIDGE, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.fields import U32_MAX
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebridge.wire.user_properties import BRIDGE_PROPERTY
from edgebroker.instants import Instant

REQUESTS_MAX: Final = 512
"""SUBSCRIBEs for as many rules as a bridge may have, and UNSUBSCRIBEs for as many that it had before."""
WINDOW_MAX: Final = U16_MAX - REQUESTS_MAX
"""Messages on their way: their packet identifiers and those of requests are of one space (MQTT-2.2.1-3)."""
INFLIGHT_MAX: Final = 128
"""Messages on their way where the settings say nothing, if the remote takes as many."""
V311_WINDOW: Final = 20
"""The same towards a remote of version 3.1.1, which cannot say: the default of Mosquitto, max_inflight_messages."""
SESSION_NEVER_EXPIRES: Final = U32_MAX  # Session Expiry Interval (section 3.1.2.11.2)
SEND_ALWAYS, SEND_IF_NEW, SEND_NEVER = 0, 1, 2  # retain handling (section 3.8.3.1)


def connect_remote(
    terms: BridgeOptions, dialect: Dialect, clean_start: bool, will_qos: int = 1, will_retains: bool = True
) -> Connect:
    """Who we are to the remote. *will_qos*, *will_retains*: of the notification that it sends when we are gone."""
    properties: Properties = {}
    if dialect.has_properties:
        properties = {
            Property.SESSION_EXPIRY_INTERVAL: SESSION_NEVER_EXPIRES,
            Property.RECEIVE_MAXIMUM: terms.receive_maximum,
            Property.MAXIMUM_PACKET_SIZE: terms.packet_bytes_max,
            Property.USER_PROPERTY: [(BRIDGE_PROPERTY, terms.identity)],
        }
    will = Will(terms.announced_topic, b"0", will_qos, will_retains) if terms.announced_topic else None
    return Connect(
        terms.client_id, clean_start, terms.keep_alive_s, terms.username, terms.password, will, properties, dialect
    )


def window_to(terms: BridgeOptions, granted: RemoteCapabilities) -> int:
    """Messages that may be on their way to the remote at once.

    Version 3.1.1 has no Receive Maximum, and Mosquitto discards messages of QoS 2 beyond its max_inflight_messages and
    acknowledges them all the same. So who speaks 3.1.1 gets no more than Mosquitto's default, unless the settings say.
    """
    if granted.dialect.has_properties:
        return min(terms.inflight_max or INFLIGHT_MAX, granted.receive_maximum)
    return terms.inflight_max or V311_WINDOW


def connect_local(terms: BridgeOptions, granted: RemoteCapabilities, is_open: bool, state: BridgeSyncState) -> Connect:
    """Who we are to our own front end: what it may send unacknowledged is what the remote takes.

    *is_open*: the remote is there. *state*: of the session from now on.
    """
    # While it is not, what is sent goes nowhere, and the queue's bounds hold for it no more: as little as MQTT allows.
    window = min(window_to(terms, granted), WINDOW_MAX) if is_open else 1
    properties: Properties = {
        Property.SESSION_EXPIRY_INTERVAL: SESSION_NEVER_EXPIRES,
        Property.RECEIVE_MAXIMUM: window,
        Property.USER_PROPERTY: [(BRIDGE_SYNC_PROPERTY, state.name)],
    }
    return Connect(terms.local_client_id, False, 0, properties=properties, dialect=V5)


def notification_publish(terms: BridgeOptions, granted: RemoteCapabilities, word: bytes) -> Publish:
    """Whether the bridge is there."""
    return Publish(terms.announced_topic, word, retain=granted.retains)


def subscribe_remote(
    rules: RuleSet, granted: RemoteCapabilities, ids: Iterator[int], retained_again: bool = True
) -> Iterator[tuple[BridgeSubscription, Subscribe]]:
    """One SUBSCRIBE for each rule, so that each has its identifier. *ids*: packet identifiers that are free.

    *retained_again*: what the remote retains comes with every connection, and not with a new session alone.
    """
    for wanted in rules.remote_subscriptions:
        properties: Properties = {}
        if granted.has_subscription_identifiers and rules.remote_needs_identifiers:
            properties = {Property.SUBSCRIPTION_IDENTIFIER: [wanted.identifier]}
        is_known = granted.session_present and not (wanted.rule.retain and retained_again)
        handling = SEND_IF_NEW if is_known else SEND_ALWAYS
        option = SubscriptionOption(wanted.text, min(wanted.rule.qos, granted.maximum_qos), True, True, handling)
        yield wanted, Subscribe(next(ids), [option], properties)


def subscribe_local(
    rules: RuleSet, handling: Callable[[BridgeRule], int], ids: Iterator[int]
) -> Iterator[tuple[BridgeSubscription, Subscribe]]:
    """The same at our own front end, with *handling* of what is retained there."""
    for wanted in rules.local_subscriptions:
        option = SubscriptionOption(wanted.text, wanted.rule.qos, True, True, handling(wanted.rule))
        properties: Properties = {}
        if rules.local_needs_identifiers:
            properties = {Property.SUBSCRIPTION_IDENTIFIER: [wanted.identifier]}
        yield wanted, Subscribe(next(ids), [option], properties)


def unsubscribe_local(rules: RuleSet, subscribed: Sequence[str], ids: Iterator[int]) -> Unsubscribe | None:
    """What the session has, and no rule wants any more."""
    gone = sorted(set(subscribed) - {wanted.text for wanted in rules.local_subscriptions})
    return Unsubscribe(next(ids), gone) if gone else None


class RemoteSubscriptions:
    """Those of one connection after the other, and which of them were refused."""

    def __init__(
        self,
        ends: Endpoints,
        rules: RuleSet,
        memory: LocalSession,
        refusals: dict[int, str],
        asked: Set[str] = frozenset(),
        retained_again: bool = True,
    ) -> None:
        """*refusals*: by the number of the rule: by whom, and why. *asked*: the texts of earlier rules too.

        *retained_again*: what the remote retains is to come with every connection.
        """
        self._retained_again = retained_again
        self.requested = frozenset(asked)
        """The texts of all subscriptions that the remote may have of us. To be remembered before anything is said."""
        self._endpoints = ends
        self._rules = rules
        self._local_session = memory
        self._refusals = refusals
        self._subscribing: dict[int, int] = {}  # packet identifier -> subscription identifier
        self._unsubscribing: dict[int, str] = {}
        self._watched: int | None = None  # the SUBSCRIBE that waited for its answer when `has_stalled` looked last

    def begin(self) -> None:
        """Subscribe, and unsubscribe from what no rule wants any more."""
        granted = self._endpoints.capabilities
        ids = iter(self._local_session.free_packet_ids(handshake.REQUESTS_MAX))
        wanted = {one.text for one in self._rules.remote_subscriptions}
        gone = sorted(self.requested - wanted) if granted.session_present else []
        self.requested = frozenset(wanted.union(gone))
        self._subscribing.clear()
        self._watched = None
        for one, subscribe in handshake.subscribe_remote(self._rules, granted, ids, self._retained_again):
            self._subscribing[subscribe.packet_id] = one.identifier
            self._endpoints.send_remote(subscribe)
        self._unsubscribing = dict(zip(ids, gone, strict=False))  # the rest with the next connection
        for packet_id, text in self._unsubscribing.items():
            self._endpoints.send_remote(Unsubscribe(packet_id, [text]))  # one each: clouds bound how many a packet has

    def on_suback(self, suback: SubAck) -> None:
        """A subscription is granted, or not: then its rule takes part no more."""
        identifier = self._subscribing.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if identifier is not None and reason >= FAILURE:
            self._rules.reject(identifier)
            for wanted in self._rules.remote_subscriptions:
                if wanted.identifier == identifier:
                    self._refusals[wanted.number] = f"the remote: {reason_text(ReasonCode(reason), suback.properties)}"

    def has_stalled(self) -> bool:
        """Whether the SUBSCRIBE that waits longest for its answer was the same one when this was asked last."""
        before, self._watched = self._watched, next(iter(self._subscribing), None)
        return self._watched is not None and self._watched == before

    def on_unsuback(self, unsuback: UnsubAck) -> None:
        """A subscription of before is no more, unless the remote refuses: then it is asked again the next time."""
        text = self._unsubscribing.pop(unsuback.packet_id, None)
        if text is not None and all(reason < FAILURE for reason in unsuback.reasons):
            self.requested -= {text}


PRIVATE_TRIES: Final = 2
"""Connections in vain that say that this is a bridge, or speak version 5; then one says less."""
PRIVATE_TRIES_KNOWN: Final = 12
"""The same where the last greeting was an answer to a bridge. What stands before a broker that is down takes
connections and ends them; but there may be another broker meanwhile, which cannot bear what bridges say."""
NEXT_ADDRESS_REASONS: Final = frozenset(
    {ReasonCode.SERVER_BUSY, ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED}
)
"""Good-byes after which another address is better. The one it names is not dialled: an operator says whom to trust."""


class HandshakeRetry(Enum):
    """The remote is to be dialled once more, and at once: we say something else then."""

    AT_ONCE = "at once"


class Handshake:
    """From one connection to the next: what was said in vain is said in another way."""

    def __init__(self, terms: BridgeOptions, memory: LocalSession, ends: Endpoints, greeted_version: str = "") -> None:
        self.greeted_version = greeted_version
        """The version (`Dialect.version`) in which the remote greeted us last; empty: it never did."""
        self._options = terms
        self._endpoints = ends
        private = (V311_BRIDGE,) if terms.try_private else ()
        # What is said, in this order, as far as the remote has not refused it.
        self._dialects: list[Dialect] = [V5, *private, V311] if terms.dialect is V5 else [*private, V311]
        self._will_qos, self._will_retains = 1, True  # until a remote refuses such a will
        self._local_session = memory
        self._is_in_doubt = memory.sync_state is BridgeSyncState.IN_DOUBT
        self._awaits_answer = False  # to a CONNECT that a remote may have taken
        self._in_vain = 0  # connections to one address that ended before CONNACK, one after the other
        # A session of ours that begins anew numbers its messages anew: the remote would take them for old ones.
        self._needs_clean_start = terms.wants_exactly_once and not memory.sync_state.has_remote_session

    def begin(self) -> None:
        """Say who we are."""
        dialect = self._dialect
        self._is_in_doubt |= self._awaits_answer
        # What a remote cannot bear begins no session there: it would be in doubt each time.
        may_fail = dialect is V311_BRIDGE or (dialect is V5 and self.greeted_version.startswith(V311.version))
        self._awaits_answer = not may_fail or self.greeted_version == dialect.version
        self._endpoints.capabilities = RemoteCapabilities(dialect)
        will = self._will_qos, self._will_retains
        self._endpoints.send_remote(handshake.connect_remote(self._options, dialect, self._needs_clean_start, *will))

    def record_doubt(self, now: Instant) -> None:
        """Keep what is in doubt from now on, or no longer, for the case that we are killed before more is known."""
        if self._awaits_answer:
            self._local_session.mark_in_doubt(now)
        elif not self._is_in_doubt:
            self._local_session.clear_doubt(now)

    def confirm(self) -> None:
        """What the last CONNACK said of our session is acted upon: of what was before it there is no doubt any more."""
        self._is_in_doubt = False

    def on_no_connack(self) -> bool:
        """The remote closed the connection before CONNACK; whether nothing else is left to be said to this one."""
        is_known = self.greeted_version == self._dialects[0].version
        if len(self._dialects) == 1 or (is_known and self._dialects[0] is V5):
            return True
        # Twice may mean that it cannot bear what is said first; once, anything.
        self._in_vain = (self._in_vain + 1) % (self._tries + len(self._dialects) - 1)
        return self._in_vain == 0 or self._options.dialect is V5

    def on_connack(self, connack: ConnAck) -> RemoteCapabilities | HandshakeRetry | str:
        """What the remote grants; or why there is nothing to be had."""
        self._awaits_answer = False
        if connack.reason >= FAILURE:
            if connack.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and self._dialect is not V311:
                self._dialects.remove(self._dialect)  # it does not know that: once more, in another way
                self._in_vain = 0
                return HandshakeRetry.AT_ONCE
            if self._lowers_will(connack.reason):
                return HandshakeRetry.AT_ONCE
            return f"the remote refuses us: {reason_text(connack.reason, connack.properties)}"
        granted = RemoteCapabilities.of(connack, self._dialect, self._options.keep_alive_s, self._is_in_doubt)
        if granted.gateway_identity and granted.gateway_identity == self._options.identity:
            return "the remote is this gateway itself"
        if self._needs_clean_start:
            self._needs_clean_start = False
            if not self._dialect.has_properties:  # for 3.1.1 a session that begins anew ends with its connection
                self._endpoints.send_remote(Disconnect())
                return HandshakeRetry.AT_ONCE
        self.greeted_version = granted.dialect.version
        self._in_vain = 0  # that it greets any client does not say that it knows no bridges, or no version 5
        if self._options.dialect is V5 and granted.dialect is not V5:
            self._endpoints.warn(
                "version",
                "the remote does not take MQTT 5: the bridge speaks 3.1.1, without properties, times to live and the "
                'origin that ends loops; write version = "3.1.1" to ask for that',
                "bridge-version",
            )
        return granted

    def _lowers_will(self, reason: ReasonCode) -> bool:
        """Whether the will asks for less from now on. What a remote bears it says in CONNACK only, when it was told."""
        if reason == ReasonCode.RETAIN_NOT_SUPPORTED and self._will_retains:
            self._will_retains = False
        elif reason == ReasonCode.QOS_NOT_SUPPORTED and self._will_qos:
            self._will_qos = 0
        else:
            return False
        return bool(self._options.announced_topic)

    @property
    def dialect(self) -> Dialect:
        """The version that the remote takes, as far as it has not refused it: 5 or 3.1.1."""
        return V5 if V5 in self._dialects else V311

    @property
    def _tries(self) -> int:
        """Connections in vain that say what is said first."""
        return PRIVATE_TRIES_KNOWN if self.greeted_version == self._dialects[0].version else PRIVATE_TRIES

    @property
    def _dialect(self) -> Dialect:
        return self._dialects[max(self._in_vain - self._tries + 1, 0)]


class SessionTeardown:
    """One connection for one CONNECT. `reason` says why it came to nothing."""

    def __init__(self, terms: BridgeOptions) -> None:
        self._terms = terms
        self._framer = Framer(terms.packet_bytes_max)
        self.is_over = False
        """Whether the remote has answered: hang up."""
        self.reason = ""

    def connect_packet(self) -> bytes:
        """What to say first: the same client, and no Session Expiry Interval, so it ends with its connection."""
        terms = self._terms
        connect = Connect(
            terms.client_id, True, terms.keep_alive_s, terms.username, terms.password, None, {}, terms.dialect
        )
        return encode_packet(connect, terms.dialect)

    def receive(self, chunk: bytes) -> bytes:
        """What to answer to *chunk*."""
        self._framer.feed(chunk)
        try:
            frame = self._framer.next_frame()
            if frame is None or self.is_over:
                return b""
            packet = decode_packet(*frame, self._terms.dialect)
        except ProtocolError as error:
            self.is_over, self.reason = True, f"the remote breaks the protocol: {error}"
            return b""
        self.is_over = True
        if not isinstance(packet, ConnAck):
            self.reason = "the remote says something else than CONNACK"
        elif packet.reason >= FAILURE:
            self.reason = f"the remote refuses us: {reason_text(packet.reason, packet.properties)}"
        else:
            return encode_packet(Disconnect(), self._terms.dialect)
        return b""
