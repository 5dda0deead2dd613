"""CONNECT, and every way a connection ends: sessions come, are taken over, wait, and expire (MQTT 5.0 section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.frontend.adoption import go_on
from edgebridge.frontend.attendance import Attendance
from edgebridge.frontend.authenticating import Authenticating
from edgebridge.frontend.ban import Ban
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.entitling import Entitling
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.notes import CONNECTED, DISCONNECTED, REFUSED, Notes
from edgebridge.frontend.objections import disk_objection, objection
from edgebridge.frontend.offers import keep_alive_s, offers
from edgebridge.frontend.outaliases import OutAliases
from edgebridge.frontend.plans import Plans
from edgebridge.frontend.publishing import Publishing
from edgebridge.frontend.redirect import Redirect
from edgebridge.frontend.sharing import Sharing
from edgebridge.frontend.terms import Terms
from edgebridge.session.durability import MEMORY
from edgebridge.session.inflight import Inflight
from edgebridge.session.lifecycle import State
from edgebridge.session.outbox import Allowance
from edgebridge.session.outboxes import outbox_for
from edgebridge.session.session import Session
from edgebridge.session.verdict import WRONG, Verdict
from edgebridge.wire.dialect import Dialect, answering_dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.origin import BRIDGE_PROPERTY
from edgebridge.wire.packets import ConnAck, Connect, Disconnect
from edgebridge.wire.properties import Properties, Property, number, user_properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import OUT_ALIASES_MAX
from edgebroker.names import ClientId
from edgebroker.node.events import ClientGone
from edgebroker.node.node import Node

KEEP_ALIVE_GRACE: Final = 1.5  # [3.1.1: MQTT-3.1.2-24, 5: MQTT-3.1.2-22]
NEVER: Final = 0xFFFF_FFFF
"""A session expiry interval of "never"; ours is bounded and says so in CONNACK."""
FILTER_FEATURE: Final = ("filter", "1")
"""User property of CONNACK: content filters are understood (docs/filters.md, P-6)."""


class Connecting:
    """Who is here, and whose session waits."""

    def __init__(
        self,
        node: Node,
        delivery: Delivery,
        keeping: Keeping,
        publishing: Publishing,
        plans: Plans,
        sharing: Sharing,
        authenticating: Authenticating,
        entitling: Entitling,
        terms: Terms,
        new_client_id: Callable[[], str],
    ) -> None:
        self._node = node
        self._delivery = delivery
        self._keeping = keeping
        self._publishing = publishing
        self._plans = plans
        self._sharing = sharing
        self._authenticating = authenticating
        self._entitling = entitling
        self._terms = terms
        self._new_client_id = new_client_id
        self.redirect: Redirect | None = None
        """Where everybody is sent who comes."""
        self.blocked: dict[str, Ban] = {}
        """Clients that an operator keeps out; the world takes them out of it."""
        self.sessions: dict[ClientId, Session] = {}
        self.queued = Allowance(terms.queued_messages_max, terms.queued_bytes_max)
        """What waits in all queues together."""
        self.identify: Callable[[], str] | None = None
        """Which gateway this is, for bridges that ask."""
        self.notes, self.attendance = Notes(), Attendance()

    # -- coming -----------------------------------------------------------------------------------------------

    def on_connect(self, connection: Connection, connect: Connect, now: Instant) -> None:
        """Accept or refuse. Nothing of a refused CONNECT is remembered."""
        if self.admits(connection, connect):
            verdict = self._authenticating.ask(connection, connect, now)
            if verdict is not None:
                self.judged(connection, connect, verdict, now)

    def admits(self, connection: Connection, connect: Connect) -> bool:
        """Whether *connect* is acceptable, whoever says it; if not, it is refused."""
        connection.dialect = connect.dialect
        connection.packet_bytes_max = number(connect.properties, Property.MAXIMUM_PACKET_SIZE, 0)
        if self._sends_away(connection, connect):
            return False
        why_not = objection(connect, self._terms, self._publishing, connection.entrance)
        if why_not is not None:
            self.refuse(connection, *why_not, client=connect.client_id)
        return why_not is None

    def _sends_away(self, connection: Connection, connect: Connect) -> bool:
        away = None if connection.entrance.verdict is not None else self.redirect
        if connect.client_id in self.blocked:
            self.refuse(connection, ReasonCode.BANNED, "an operator keeps this client out", client=connect.client_id)
        elif away is not None:
            self.refuse(connection, away.reason, away.why, client=connect.client_id, reference=away.reference)
        return connection.closing

    def judged(
        self,
        connection: Connection,
        connect: Connect,
        verdict: Verdict,
        now: Instant,
        proof: Properties | None = None,
    ) -> None:
        """It is known who says *connect*: let it in or not. *proof*: what CONNACK says of who we are."""
        if self._sends_away(connection, connect):  # since it was asked who it is
            return
        if verdict.is_yes and not self._authenticating.holds(connection, verdict):
            verdict = WRONG
        if not verdict.is_yes:
            self.refuse(connection, verdict.reason, verdict.why, client=connect.client_id)
            return
        properties: Properties = dict(proof or {})
        client_id = ClientId(connect.client_id)
        if not client_id:
            while not client_id or client_id in self.sessions:  # chance is not trusted with [5: MQTT-3.2.2-16]
                client_id = ClientId(self._new_client_id())
            properties[Property.ASSIGNED_CLIENT_IDENTIFIER] = client_id
        known = self.sessions.get(client_id)
        is_known_user = connection.entrance.verdict is not None  # who needs not be asked is the same under any user
        is_foreign = known is not None and not is_known_user and known.user not in ("", verdict.user)
        if known is not None and known.connection is not None and is_foreign:
            why = "another user is connected with this client identifier"  # to know it is no reason to push him out
            self.refuse(connection, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, why, client=client_id)
            return
        durability = self._terms.durability_of(client_id, connection.entrance)
        resumed = None if connect.clean_start or is_foreign else known
        if why := disk_objection(self._keeping, resumed, durability, self._terms.expiry_s(connect)):
            self.refuse(connection, ReasonCode.QUOTA_EXCEEDED, why, client=client_id)
            return
        if known is not None and known.connection is not None:
            self._take_over(known, now)
            known = self.sessions.get(client_id)  # it may have ended with its connection
        if known is not None and (connect.clean_start or is_foreign):
            self.end_session(known, now)
            known = None
        if known is None and len(self.sessions) >= self._terms.sessions_max:
            self.refuse(connection, ReasonCode.QUOTA_EXCEEDED, "too many sessions", client=client_id)
            return
        session = known or self.begin_session(client_id)
        self._settle_terms(connection, session, connect, properties)
        self._node.timers.cancel(("session", client_id))
        self._node.timers.cancel(("will", client_id))
        session.will = connect.will
        session.user = verdict.user
        session.claims = verdict.claims
        self._entitling.entitle(session)
        if known is None:
            self._keeping.begin(session, durability, now)
        else:
            go_on(self._keeping, session, durability, now)
        if connection.is_v5:
            is_kept = self._keeping.journal is not None and (session.number or not session.expiry_s)
            promised = durability if is_kept else MEMORY
            told = [FILTER_FEATURE, ("durability", str(promised))]
            if self.identify is not None and any(
                name == BRIDGE_PROPERTY for name, _ in user_properties(connect.properties)
            ):
                told.append((BRIDGE_PROPERTY, self.identify()))
            properties[Property.USER_PROPERTY] = told
        session.connection = connection
        self.attendance.came()
        connection.session = session
        connection.is_resumed = known is not None
        connection.verdict = verdict
        connection.state = State.CONNECTED
        if session.subscribed:
            self._plans.forget()
        self._watch(connection, now)
        connack = ConnAck(session_present=known is not None, properties=properties)
        packet = encode_packet(connack, connection.dialect)
        if not connection.fits(packet):  # [MQTT-3.2.2-20]: our feature is on $SYS too
            properties.pop(Property.USER_PROPERTY, None)
            packet = encode_packet(connack, connection.dialect)
        if not connection.fits(packet):  # a maximum below about 20 bytes leaves no room for what we must say
            session.will = None  # nobody was told that it is kept
            connection.close()
            return
        self._keeping.hold(connection, self._keeping.told(session))
        connection.send(packet)
        self.notes.add(CONNECTED, connection, 0, "", now=now)
        self._delivery.resume(session, now)
        if session.subscribed:
            self._sharing.arrived(session, now)

    def review(self, now: Instant) -> int:
        """Other files hold: who would not be let in any more has to go. Returns how many."""
        access, gone = self._authenticating.access, 0
        self._entitling.guard()
        for session in list(self.sessions.values()):
            self._entitling.entitle(session)
            connection: Connection | None = session.connection
            if connection is None or connection.closing:
                continue
            if not access.still_holds(connection.verdict, connection.entrance.is_anonymous):
                self.dismiss(connection, ReasonCode.NOT_AUTHORIZED, "who you are is no longer enough to be here")
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
    ) -> None:
        """Answer CONNECT with *reason*, and close. *client* is what the CONNECT says; *reference*, where else to go."""
        self.attendance.refuse(reason)
        self.notes.add(REFUSED, connection, reason, why, client)
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
            self.attendance.refuse(error.reason)
            self.notes.add(REFUSED, connection, error.reason, str(error))
            connection.close()
        else:
            self.refuse(connection, error.reason, str(error), dialect)

    def begin_session(self, client_id: ClientId) -> Session:
        """An empty session, which is known from now on."""
        terms = self._terms
        outbox = outbox_for(terms.queue_messages_max, terms.queue_bytes_max, terms.queue_full, self.queued)
        session = Session(client_id, Inflight(terms.inflight_max), outbox)
        self.sessions[client_id] = session
        return session

    def _settle_terms(self, connection: Connection, session: Session, connect: Connect, properties: Properties) -> None:
        """Write down what the client asked for, and into *properties* what we grant and how we differ."""
        terms, asked = self._terms, connect.properties
        connection.is_v5 = connect.dialect.has_properties
        connection.keep_alive = int(keep_alive_s(terms, connect) * SECOND * KEEP_ALIVE_GRACE)
        session.inflight.window = terms.inflight_max
        session.expiry_s = self._terms.expiry_s(connect)
        if connection.entrance.verdict is not None:  # no other client, and not held to what those are
            connection.keep_alive = 0
            session.expiry_s = number(asked, Property.SESSION_EXPIRY_INTERVAL, 0)
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
        properties.update(offers(terms, connect, ClientId(session.client_id)))
        if aliases := min(number(asked, Property.TOPIC_ALIAS_MAXIMUM, 0), OUT_ALIASES_MAX):
            connection.out_aliases = OutAliases(aliases)

    def _watch(self, connection: Connection, now: Instant) -> None:
        timers = self._node.timers
        timers.cancel(("connect", connection.number))
        if connection.keep_alive:
            timers.set(("alive", connection.number), now + connection.keep_alive)
        if connection.verdict.lasts_s is not None:
            timers.set(("pass", connection.number), now + connection.verdict.lasts_s * SECOND)

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
                self.dismiss(connection, ReasonCode.PROTOCOL_ERROR, "a session of no length cannot be prolonged")
                return
            session.expiry_s = min(wanted, self._terms.session_expiry_s_max)
        if disconnect.reason == ReasonCode.NORMAL_DISCONNECTION:
            session.will = None
        connection.farewell = (disconnect.reason, "the client said so")
        connection.close()

    def dismiss(self, connection: Connection, reason: ReasonCode, why: str = "", reference: str = "") -> None:
        """Close a client that is connected, telling it why if its version can hear it, and *reference*, where to go."""
        if connection.closing:
            return
        connection.farewell = (reason, why)
        if connection.is_v5:
            words: Properties = {Property.SERVER_REFERENCE: reference} if reference else {}
            if why:
                words[Property.REASON_STRING] = why
            packet = encode_packet(Disconnect(reason, words), connection.dialect)
            while not connection.fits(packet) and words:  # [MQTT-3.1.2-24], [MQTT-3.14.2-3]
                words.popitem()  # REQUEST_PROBLEM_INFORMATION is not about DISCONNECT
                packet = encode_packet(Disconnect(reason, words), connection.dialect)
            if connection.gates:  # what waits for the disk is not written any more
                connection.last_words = packet
            else:
                connection.send(packet)
        connection.close()

    def detach(self, connection: Connection, now: Instant) -> None:
        """The connection is no more: its will is published or delayed, its session waits or ends."""
        timers = self._node.timers
        timers.cancel(("connect", connection.number))
        timers.cancel(("alive", connection.number))
        timers.cancel(("pass", connection.number))
        self._authenticating.forget(connection)
        if connection.state is State.CLOSED:
            return
        connection.state = State.CLOSED
        self._delivery.lost(connection, now)
        session = connection.session
        if session is not None:
            reason, why = connection.farewell or (ReasonCode.SUCCESS, "the connection was lost")
            self.notes.add(DISCONNECTED, connection, reason, why, now=now)
        if session is None or session.connection is not connection:
            return
        session.connection = None
        session.gone_at = now
        self.attendance.left()
        if session.subscribed:
            self._plans.forget()
        delay_s = number(session.will.properties, Property.WILL_DELAY_INTERVAL, 0) if session.will else 0
        if session.will is not None:
            if delay_s and session.expiry_s:
                timers.set(("will", session.client_id), now + min(delay_s, session.expiry_s) * SECOND)
            else:
                self.publish_will(session, now)
        if session.expiry_s:
            timers.set(("session", session.client_id), now + session.expiry_s * SECOND)
            self._keeping.gone(session, now)
            self._sharing.left(session, now)
        else:
            self.end_session(session, now)

    def publish_will(self, session: Session, now: Instant) -> None:
        """Publish the will, once."""
        will, session.will = session.will, None
        if will is not None:
            self._publishing.publish_will(session, will, now)

    def publish_late_will(self, session: Session, now: Instant) -> None:
        """The delay of a will has passed."""
        self.publish_will(session, now)
        self._keeping.gone(session, now)

    def expire_session(self, session: Session, now: Instant) -> None:
        """The session's time is over; a will still waiting goes out now [MQTT-3.1.3-9]."""
        self.attendance.expired += 1
        self.end_session(session, now)

    def _take_over(self, session: Session, now: Instant) -> None:
        """Another connection of the same client [MQTT-3.1.4-3]. A delayed will is kept back if the session goes on."""
        old: Connection = session.connection
        self.dismiss(old, ReasonCode.SESSION_TAKEN_OVER, "the client connected again elsewhere")
        if not old.paused:  # the world writes no more to who does not read: what waits for it is lost
            self._delivery.written(old, now)
        self.detach(old, now)

    def end_session(self, session: Session, now: Instant) -> None:
        """The session is no more. Its client is away, or its connection was detached."""
        for deadline in ("will", "session"):
            self._node.timers.cancel((deadline, session.client_id))
        self.publish_will(session, now)
        del self.sessions[session.client_id]
        session.close_bill()
        if session.subscribed:
            self._node.handle(ClientGone(session.client_id), now)
        self._sharing.ended(session, now)
        self._keeping.end(session, now)  # behind what others of its groups take over: nothing may be lost between
        self._delivery.abandon(session, now)
