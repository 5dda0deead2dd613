"""CONNECT, and every way a connection ends: sessions begin, are taken over, wait, and expire (MQTT 5.0 section 3.1).

`connect_refusal` says why a CONNECT is refused, `connack_properties` what CONNACK tells a version 5 client,
`ClientCounters` counts clients, and `Ban` is a client that an operator keeps out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from edgebridge.frontend.client_moves import ClientMoves, move_text
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import ConnectingClients
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.event_buffer import CONNECTED, DISCONNECTED, REFUSED, EventBuffer
from edgebridge.frontend.fast_path.fan_out import FanOutCache
from edgebridge.frontend.handlers.authentication import Authenticator
from edgebridge.frontend.handlers.authorization import Authorizer
from edgebridge.frontend.handlers.publish import PublishHandler
from edgebridge.frontend.handlers.publish_admission import DISALLOWED_TEXT
from edgebridge.frontend.journal.promote import resume_session
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.memory_accounts import OVER_SHARE, MemoryAccounts, account_of
from edgebridge.frontend.options import (
    BRIDGE_CLIENT_PREFIX,
    CLIENT_ID_REFUSED,
    FrontendHost,
    FrontendOptions,
    ListenerContext,
    Redirect,
)
from edgebridge.frontend.session_quota import SessionQuota
from edgebridge.frontend.shared_subscriptions import SharedSubscriptions
from edgebridge.frontend.topic_alias import OutboundTopicAliases
from edgebridge.session.acl import Acl
from edgebridge.session.credentials import WRONG_CREDENTIALS, AuthenticationResult
from edgebridge.session.durability import MEMORY, Durability
from edgebridge.session.footprint import SESSION_BYTES, HeldKind, will_bytes
from edgebridge.session.inflight import Inflight
from edgebridge.session.journal.transfer_records import DEPARTING_PREFIX
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.session.queue.factory import outbox_for
from edgebridge.session.queue.outbox import Allowance
from edgebridge.session.session import BridgeSyncState, Session
from edgebridge.wire.dialect import Dialect, answering_dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.packets import ConnAck, Connect, Disconnect
from edgebridge.wire.properties import Properties, Property, has_disallowed_text, number, user_properties
from edgebridge.wire.reasons import ReasonCode
from edgebridge.wire.user_properties import BRIDGE_PROPERTY
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import OUT_ALIASES_MAX, QUEUED_BYTES_LEAST
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.events import ClientRemoval
from edgebroker.node.node import Node
from edgebroker.topics import check_levels, parse_topic_name

if TYPE_CHECKING:
    from edgebridge.frontend.federation.roaming.roaming import RoamingSessions


class Ban(NamedTuple):
    """Until when, since when, and why."""

    until: Instant
    since_unix_s: int
    """Seconds since 1970, by the clock that the journal goes by where there is one."""
    seconds: int
    """How long it was to last then."""
    why: str
    """What the operator said; may be empty."""


class DisplacementCause(Enum):
    """What was given up so that others are served. The value is the label in metrics."""

    SLOW_PACKET = "slow_packet"
    """A connection whose packet came more slowly than `quota.packet_bytes_per_s_min`."""
    UNFINISHED_INPUT = "unfinished_input"
    """A connection: unfinished packets of its user or address held too much memory."""
    CONNECTING = "connecting"
    """A connection without CONNECT: there were too many, and most of them came from its address."""
    HANDSHAKE = "tls_handshake"
    """A connection in its TLS handshake, for the same reason."""
    VERIFICATION = "verification"
    """A CONNECT whose password waited to be checked, for the same reason."""
    SESSION = "session"
    """A session without a user and without messages, whose client was away: there were too many."""
    PEER = "peer"
    """A connection to the peer listener that had not shown who it is."""


class ClientCounters:
    """Counts of clients: those that are here `now`, the most that ever were, and all that were let in."""

    __slots__ = ("admitted", "current", "displaced", "expired", "maximum", "refused", "taken_over")

    def __init__(self) -> None:
        self.current = 0
        self.maximum = 0
        self.admitted = 0
        self.expired = 0
        """Sessions whose time was over."""
        self.taken_over = 0
        """Connections that ended because their client identifier connected again."""
        self.refused: dict[ReasonCode, int] = {}
        """CONNECTs, by the reason that CONNACK gave, or would have given."""
        self.displaced = dict.fromkeys(DisplacementCause, 0)
        """Connections, sessions and checks of passwords that were given up so that others are served."""

    def connected(self) -> None:
        """A client was let in."""
        self.admitted += 1
        self.current += 1
        self.maximum = max(self.maximum, self.current)

    def disconnected(self) -> None:
        """A client that was let in is gone."""
        self.current -= 1

    def displace(self, cause: DisplacementCause) -> None:
        """Something was given up for others."""
        self.displaced[cause] += 1

    def refuse(self, reason: ReasonCode) -> None:
        """A client was not let in."""
        self.refused[reason] = self.refused.get(reason, 0) + 1


def connect_refusal(
    connect: Connect, terms: FrontendOptions, publish_handler: PublishHandler, listener_context: ListenerContext
) -> tuple[ReasonCode, str] | None:
    """Why *connect* is refused, as CONNACK says it; None if it is not."""
    if connect.client_id.startswith(BRIDGE_CLIENT_PREFIX) and listener_context.verdict is None:
        return (
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            f"{BRIDGE_CLIENT_PREFIX} begins the names of this gateway's own bridges",
        )
    if connect.client_id.startswith(DEPARTING_PREFIX):
        why = f"{DEPARTING_PREFIX} begins the names of sessions that go to another gateway"
        return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, why
    if not connect.client_id and not connect.clean_start and not connect.dialect.has_properties:
        return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a session to keep needs a client identifier"
    if len(connect.client_id.encode()) > terms.client_id_bytes_max:
        return (
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            f"a client identifier has at most {terms.client_id_bytes_max} bytes",
        )
    if connect.will is not None:
        try:
            check_levels(connect.will.topic, terms.topic_levels_max)
            parse_topic_name(connect.will.topic)
        except TopicInvalid as error:
            return ReasonCode.TOPIC_NAME_INVALID, f"will: {error}"
        if connect.will.retain and not terms.retained_messages_max and connect.dialect.has_properties:
            return ReasonCode.RETAIN_NOT_SUPPORTED, "will: no messages are retained here"  # [MQTT-3.2.2-13]
        if has_disallowed_text(connect.will.properties):
            return ReasonCode.MALFORMED_PACKET, f"will: {DISALLOWED_TEXT}"
        if not publish_handler.admission.has_valid_format(connect.will.payload, connect.will.properties):
            return ReasonCode.PAYLOAD_FORMAT_INVALID, "will: its payload is said to be UTF-8, and is not"
    return None


CLIENT_ID_PLACEHOLDER: Final = "%c"
"""In a response prefix: the client's identifier."""


