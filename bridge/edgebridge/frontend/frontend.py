"""The MQTT front end as a whole: what a world hands in, and what it fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.admission import Admission
from edgebridge.frontend.authenticating import Authenticating, Verification
from edgebridge.frontend.connecting import Connecting
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.entitling import Entitling
from edgebridge.frontend.entrance import LOCAL, Entrance
from edgebridge.frontend.exchanging import Exchanging
from edgebridge.frontend.expelling import Expelling
from edgebridge.frontend.expiring import Expiring
from edgebridge.frontend.feed import Feed
from edgebridge.frontend.filterquota import FilterQuota
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.memory import Memory
from edgebridge.frontend.plans import Plans
from edgebridge.frontend.publishing import Publishing
from edgebridge.frontend.quota import QUOTA, Quota
from edgebridge.frontend.rebirths import Rebirths
from edgebridge.frontend.redirect import Redirect
from edgebridge.frontend.replaying import Replaying
from edgebridge.frontend.restoring import Restoring
from edgebridge.frontend.runs import Runs
from edgebridge.frontend.sharing import Sharing
from edgebridge.frontend.subscribing import Subscribing
from edgebridge.frontend.systopics import SysTopics
from edgebridge.frontend.terms import Terms
from edgebridge.frontend.turns import Turns
from edgebridge.session.access import OPEN, Access
from edgebridge.session.lifecycle import CLOSED, CONNECTED, State, next_state
from edgebridge.session.outbox import QueueFull
from edgebridge.session.retained import Retained
from edgebridge.session.verdict import Verdict
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.encode import PING_RESP
from edgebridge.wire.errors import ProtocolError, ProtocolViolation
from edgebridge.wire.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Unsubscribe,
)
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MINUTE, SECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.work import Work

if TYPE_CHECKING:
    from edgebridge.frontend.overlay import Overlay
    from edgebridge.session.session import Session

FEATURE_TOPIC: Final = "$SYS/broker/features/filter"
"""Retained: content filters are understood (docs/filters.md, P-6)."""


class Frontend:
    """Bytes and timers in; bytes to write, and connections to close, out.

    A world calls `opened`, `feed`, `closed` and `fire` as things happen, and once per turn, for each connection in
    `dirty`, writes what `take_output` returns and closes it if `closing`. Nothing here waits, and nothing raises for
    what a client does. `now` never goes back.
    """

    def __init__(
        self,
        node: Node,
        terms: Terms,
        new_client_id: Callable[[], str],
        access: Access = OPEN,
        secret: bytes = b"",
        journal: Journal | None = None,
        quota: Quota = QUOTA,
    ) -> None:
        """*new_client_id* makes identifiers for clients that bring none; chance is the world's affair.

        *secret*: 32 random bytes of this process, to remember by who was found right; without it nobody is remembered.
        Without a *journal* nothing outlives the run.
        """
        self.terms = terms
        self.node = node
        self.ledger = node.ledger
        self.dirty: list[Connection] = []
        self.connections: dict[int, Connection] = {}
        self.retained = Retained(terms.retained_messages_max, terms.retained_bytes_max)
        self.plans = Plans(node.routes)
        self.keeping = keeping = Keeping(node.timers, journal)
        self.delivery = Delivery(node.ledger, keeping)
        self.delivery.is_state = self.retained.holds
        expiring = Expiring(node.timers, node.ledger, keeping)
        self.delivery.expires = expiring.watch
        asks_for_room = terms.queue_full is QueueFull.REFUSE
        self.publishing = Publishing(
            node, self.delivery, keeping, self.retained, terms.receive_maximum, terms.topic_alias_maximum, asks_for_room
        )
        self.publishing.checks_format = terms.payload_format_checked
        node.groups.is_sticky = terms.sharing == "sticky"
        sharing = Sharing(node, self.delivery)
        replaying = Replaying(node, self.delivery, self.retained)
        self.subscribing = Subscribing(node, self.delivery, keeping, sharing, replaying, FilterQuota(quota))
        self.turns = Turns(node, self.delivery, replaying, self.publishing, self.feed, lambda: self.input.packets)
        self.quota = quota
        self.admission = Admission(quota)
        self.authenticating = Authenticating(node.timers, access, secret)
        entitling = Entitling(node.routes, self.authenticating)
        self.connecting = Connecting(
            node,
            self.delivery,
            keeping,
            self.publishing,
            self.plans,
            sharing,
            self.authenticating,
            entitling,
            terms,
            new_client_id,
        )
        self.expelling = Expelling(self.connecting, node.timers)
        self.memory = Memory(
            quota.memory_bytes_max, self.connections, self.connecting, self.retained, self.delivery, keeping
        )
        self.publishing.is_memory_full = self.memory.is_full
        self.exchanging = Exchanging(self.connecting, self.authenticating, secret)
        self.notes = self.publishing.notes = self.subscribing.notes = self.connecting.notes
        self.restoring = Restoring(node, keeping, self.connecting, entitling, self.subscribing, self.retained)
        self.runs = Runs(node.ledger)
        self.input = Feed(
            self.plans,
            self.publishing,
            self.delivery,
            keeping,
            node.ledger,
            self.runs,
            terms.packet_bytes_max,
            asks_for_room,
            quota.connect_bytes_max,
            self.turns,
            self._on_packet,
        )
        self.sys_topics = SysTopics(
            node, self.connecting, self.publishing, keeping, self.retained, self._traffic, terms
        )
        self.rebirths = Rebirths(node, self.publishing, terms.sparkplug_rebirth_s)
        self.overlay: Overlay | None = None
        """Its part in a federation (`joining`); None if it stands alone."""
        self.of_session: dict[str, Callable[[Session, Instant], None]] = {
            "will": self.connecting.publish_late_will,
            "session": self.connecting.expire_session,
            "share": sharing.left,
            "expire": expiring.fire,
        }
        """What is due for sessions, by the name of the timer; `Ageing` where messages may wait only so long."""
        self._buffers_sent = 0
        self.accepted = 0
        """Transports so far; also the number of the last connection."""
        self.readable = self.turns.readable
        """Connections that were held and are not any more: a world that stopped reading them goes on."""
        delivery, publishing = self.delivery, self.publishing
        self._on: dict[type[Packet], Callable[[Connection, Any, Instant], None]] = {
            Connect: self.exchanging.on_connect,
            Auth: self.exchanging.on_auth,
            Publish: publishing.on_publish,
            PubAck: delivery.on_ack,
            PubRec: delivery.on_ack,
            PubComp: delivery.on_ack,
            PubRel: publishing.on_pubrel,
            Subscribe: self.subscribing.on_subscribe,
            Unsubscribe: self.subscribing.on_unsubscribe,
            PingReq: lambda connection, packet, now: connection.send(PING_RESP),
            Disconnect: self.connecting.on_disconnect,
        }

    def start(self, now: Instant) -> None:
        """Before the first connection: announce what we can do, begin the first minute of the books."""
        self.retained.keep(Publication("", FEATURE_TOPIC, b"1", 0, True, now))
        self.node.timers.set(("minute",), now - now % MINUTE + MINUTE)
        self.restoring.restate_if_wanted(now)
        self.sys_topics.start(now)
        self.rebirths.start(now)

    # -- what happens -------------------------------------------------------------------------------------------

    def opened(self, peer: str, now: Instant, entrance: Entrance = LOCAL) -> Connection:
        """A transport was accepted by *entrance*; *peer* says from where. It may be `closing` at once: too many."""
        self.accepted += 1
        connection = Connection(self.accepted, peer, self.dirty, self.terms.out_bytes_max, now)
        connection.entrance = entrance
        self.connections[connection.number] = connection
        if len(self.connections) > self.terms.connections_max:
            self.expelling.turn_away(connection, ReasonCode.SERVER_BUSY, "too many connections")
        elif self.memory.is_tight(now):
            self.expelling.turn_away(connection, ReasonCode.QUOTA_EXCEEDED, "memory is short")
        elif not self.admission.admits(peer, now):
            self.expelling.turn_away(connection, ReasonCode.CONNECTION_RATE_EXCEEDED, "connections come too fast")
        else:
            connection.meter = self.quota.meter(now)
            at = now + self.terms.connect_timeout_s * SECOND
            self.node.timers.set(("connect", connection.number), at)
        return connection

    def feed(self, connection: Connection, chunk: bytes, now: Instant) -> None:
        """Bytes arrived."""
        if connection.closing or connection.state is CLOSED:
            self.turns.late(connection, chunk)
            return
        published = self.ledger.published
        try:
            self.input.take(connection, chunk, now)
        except ProtocolError as error:
            self.expelling.offended(connection, error)
        memory = self.memory
        memory.unmeasured += len(chunk)
        if memory.unmeasured >= memory.due:
            memory.check(now)
        if connection.meter is not None:
            wait = connection.meter.charge(self.ledger.published - published, len(chunk), now)
            if wait and connection.is_open:
                self.turns.pause(connection, now + wait)

    def closed(self, connection: Connection, now: Instant) -> None:
        """The transport is gone, whoever closed it."""
        if self.connections.pop(connection.number, None) is not None:
            connection.closing = True
            self.exchanging.forget(connection)
            self.turns.forget(connection)
            self.connecting.detach(connection, now)

    def take_output(self, connection: Connection, now: Instant) -> list[bytes]:
        """What to write now, in order. With this, its QoS 0 messages count as delivered."""
        out = connection.take_out()
        connection.is_dirty = False
        self._buffers_sent += len(out)
        if connection.out_messages:
            self.delivery.written(connection, now)
        session = connection.session
        if session is not None and session.connection is connection:
            if session.outbox or session.inflight.unsent:
                self.delivery.release(session, now)
            if session.replays:
                self.turns.add(connection, now)
        return out

    def verifications(self) -> list[Verification]:
        """What the world is to run, in any order, wherever it likes, but not where others wait if it `is_slow`."""
        return self.authenticating.take()

    def verified(self, connection: Connection, verdict: Verdict, now: Instant) -> None:
        """A verification was run. What the client sent meanwhile is read now."""
        connect = self.authenticating.answered(connection, verdict, now)
        if connect is None:
            return
        self.readable.append(connection)
        if connection.closing:
            return
        self.connecting.judged(connection, connect, verdict, now)
        if not connection.closing:
            self.feed(connection, b"", now)

    def replace_access(self, access: Access, now: Instant) -> int:
        """Other files hold from now on, also for who is connected. Returns how many had to go."""
        self.authenticating.replace(access)
        return self.connecting.review(now)

    def fire(self, now: Instant) -> None:
        """Do what is due (`node.timers.next_due()` says when). One at a time: should one fail, the others stay due."""
        timers = self.node.timers
        while (name := timers.take_next(now)) is not None:
            match name:
                case ("alive", int(number)) if number in self.connections:
                    self.expelling.check_alive(self.connections[number], now)
                case ("connect", int(number)) if number in self.connections:
                    late = self.connections[number]
                    self.expelling.turn_away(late, ReasonCode.KEEP_ALIVE_TIMEOUT, "no CONNECT came in time")
                case ("pass", int(number)) if number in self.connections:
                    over = self.connections[number]
                    self.expelling.dismiss(over, ReasonCode.MAXIMUM_CONNECT_TIME, "the token has expired")
                case ("turn",):
                    self.turns.next(now)
                case ("pause", int(number)) if number in self.connections:
                    self.turns.resume(self.connections[number], now)
                case (str(what), str(client)) if what in self.of_session:
                    if (session := self.connecting.sessions.get(ClientId(client))) is not None:
                        self.of_session[what](session, now)
                case ("commit",):
                    self.keeping.wake()
                case ("overlay",) if self.overlay is not None:
                    self.overlay.fire(now)
                case ("restate",):
                    self.restoring.restate(now)
                case ("tidy",):
                    self.node.tidy(now)
                case ("sys", *what):
                    self.sys_topics.fire(now, is_presence=bool(what))
                case ("rebirths",):
                    self.rebirths.fire(now)
                case ("minute",):
                    timers.set(("minute",), now - now % MINUTE + MINUTE)
                    self.node.close_minute(now)
                    self.retained.purge(now)
                    self.keeping.tell_time(now)

    def ask_for_room(self) -> None:
        """From now on a full queue may refuse a publisher."""
        self.publishing.asks_for_room = self.input.asks_for_room = True

    def synced(self, work: Work, now: Instant) -> None:
        """The disk has done *work*: who waited for it goes on."""
        self.keeping.done(work, now)
        waiting, self.keeping.waiting = self.keeping.waiting, []
        for connection in waiting:
            self._touch(connection)
        if self.overlay is not None:
            self.overlay.synced(now)
        self.restoring.restate_if_wanted(now)

    def disk_failed(self, work: Work, reason: str, now: Instant) -> None:
        """The disk has not done *work*: who waited for it is sent away, told so if its version can hear it (P1)."""
        for connection in self.keeping.failed(work, reason, now):
            self.expelling.dismiss(connection, ReasonCode.QUOTA_EXCEEDED, f"the disk takes nothing: {reason}")

    def send_elsewhere(self, redirect: Redirect | None) -> int:
        """Send all clients elsewhere, who are here and who come; None: nobody any more. Returns how many went."""
        self.connecting.redirect = redirect
        if redirect is None:
            return 0
        gone = [one for one in self.connections.values() if one.is_open and one.entrance.verdict is None]
        for connection in gone:
            self.connecting.dismiss(connection, redirect.reason, redirect.why, redirect.reference)
        return len(gone)

    def stop(self, now: Instant) -> None:
        """Say good-bye to everybody. The world closes the connections, then calls `close_books`."""
        for connection in list(self.connections.values()):
            if connection.is_open:
                self.connecting.dismiss(connection, ReasonCode.SERVER_SHUTTING_DOWN, "the broker stops")
            else:
                connection.close()

    def close_books(self, now: Instant) -> None:
        """After the last connection is gone: every open copy is noted as queued, and the last minute's counts."""
        for session in self.connecting.sessions.values():
            self.delivery.leave(session, now)
        if self.overlay is not None:
            self.overlay.close_books(now)
        self.keeping.settle_up(now)
        self.node.close_books(now)

    def _touch(self, connection: Connection) -> None:
        """See to it that the world looks at *connection*."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    # -- inside -----------------------------------------------------------------------------------------------

    def _traffic(self) -> dict[str, int]:
        """Packets of every kind, and transports. A buffer is one packet, but for what lies in runs."""
        return {
            "messages/received": self.input.packets,
            "messages/sent": self._buffers_sent + self.runs.bundled,
            "sockets": self.accepted,
        }

    def _on_packet(self, connection: Connection, first: int, body: bytes, now: Instant) -> None:
        """One whole packet that is no ordinary PUBLISH or PUBACK. Raises ProtocolError."""
        if connection.state is CONNECTED and first >> 4 == 1:
            # Before it is read: what can be wrong inside a CONNECT has reasons that no DISCONNECT may carry.
            raise ProtocolViolation("a second CONNECT", v311="MQTT-3.1.0-2", v5="MQTT-3.1.0-2")
        try:
            packet = decode_packet(first, body, connection.dialect)
        except ProtocolError as error:
            if connection.state is not State.AWAITING_CONNECT:
                raise
            self.expelling.refuse_unreadable(connection, error, body)
            return
        kind = type(packet)
        if next_state(connection.state, kind) is None:
            raise ProtocolViolation(
                f"{kind.__name__.upper()} is not for a server, or not now", v311="MQTT-3.1.0-2", v5="MQTT-3.1.0-2"
            )
        self._on[kind](connection, packet, now)
