"""The MQTT front end as a whole: what a world hands in, and what it fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.assembly import assemble
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import ConnectionRateLimit
from edgebridge.frontend.fast_path.input import InputFastPath
from edgebridge.frontend.fast_path.qos0_batch import Qos0Batches
from edgebridge.frontend.handlers.authentication import Verification
from edgebridge.frontend.handlers.connect import DisplacementCause
from edgebridge.frontend.handlers.disconnect import Disconnector
from edgebridge.frontend.input_scheduler import InputScheduler
from edgebridge.frontend.memory_limit import MemoryLimit
from edgebridge.frontend.options import (
    LOCAL_LISTENER,
    NO_HOST,
    QUOTA,
    FrontendHost,
    FrontendOptions,
    ListenerContext,
    Quota,
    Redirect,
)
from edgebridge.frontend.sys_topics import SysTopics
from edgebridge.frontend.unfinished_input import UnfinishedInput
from edgebridge.session.access import OPEN, AccessPolicy
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.session.lifecycle import CLOSED, CONNECTED, ConnectionState, next_state
from edgebridge.session.queue.outbox import OverflowPolicy
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
from edgebridge.wire.properties import Properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MINUTE, SECOND, Instant
from edgebroker.limits import QUEUED_BYTES_LEAST, VERIFICATIONS_MAX
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.publication import Publication
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.work import DiskWork

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember
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
        terms: FrontendOptions,
        new_client_id: Callable[[], str],
        access: AccessPolicy = OPEN,
        secret: bytes = b"",
        journal: Journal | None = None,
        quota: Quota = QUOTA,
        host: FrontendHost = NO_HOST,
    ) -> None:
        """*new_client_id* makes identifiers for clients that send none; chance is the host's affair.

        *secret*: 32 random bytes of this process, the key of the cache of verified passwords; without it nothing is
        cached. Without a *journal* nothing outlives the run.
        """
        parts = assemble(node, terms, new_client_id, access, secret, journal, quota, host)
        self.options = terms
        self.quota = quota
        self.host = host
        self.node = node
        self.ledger = node.ledger
        self.dirty: list[Connection] = []
        self.connections = parts.memory_accounts.connections
        self.retained = parts.retained
        self.fan_out_cache = parts.fan_out_cache
        self.journal = parts.session_journal
        self.pager = parts.pager
        self.expiry = parts.expiry
        self.delivery = parts.delivery
        self.events = parts.events
        self.publish_handler = parts.publish_handler
        self.subscribe_handler = parts.subscribe_handler
        self.connect_handler = parts.connect_handler
        self.authenticator = parts.authenticator
        self.enhanced_auth = parts.enhanced_auth
        self.recovery = parts.recovery
        self.sparkplug_rebirth = parts.sparkplug_rebirth
        self.shared_subscriptions = parts.shared_subscriptions
        self.qos0_batches = Qos0Batches(node.ledger)
        self.connection_rate = ConnectionRateLimit(quota)
        self.disconnector = Disconnector(self.connect_handler, node.timers)
        self.memory_limit = MemoryLimit(parts.memory_accounts, self.connect_handler, self.delivery, self.pager)
        self.unfinished_input = UnfinishedInput(
            self.connections, self.disconnector, node.timers, terms.connect_timeout_s
        )
        self.input_scheduler = InputScheduler(
            node.timers, self.delivery, self.subscribe_handler.replay, self.publish_handler, self.feed
        )
        self.input = InputFastPath(
            self.fan_out_cache,
            self.publish_handler,
            self.delivery,
            self.journal,
            node.ledger,
            self.qos0_batches,
            terms.packet_bytes_max,
            terms.queue_full is OverflowPolicy.REFUSE,
            quota.connect_bytes_max,
            self.input_scheduler,
            self._on_packet,
        )
        self.sys_topics = SysTopics(
            node,
            self.connect_handler,
            self.publish_handler,
            self.journal,
            self.retained,
            self._traffic,
            terms.sys_interval_s,
            host,
            parts.presence,
        )
        self.federation: FederationMember | None = None
        """Its part in a federation (`joining`); None if it stands alone."""
        self.session_timers: dict[str, Callable[[Session, Instant], None]] = {
            "will": self.connect_handler.publish_delayed_will,
            "session": self.connect_handler.expire_session,
            "share": parts.shared_subscriptions.member_disconnected,
            "expire": self.expiry.fire,
        }
        """What is due for sessions, by the name of the timer; `Ageing` where messages may wait only so long."""
        self._buffers_sent = 0
        self.accepted = 0
        """Transports so far; also the number of the last connection."""
        self.readable = self.input_scheduler.readable
        """Connections that were held and are not any more: a world that stopped reading them goes on."""
        delivery, publish_handler = self.delivery, self.publish_handler
        self._on: dict[type[Packet], Callable[[Connection, Any, Instant], None]] = {
            Connect: self.enhanced_auth.on_connect,
            Auth: self.enhanced_auth.on_auth,
            Publish: publish_handler.on_publish,
            PubAck: delivery.on_ack,
            PubRec: delivery.on_ack,
            PubComp: delivery.on_ack,
            PubRel: publish_handler.on_pubrel,
            Subscribe: self.subscribe_handler.on_subscribe,
            Unsubscribe: self.subscribe_handler.on_unsubscribe,
            PingReq: lambda connection, packet, now: connection.send(PING_RESP),
            Disconnect: self.connect_handler.on_disconnect,
        }

    def start(self, now: Instant) -> None:
        """Before the first connection: announce what we can do, begin the first minute of the books."""
        self.retained.retain(Publication("", FEATURE_TOPIC, b"1", 0, True, now))
        self.node.timers.set(("minute",), now - now % MINUTE + MINUTE)
        self.recovery.begin_snapshot_if_due(now)
        self.sys_topics.start(now)
        self.sparkplug_rebirth.start(now)

    # -- what happens -------------------------------------------------------------------------------------------

    def opened(self, peer: str, now: Instant, listener_context: ListenerContext = LOCAL_LISTENER) -> Connection:
        """A transport was accepted by *entrance*; *peer* says from where. It may be `closing` at once: too many."""
        self.accepted += 1
        connection = Connection(self.accepted, peer, self.dirty, self.options.out_bytes_max, now)
        connection.listener_context = listener_context
        self.connections[connection.number] = connection
        self.connect_handler.connecting.add(connection)
        if len(self.connections) > self.options.connections_max:
            self.close_for_newcomer(connection)
        if connection.closing:
            return connection
        if self.memory_limit.is_tight(now):
            self.disconnector.reject(connection, ReasonCode.QUOTA_EXCEEDED, "memory is short")
        elif not self.connection_rate.admits(peer, now):
            self.disconnector.reject(connection, ReasonCode.CONNECTION_RATE_EXCEEDED, "connections come too fast")
        else:
            connection.meter = self.quota.meter(now)
            at = now + self.options.connect_timeout_s * SECOND
            self.node.timers.set(("connect", connection.number), at)
        return connection

    def close_for_newcomer(self, newcomer: Connection, listener: int | None = None) -> None:
        """Close one because there are too many, at *listener* or in all: the oldest connection without CONNECT of the
        address that has the most of these, which is the *newcomer* itself if there is no other.
        """
        closed = self.connect_handler.connecting.connection_to_close(listener) or newcomer
        why = "too many connections"
        if closed is newcomer:
            self.disconnector.reject(closed, ReasonCode.SERVER_BUSY, why)
        else:
            why = f"{why}, and most of those without CONNECT come from this address"
            self.disconnector.displace(closed, DisplacementCause.CONNECTING, ReasonCode.SERVER_BUSY, why)

    def begin_handshake(self, connection: Connection) -> None:
        """The first byte of TLS has come on *connection*. If handshakes hold too much, one of them is closed."""
        connecting = self.connect_handler.connecting
        connecting.begin_handshake(connection)
        closed = connecting.handshake_to_close(self.quota.memory_bytes_max)
        if closed is not None:
            why = "too many TLS handshakes, and most of them from this address"
            self.disconnector.displace(closed, DisplacementCause.HANDSHAKE, ReasonCode.SERVER_BUSY, why)

    def feed(self, connection: Connection, chunk: bytes, now: Instant) -> None:
        """Bytes arrived."""
        if self.journal.is_full:
            self.memory_limit.check_if_full(now)
        if connection.closing or connection.state is CLOSED:
            self.input_scheduler.receive_late(connection, chunk)
            return
        published = self.ledger.published
        try:
            self.input.receive(connection, chunk, now)
        except ProtocolError as error:
            self.disconnector.protocol_error(connection, error)
        memory = self.memory_limit
        memory.unmeasured += len(chunk)
        if memory.unmeasured >= memory.due:
            self.unfinished_input.check(self.quota)
            memory.check(now)
        if connection.meter is not None:
            wait = connection.meter.charge(self.ledger.published - published, len(chunk), now)
            if wait and connection.is_open:
                self.input_scheduler.pause(connection, now + wait)

    def closed(self, connection: Connection, now: Instant) -> None:
        """The transport is gone, whoever closed it."""
        if self.connections.pop(connection.number, None) is not None:
            connection.closing = True
            self.enhanced_auth.forget(connection)
            self.input_scheduler.forget(connection)
            self.connect_handler.detach(connection, now)

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
            if session.replays or connection.is_deferred:
                self.input_scheduler.schedule(connection, now)
        return out

    def verifications(self, slow_max: int = VERIFICATIONS_MAX) -> list[Verification]:
        """What the world is to run, wherever it likes, but not where others wait if it `is_slow`.

        *slow_max*: how many of those it can run now. The rest is asked for when one of them is done.
        """
        return self.authenticator.take_waiting(slow_max)

    @property
    def displaced(self) -> dict[DisplacementCause, int]:
        """What was given up so that others are served, by cause."""
        counts = self.connect_handler.counters.displaced
        return {**counts, DisplacementCause.VERIFICATION: self.authenticator.displaced}

    def verified(self, connection: Connection, verdict: AuthenticationResult, now: Instant) -> None:
        """A verification was run. What the client sent meanwhile is read now."""
        connect = self.authenticator.complete(connection, verdict, now)
        if connect is None:
            return
        self.readable.append(connection)
        if connection.closing:
            return
        self.connect_handler.complete_connect(connection, connect, verdict, now)
        if not connection.closing:
            self.feed(connection, b"", now)

    def resume_connect(
        self,
        connection: Connection,
        connect: Connect,
        verdict: AuthenticationResult,
        proof: Properties | None,
        now: Instant,
    ) -> None:
        """The session of a client that connects is here, or was not found at another gateway in time."""
        connection.state = ConnectionState.AWAITING_CONNECT
        connection.is_held = False
        self.readable.append(connection)
        self.connect_handler.complete_connect(connection, connect, verdict, now, proof, is_located=True)
        if not connection.closing:
            self.feed(connection, b"", now)

    def replace_access(self, access: AccessPolicy, now: Instant) -> int:
        """Other files hold from now on, also for who is connected. Returns how many had to go."""
        self.authenticator.replace_access(access)
        return self.connect_handler.recheck_access(now)

    def fire(self, now: Instant) -> None:
        """Do what is due (`node.timers.next_due()` says when). One at a time: should one fail, the others stay due."""
        timers = self.node.timers
        while (name := timers.take_next(now)) is not None:
            match name:
                case ("alive", int(number)) if number in self.connections:
                    self.disconnector.check_keep_alive(self.connections[number], now)
                case ("connect", int(number)) if number in self.connections:
                    late = self.connections[number]
                    self.disconnector.reject(late, ReasonCode.KEEP_ALIVE_TIMEOUT, "no CONNECT came in time")
                case ("pass", int(number)) if number in self.connections:
                    over = self.connections[number]
                    self.disconnector.disconnect(over, ReasonCode.MAXIMUM_CONNECT_TIME, "the token has expired")
                case ("packet", int(number)) if number in self.connections:
                    self.unfinished_input.check_rate(self.connections[number], self.quota, now)
                case ("turn",):
                    self.input_scheduler.run_next(self.input, now)
                case ("pause", int(number)) if number in self.connections:
                    self.input_scheduler.resume(self.connections[number], now)
                case (str(what), str(client)) if what in self.session_timers:
                    if (session := self.connect_handler.sessions.get(ClientId(client))) is not None:
                        self.session_timers[what](session, now)
                case ("commit",):
                    self.host.disk_work_due()
                case ("page",):
                    self.pager.fire(now)
                case ("overlay",) if self.federation is not None:
                    self.federation.fire(now)
                case ("roaming",) if self.federation is not None and self.federation.roaming is not None:
                    self.federation.roaming.fire(now)
                case ("files",) if self.publish_handler.file_service is not None:
                    self.publish_handler.file_service.fire(now)
                case ("restate",):
                    self.recovery.continue_snapshot(now)
                case ("tidy",):
                    self.node.tidy(now)
                case ("sys", *what):
                    self.sys_topics.fire(now, is_presence=bool(what))
                case ("rebirths",):
                    self.sparkplug_rebirth.fire(now)
                case ("minute",):
                    timers.set(("minute",), now - now % MINUTE + MINUTE)
                    self.node.close_minute(now)
                    self.retained.purge(now)
                    self.connect_handler.moves.purge(now)
                    self.journal.append_clock(now)

    def refuse_when_full(self) -> None:
        """From now on a full queue may refuse a publisher."""
        self.publish_handler.admission.refuses_when_full = self.input.refuses_when_full = True

    def synced(self, work: DiskWork, now: Instant) -> None:
        """The disk has done *work*: who waited for it goes on."""
        self.journal.work_done(work, now)
        self._page_work_done(now)
        waiting, self.journal.unblocked = self.journal.unblocked, []
        for connection in waiting:
            self._mark_dirty(connection)
        if self.federation is not None:
            self.federation.synced(now)
        self.recovery.begin_snapshot_if_due(now)

    def disk_failed(self, work: DiskWork, reason: str, now: Instant) -> None:
        """The disk has not done *work*: who waited for it is sent away, told so if its version can hear it (P1)."""
        for connection in self.journal.work_failed(work, reason, now):
            self.disconnector.disconnect(connection, ReasonCode.QUOTA_EXCEEDED, f"the disk takes nothing: {reason}")
        self._page_work_done(now)

    def _page_work_done(self, now: Instant) -> None:
        """Messages of some sessions are in memory again: they are sent, and watched as those that are queued."""
        for session in self.pager.collect(now):
            outbox = session.outbox
            if outbox.expiring:
                self.expiry.watch(session, now, now)
            if outbox.age_us:
                self.node.timers.set(("age", session.client_id), now + 1)
            if session.replays is not None:
                self.subscribe_handler.replay.paged_in(session)
            self.delivery.release(session, now)
        if self.federation is not None:
            self.federation.page_work_done(now)
        if self.options.queued_bytes_max is None:
            self.connect_handler.queued.bytes_max = max(QUEUED_BYTES_LEAST, self.pager.bytes_max)

    def redirect_clients(self, redirect: Redirect | None) -> int:
        """Send all clients elsewhere, who are here and who come; None: nobody any more. Returns how many went."""
        self.connect_handler.redirect = redirect
        if redirect is None:
            return 0
        gone = [one for one in self.connections.values() if one.is_open and one.listener_context.verdict is None]
        for connection in gone:
            self.connect_handler.disconnect(connection, redirect.reason, redirect.why, redirect.reference)
        return len(gone)

    def stop(self, now: Instant) -> None:
        """Say good-bye to everybody. The world closes the connections, then calls `close_books`."""
        for connection in list(self.connections.values()):
            if connection.is_open:
                self.connect_handler.disconnect(connection, ReasonCode.SERVER_SHUTTING_DOWN, "the broker stops")
            else:
                connection.close()

    def close_books(self, now: Instant) -> None:
        """After the last connection is gone: every open copy is noted as queued, and the last minute's counts."""
        for session in self.connect_handler.sessions.values():
            self.delivery.close_books(session, now)
        if self.federation is not None:
            self.federation.peer_copies.close_books(now)
            if self.federation.roaming is not None:
                self.federation.roaming.close_books(now)
        self.journal.append_settled(now)
        self.ledger.end_run(now)
        self.node.close_books(now)

    def _mark_dirty(self, connection: Connection) -> None:
        """See to it that the world looks at *connection*."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    # -- inside -----------------------------------------------------------------------------------------------

    def _traffic(self) -> dict[str, int]:
        """Packets of every kind, and transports. A buffer is one packet, but for what lies in runs."""
        return {
            "messages/received": self.input.packets,
            "messages/sent": self._buffers_sent + self.qos0_batches.coalesced,
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
            if connection.state is not ConnectionState.AWAITING_CONNECT:
                raise
            self.disconnector.refuse_unreadable(connection, error, body)
            return
        kind = type(packet)
        if next_state(connection.state, kind) is None:
            raise ProtocolViolation(
                f"{kind.__name__.upper()} is not for a server, or not now", v311="MQTT-3.1.0-2", v5="MQTT-3.1.0-2"
            )
        self._on[kind](connection, packet, now)