def keep_alive_s(terms: FrontendOptions, connect: Connect) -> int:
    """The keep alive that holds, 0 for none. A 3.1.1 client cannot be told of another, so its own holds."""
    limit = terms.keep_alive_s_max
    if limit and connect.dialect.has_properties and not 0 < connect.keep_alive_s <= limit:
        return limit
    return connect.keep_alive_s


def connack_properties(terms: FrontendOptions, connect: Connect, client_id: ClientId) -> Properties:
    """The properties."""
    offered: Properties = {}
    held = keep_alive_s(terms, connect)
    if held != connect.keep_alive_s:
        offered[Property.SERVER_KEEP_ALIVE] = held  # [MQTT-3.1.2-21]
    if not terms.retained_messages_max:
        offered[Property.RETAIN_AVAILABLE] = 0
    if terms.response_prefix is not None and number(connect.properties, Property.REQUEST_RESPONSE_INFORMATION, 0):
        prefix = terms.response_prefix.replace(CLIENT_ID_PLACEHOLDER, client_id)
        if "+" not in prefix and "#" not in prefix:  # an identifier may have them, a topic may not
            offered[Property.RESPONSE_INFORMATION] = prefix  # [MQTT-3.1.2-28]
    return offered


KEEP_ALIVE_GRACE: Final = 1.5  # [3.1.1: MQTT-3.1.2-24, 5: MQTT-3.1.2-22]
FILTER_FEATURE: Final = ("filter", "1")
"""User property of CONNACK: content filters are understood (docs/filters.md, P-6)."""
ARRIVING_SESSION: Final = ("session", "arriving")
"""User property of CONNACK: a part of the session is still on its way from another gateway (docs/roaming.md)."""


class WillListener(Protocol):
    """Wants to know of changes of wills."""

    def will_changed(self, client: ClientId) -> None:
        """The will of *client* is another one, or is none any more, or its client has left."""


class ConnectHandler:
    """Who is here, and whose session waits."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        session_journal: SessionJournal,
        publish_handler: PublishHandler,
        memory_accounts: MemoryAccounts,
        plans: FanOutCache,
        sharing: SharedSubscriptions,
        authenticator: Authenticator,
        authorizer: Authorizer,
        session_quota: SessionQuota,
        terms: FrontendOptions,
        new_client_id: Callable[[], str],
        events: EventBuffer,
        host: FrontendHost,
    ) -> None:
        self._node = node
        self._delivery = delivery
        self._journal = session_journal
        self._publish_handler = publish_handler
        self._fan_out_cache = plans
        self._shared_subscriptions = sharing
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._options = terms
        self._new_client_id = new_client_id
        self.will_listener: WillListener | None = None
        """A federation, in which another gateway knows the wills too."""
        self.roaming: RoamingSessions | None = None
        """A federation, in which sessions move between gateways."""
        self.redirect: Redirect | None = None
        """Where everybody is sent who comes."""
        self.blocked: dict[str, Ban] = {}
        """Clients that an operator keeps out; the world takes them out of it."""
        self.moves = ClientMoves(terms.move_refusal_s)
        self.memory_accounts = memory_accounts
        self.sessions = memory_accounts.sessions
        self.session_quota = session_quota
        self.connecting = ConnectingClients()
        self.queued = Allowance(terms.queued_messages_max, terms.queued_bytes_max or QUEUED_BYTES_LEAST)
        """What waits in all queues together."""
        self._host = host
        self.events, self.counters = events, ClientCounters()

    # -- coming -----------------------------------------------------------------------------------------------

    def on_connect(self, connection: Connection, connect: Connect, now: Instant) -> None:
        """Accept or refuse. Nothing of a refused CONNECT is remembered."""
        if self.admits(connection, connect):
            verdict = self._authenticator.verify(connection, connect, now)
            if verdict is not None:
                self.complete_connect(connection, connect, verdict, now)

    def admits(self, connection: Connection, connect: Connect) -> bool:
        """Whether *connect* is acceptable, whoever says it; if not, it is refused."""
        connection.dialect = connect.dialect
        connection.packet_bytes_max = number(connect.properties, Property.MAXIMUM_PACKET_SIZE, 0)
        if self._is_redirected(connection, connect):
            return False
        why_not = connect_refusal(connect, self._options, self._publish_handler, connection.listener_context)
        if why_not is not None:
            self.refuse(connection, *why_not, client=connect.client_id)
        return why_not is None

    def _is_redirected(self, connection: Connection, connect: Connect) -> bool:
        away = None if connection.listener_context.verdict is not None else self.redirect
        if connect.client_id in self.blocked:
            self.refuse(connection, ReasonCode.BANNED, "an operator keeps this client out", client=connect.client_id)
        elif away is not None:
            self.refuse(connection, away.reason, away.why, client=connect.client_id, reference=away.reference)
        return connection.closing

    def complete_connect(
        self,
        connection: Connection,
        connect: Connect,
        verdict: AuthenticationResult,
        now: Instant,
        proof: Properties | None = None,
        is_located: bool = False,
    ) -> None:
        """It is known who says *connect*: let it in or not. *proof*: what CONNACK says of who we are. *is_located*: its
        session is not at another gateway, or none that has answered.
        """
        if self._is_redirected(connection, connect):  # since it was asked who it is
            return
        if verdict.is_accepted and not self._authenticator.still_holds(connection, verdict):
            verdict = WRONG_CREDENTIALS
        if not verdict.is_accepted:
            self.refuse(connection, verdict.reason, verdict.why, client=connect.client_id)
            return
        if (
            self.roaming is not None
            and not is_located
            and connection.listener_context.verdict is None
            and connect.client_id
            and self.roaming.locate(connection, connect, verdict, proof, now)
        ):
            return
        properties: Properties = dict(proof or {})
        client_id = ClientId(connect.client_id)
        if not client_id:
            while not client_id or client_id in self.sessions:  # chance is not trusted with [5: MQTT-3.2.2-16]
                client_id = ClientId(self._new_client_id())
            properties[Property.ASSIGNED_CLIENT_IDENTIFIER] = client_id
        known = self.sessions.get(client_id)
        is_foreign = False
        if connection.listener_context.verdict is None:  # who needs not be asked is the same under any user
            owner, is_connected = ("", False) if known is None else (known.user, known.connection is not None)
            rule = self._authenticator.access.client_ids
            if why := rule.refusal(verdict.user, connect.client_id, owner, is_connected):
                invalid = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
                self.refuse(connection, invalid, CLIENT_ID_REFUSED, client=client_id, cause=why)
                return
            is_foreign = owner not in ("", verdict.user)
        if (move := self.moves.refusal(client_id, now)) is not None:
            away, why = move.redirect, move_text(move.gateway)
            self.refuse(connection, away.reason, why, client=client_id, reference=away.reference)
            return
        durability = self._options.durability_of(client_id, connection.listener_context)
        resumed = None if connect.clean_start or is_foreign else known
        if why := self._journal.durability_refusal(resumed, durability, self._options.expiry_s(connect)):
            self.refuse(connection, ReasonCode.QUOTA_EXCEEDED, why, client=client_id)
            return
        account, will = account_of(connection, verdict.user), will_bytes(connect.will)
        growth = SESSION_BYTES + will if known is None else max(0, will - known.will_bytes)
        kind = HeldKind.SESSIONS if known is None else HeldKind.WILLS
        if not self.memory_accounts.admits(account, growth, kind, now):
            self.refuse(connection, ReasonCode.QUOTA_EXCEEDED, OVER_SHARE, client=client_id)
            return
        if known is not None and known.connection is not None:
            self.take_over(known, now)
            known = self.sessions.get(client_id)  # it may have ended with its connection
        if known is not None and (connect.clean_start or is_foreign):
            what = "a clean start" if connect.clean_start else "a client of another user"
            self._end_before_expiry(known, connection, verdict.user, f"{what} ended a session", now)
            known = None
        if known is None and (why := self._session_refusal(account, now)):
            self.refuse(connection, ReasonCode.QUOTA_EXCEEDED, why, client=client_id)
            return
        session = known or self.begin_session(client_id)
        self.session_quota.client_came(session)
        self.session_quota.charge(session, account)
        self._negotiate_options(connection, session, connect, properties)
        self._node.timers.cancel(("session", client_id))
        self._node.timers.cancel(("will", client_id))
        had_will = session.will_bytes > 0
        session.will, session.will_bytes = connect.will, will
        session.user = verdict.user
        session.claims = verdict.claims
        self._authorizer.authorize(session)
        if known is None:
            self._journal.begin_session(session, durability, now)
        else:
            resume_session(self._journal, session, durability, now)
        if connection.listener_context.verdict is None:  # a bridge of this gateway has bounds of its own
            is_durable = session.number > 0
            session.outbox.messages_max, session.outbox.bytes_max = self._options.queue_bounds(is_durable)
        if connection.is_v5:
            is_kept = self._journal.storage is not None and (session.number or not session.expiry_s)
            promised = durability if is_kept else MEMORY
            told = [FILTER_FEATURE, ("durability", str(promised))]
            if self.roaming is not None and self.roaming.is_arriving(client_id):
                told.append(ARRIVING_SESSION)
            is_bridge = any(name == BRIDGE_PROPERTY for name, _ in user_properties(connect.properties))
            if is_bridge and (identity := self._host.gateway_identity()):
                told.append((BRIDGE_PROPERTY, identity))
            properties[Property.USER_PROPERTY] = told
        if (log := self._node.ledger.log) is not None:
            is_ours = connection.listener_context.verdict is not None
            log.set_bridge(session.client_id, is_bridge=is_ours or connection.dialect.is_bridge)
        session.connection = connection
        if connect.will is not None or had_will:
            self._will_changed(session, True)
        self.counters.connected()
        self.moves.connected(client_id)
        connection.session = session
        connection.is_resumed = known is not None
        connection.verdict = verdict
        connection.state = ConnectionState.CONNECTED
        if session.subscribed:
            self._fan_out_cache.invalidate()
        self._start_timers(connection, now)
        connack = ConnAck(session_present=known is not None, properties=properties)
        packet = encode_packet(connack, connection.dialect)
        if not connection.fits(packet):  # [MQTT-3.2.2-20]: our feature is on $SYS too
            properties.pop(Property.USER_PROPERTY, None)
            packet = encode_packet(connack, connection.dialect)
        if not connection.fits(packet):  # a maximum below about 20 bytes leaves no room for what we must say
            session.will = None  # nobody was told that it is kept
            connection.close()
            return
        self._journal.add_barrier(connection, self._journal.connack_lsn(session))
        connection.send(packet)
        self.events.add(CONNECTED, connection, 0, "", now=now)
        self._shared_subscriptions.hand_over_too_large(session, now)
        self._delivery.resume(session, now)
        if session.subscribed:
            self._shared_subscriptions.member_connected(session, now)

    def _session_refusal(self, account: str, now: Instant) -> str:
        """Why *account* gets no other session, empty if it does: one that nobody misses ends for it."""
        why = self.session_quota.refusal(account, len(self.sessions))
        if why and (abandoned := self.session_quota.session_to_end(account, len(self.sessions))) is not None:
            self.counters.displace(DisplacementCause.SESSION)
            self.end_session(abandoned, now)
            why = self.session_quota.refusal(account, len(self.sessions))
        if why:
            self.session_quota.count_refusal(len(self.sessions))
        return why

    def recheck_access(self, now: Instant) -> int:
        """Other files hold: who would not be let in any more has to go. Returns how many."""
        access, gone = self._authenticator.access, 0
        self._authorizer.guard_routes()
        for session in list(self.sessions.values()):
            self._authorizer.authorize(session)
            connection: Connection | None = session.connection
            if connection is None or connection.closing:
                continue
            if not access.is_still_valid(connection.verdict, connection.listener_context.is_anonymous):
                self.disconnect(connection, ReasonCode.NOT_AUTHORIZED, "who you are is no longer enough to be here")
                gone += 1
        return gone

    def refuse(
        self,
        connection: Connection,
        reason: ReasonCode,
        why: str,
        dialect: Dialect | None = None,
        client: str = "",
        reference: str = "",
        cause: str = "",
    ) -> None:
        """Answer CONNECT with *reason*, and close. *client* is what the CONNECT says; *reference*, where else to go.

        *cause* stands in the operator's log alone.
        """
        self.connecting.forget(connection)
        self.counters.refuse(reason)
        self.events.add(REFUSED, connection, reason, f"{why}: {cause}" if cause else why, client)
        properties: Properties = {Property.SERVER_REFERENCE: reference} if reference else {}
        properties[Property.REASON_STRING] = why
        packet = encode_packet(ConnAck(reason=reason, properties=properties), dialect or connection.dialect)
        while not connection.fits(packet) and properties:  # [MQTT-3.2.2-19]
            properties.popitem()
            packet = encode_packet(ConnAck(reason=reason, properties=properties), dialect or connection.dialect)
        if packet and connection.fits(packet):
            connection.send(packet)
        connection.close()

    def refuse_unreadable(self, connection: Connection, error: ProtocolError, body: bytes) -> None:
        """Answer bytes that are no acceptable CONNECT: with CONNACK if the sender speaks MQTT, else by closing."""
        dialect = answering_dialect(body)
        if dialect is None:
            self.connecting.forget(connection)
            self.counters.refuse(error.reason)
            self.events.add(REFUSED, connection, error.reason, str(error))
            connection.close()
        else:
            self.refuse(connection, error.reason, str(error), dialect)

    def begin_session(self, client_id: ClientId) -> Session:
        """An empty session, which is known from now on."""
        terms = self._options
        outbox = outbox_for(terms.queue_messages_max, terms.queue_bytes_max, terms.queue_full, self.queued)
        session = Session(client_id, Inflight(terms.inflight_max), outbox)
        self.sessions[client_id] = session
        return session

    def begin_absent(
        self,
        client_id: ClientId,
        user: str,
        claims: Acl | None,
        expiry_s: int,
        durability: Durability,
        now: Instant,
    ) -> Session:
        """Begin the session of a client that has had it at another gateway, and is not connected."""
        session = self.begin_session(client_id)
        session.user, session.claims = user, claims
        session.expiry_s, session.disconnected_at = expiry_s, now
        self.session_quota.restore(session)
        self._authorizer.authorize(session)
        self._journal.begin_session(session, durability, now)
        self._journal.disconnected(session, now)
        self._node.timers.set(("session", client_id), now + expiry_s * SECOND)
        return session

    def may_have(self, session: Session, user: str) -> bool:
        """Return whether *user*, at another gateway, may use the client identifier of *session*."""
        rule = self._authenticator.access.client_ids
        return not rule.refusal(user, session.client_id, session.user, session.connection is not None)

    def rename_departing(self, session: Session, name: ClientId) -> None:
        """Give *session*, whose client is not connected, another name: its client has it at another gateway."""
        client = ClientId(session.client_id)
        had_will = session.will is not None
        session.will, session.will_bytes = None, 0
        del self.sessions[client]
        self.session_quota.client_came(session)
        session.client_id = name
        self.sessions[name] = session
        if had_will and self.will_listener is not None:
            self.will_listener.will_changed(client)

    def _negotiate_options(
        self, connection: Connection, session: Session, connect: Connect, properties: Properties
    ) -> None:
        """Write down what the client asked for, and into *properties* what we grant and how we differ."""
        terms, asked = self._options, connect.properties
        connection.is_v5 = connect.dialect.has_properties
        connection.keep_alive = int(keep_alive_s(terms, connect) * SECOND * KEEP_ALIVE_GRACE)
        session.inflight.window = terms.inflight_max
        session.expiry_s = self._options.expiry_s(connect)
        if connection.listener_context.verdict is not None:  # no other client, and not held to what those are
            connection.keep_alive = 0
            session.expiry_s = number(asked, Property.SESSION_EXPIRY_INTERVAL, 0)
            session.bridge_sync = BridgeSyncState.of(asked)
        if not connection.is_v5:
            return
        if session.expiry_s != number(asked, Property.SESSION_EXPIRY_INTERVAL, 0):
            properties[Property.SESSION_EXPIRY_INTERVAL] = session.expiry_s
        if Property.RECEIVE_MAXIMUM in asked:
            session.inflight.window = min(number(asked, Property.RECEIVE_MAXIMUM), terms.inflight_max)
        connection.has_problem_information = bool(number(asked, Property.REQUEST_PROBLEM_INFORMATION, 1))
        properties[Property.RECEIVE_MAXIMUM] = terms.receive_maximum
        properties[Property.TOPIC_ALIAS_MAXIMUM] = terms.topic_alias_maximum
        properties[Property.MAXIMUM_PACKET_SIZE] = terms.packet_bytes_max
        properties.update(connack_properties(terms, connect, ClientId(session.client_id)))
        if aliases := min(number(asked, Property.TOPIC_ALIAS_MAXIMUM, 0), OUT_ALIASES_MAX):
            connection.out_aliases = OutboundTopicAliases(aliases)

    def _start_timers(self, connection: Connection, now: Instant) -> None:
        timers = self._node.timers
        timers.cancel(("connect", connection.number))
        self.connecting.forget(connection)
        if connection.keep_alive:
            timers.set(("alive", connection.number), now + connection.keep_alive)
        if connection.verdict.expires_in_s is not None:
            timers.set(("pass", connection.number), now + connection.verdict.expires_in_s * SECOND)

    # -- going ------------------------------------------------------------------------------------------------

    def on_disconnect(self, connection: Connection, disconnect: Disconnect, now: Instant) -> None:
        """The client says good-bye: no will if all is well [MQTT-3.14.4-3], and only then [5: MQTT-3.1.2-8]."""
        session = connection.session
        if session is None:  # it does not want to prove who it is
            connection.close()
            return
        if Property.SESSION_EXPIRY_INTERVAL in disconnect.properties:
            wanted = number(disconnect.properties, Property.SESSION_EXPIRY_INTERVAL)
            if wanted and not session.expiry_s:
                self.disconnect(connection, ReasonCode.PROTOCOL_ERROR, "a session of no length cannot be prolonged")
                return
            session.expiry_s = min(wanted, self._options.session_expiry_s_max)
        if disconnect.reason == ReasonCode.NORMAL_DISCONNECTION:
            session.will = None
        connection.disconnect_reason = (disconnect.reason, "the client said so")
        connection.close()

    def disconnect(self, connection: Connection, reason: ReasonCode, why: str = "", reference: str = "") -> None:
        """Close a client that is connected, telling it why if its version can hear it, and *reference*, where to go."""
        if connection.closing:
            return
        connection.disconnect_reason = (reason, why)
        if connection.is_v5:
            words: Properties = {Property.SERVER_REFERENCE: reference} if reference else {}
            if why:
                words[Property.REASON_STRING] = why
            packet = encode_packet(Disconnect(reason, words), connection.dialect)
            while not connection.fits(packet) and words:  # [MQTT-3.1.2-24], [MQTT-3.14.2-3]
                words.popitem()  # REQUEST_PROBLEM_INFORMATION is not about DISCONNECT
                packet = encode_packet(Disconnect(reason, words), connection.dialect)
            if connection.barriers:  # what waits for the disk is not written any more
                connection.final_packet = packet
            else:
                connection.send(packet)
        connection.close()

    def detach(self, connection: Connection, now: Instant) -> None:
        """The connection is no more: its will is published or delayed, its session waits or ends."""
        timers = self._node.timers
        timers.cancel(("connect", connection.number))
        timers.cancel(("alive", connection.number))
        timers.cancel(("pass", connection.number))
        self.connecting.forget(connection)
        self._authenticator.forget(connection)
        if connection.state is ConnectionState.CLOSED:
            return
        connection.state = ConnectionState.CLOSED
        self._delivery.connection_lost(connection, now)
        session = connection.session
        if session is not None:
            reason, why = connection.disconnect_reason or (ReasonCode.SUCCESS, "the connection was lost")
            self.events.add(DISCONNECTED, connection, reason, why, now=now)
        if session is None or session.connection is not connection:
            return
        session.connection = None
        session.disconnected_at = now
        self.counters.disconnected()
        if session.subscribed:
            self._fan_out_cache.invalidate()
        delay_s = number(session.will.properties, Property.WILL_DELAY_INTERVAL, 0) if session.will else 0
        if session.will is not None:
            delay_s = max(delay_s, self.moves.will_delay_s(session.client_id, now))
            if delay_s and session.expiry_s:
                timers.set(("will", session.client_id), now + min(delay_s, session.expiry_s) * SECOND)
            else:
                self.publish_will(session, now)
        self._will_changed(session)
        if session.expiry_s:
            timers.set(("session", session.client_id), now + session.expiry_s * SECOND)
            self.session_quota.client_left(session)
            self._journal.disconnected(session, now)
            self._shared_subscriptions.member_disconnected(session, now)
        elif (session.number or connection.is_resumed) and reason != ReasonCode.ADMINISTRATIVE_ACTION:
            self._end_before_expiry(session, connection, session.user, "a client ended its session", now)
        else:
            self.end_session(session, now)

    def publish_will(self, session: Session, now: Instant) -> None:
        """Publish the will, once."""
        will, session.will = session.will, None
        if will is not None:
            self._publish_handler.publish_will(session, will, now)

    def _will_changed(self, session: Session, had_will: bool = False) -> None:
        if self.will_listener is not None and (session.will_bytes or had_will):
            self.will_listener.will_changed(session.client_id)

    def publish_delayed_will(self, session: Session, now: Instant) -> None:
        """The delay of a will has passed."""
        self.publish_will(session, now)
        self._will_changed(session)
        self._journal.disconnected(session, now)

    def expire_session(self, session: Session, now: Instant) -> None:
        """The session's time is over; a will still waiting goes out now [MQTT-3.1.3-9]."""
        self.counters.expired += 1
        self.end_session(session, now)

    def take_over(self, session: Session, now: Instant) -> None:
        """Another connection of the same client [MQTT-3.1.4-3]. A delayed will is kept back if the session goes on."""
        old: Connection = session.connection
        self.counters.taken_over += 1
        self.disconnect(old, ReasonCode.SESSION_TAKEN_OVER, "the client connected again elsewhere")
        if not old.paused:  # the world writes no more to who does not read: what waits for it is lost
            self._delivery.written(old, now)
        self.detach(old, now)

    def _end_before_expiry(self, session: Session, connection: Connection, user: str, text: str, now: Instant) -> None:
        """End *session* because *user* does so on *connection*; the operator's log has it if messages are dropped."""
        dropped = self._node.ledger.dropped
        before = dropped.get(Cause.SESSION_ENDED, 0)
        self.end_session(session, now)
        lost = dropped.get(Cause.SESSION_ENDED, 0) - before
        if lost and connection.listener_context.verdict is None:
            self.events.add_session_end(session.client_id, connection, user, lost, text)

    def end_session(self, session: Session, now: Instant) -> None:
        """The session is no more. Its client is away, or its connection was detached."""
        if self.roaming is not None:
            self.roaming.session_ended(session, now)
        for deadline in ("will", "session"):
            self._node.timers.cancel((deadline, session.client_id))
        self.publish_will(session, now)
        self._will_changed(session)
        del self.sessions[session.client_id]
        self.session_quota.release(session)
        session.release_filters()
        if session.subscribed:
            self._node.handle(ClientRemoval(session.client_id), now)
        self._shared_subscriptions.session_ended(session, now)
        self._journal.end_session(
            session, now
        )  # behind what others of its groups take over: nothing may be lost between
        self._delivery.abandon(session, now)
