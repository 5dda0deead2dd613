"""One bridge as a state machine: it dials, connects both ends, forwards packets, and reconnects with back-off.

`Backoff` draws the waiting times between attempts. `PoisonDetector` names the message on which a remote broker hangs
up again and again. `KeepAliveTimer` sends PINGREQ when idle and detects a remote broker that stopped answering.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from edgebridge.bridge import handshake
from edgebridge.bridge.budget import LocalTime
from edgebridge.bridge.counters import BridgeCounters
from edgebridge.bridge.endpoints import TRANSITIONS, BridgeCommand, BridgeState, Endpoints, printable, reason_text
from edgebridge.bridge.handshake import NEXT_ADDRESS_REASONS, Handshake, HandshakeRetry, RemoteSubscriptions
from edgebridge.bridge.inbound import InboundFlow
from edgebridge.bridge.local_end import LocalEnd
from edgebridge.bridge.loop_detection import LoopDetector
from edgebridge.bridge.options import BridgeOptions, LocalSession, RemoteCapabilities
from edgebridge.bridge.outbound import OutboundFlow
from edgebridge.bridge.pacing_queue import PacingQueue
from edgebridge.bridge.remote_end import RemoteEnd
from edgebridge.bridge.rules import RuleSet
from edgebridge.bridge.shaper import Shaper
from edgebridge.wire.encode import PING_REQ
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.packets import (
    ConnAck,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
)
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Duration, Instant


class KeepAliveTimer:
    """A ping goes out when half of the keep alive has passed without a word; as long again, and nobody is there.

    So a connection whose other end vanished without a word is given up within one keep alive, and we are never silent
    for longer than it [MQTT-3.1.2-22].
    """

    def __init__(self) -> None:
        self._half: Duration = 0
        self._received_at: Instant = 0
        self._sent_at: Instant = 0
        self._pinged_at: Instant | None = None

    def begin(self, keep_alive_s: int, now: Instant) -> None:
        """A connection is open. 0: nobody is asked."""
        self._half = keep_alive_s * SECOND // 2
        self._received_at = self._sent_at = now
        self._pinged_at = None

    def on_receive(self, now: Instant) -> None:
        """Something came."""
        self._received_at = now
        self._pinged_at = None

    def on_send(self, now: Instant) -> None:
        """Something was sent."""
        self._sent_at = now

    def due(self) -> Instant | None:
        """When to look again."""
        if not self._half:
            return None
        if self._pinged_at is not None:
            return self._pinged_at + self._half
        return min(self._received_at, self._sent_at) + self._half

    def wants_ping(self, now: Instant) -> bool:
        """Whether to ping now; then it counts as done."""
        if self._pinged_at is not None or not self._half or now < min(self._received_at, self._sent_at) + self._half:
            return False
        self._pinged_at = self._sent_at = now
        return True

    def is_timed_out(self, now: Instant) -> bool:
        """Whether nobody has answered."""
        return self._pinged_at is not None and now >= self._pinged_at + self._half


RETRY_MIN: Final[Duration] = 1 * SECOND
STABLE_AFTER: Final[Duration] = 30 * SECOND
"""A connection that lasted as long was a success: what ends sooner is refused in another way."""


class Backoff:
    """Decorrelated jitter: each wait is drawn between LEAST and three times the last one, up to a bound."""

    def __init__(self, most: Duration, chance: Callable[[], float]) -> None:
        """*chance* gives numbers from 0 to below 1."""
        self._most = max(most, RETRY_MIN)
        self._chance = chance
        self._last = RETRY_MIN

    def next(self) -> Duration:
        """The next wait."""
        drawn = RETRY_MIN + int(self._chance() * (3 * self._last - RETRY_MIN))
        self._last = min(self._most, drawn)
        return self._last

    def reset(self) -> None:
        """All is well again."""
        self._last = RETRY_MIN


POISON_ATTEMPTS: Final = 3
"""Connections in a row that ended before the same message was answered: two may be chance."""


class PoisonDetector:
    """The oldest message that the remote has not answered, and how often it hung up on it."""

    def __init__(self, memory: LocalSession) -> None:
        self._local_session = memory
        self._oldest: tuple[int, str, int] | None = None
        self._times = 0

    def annotate(self, reason: str) -> str:
        """The remote has ended a connection; *reason*, with what may be behind it."""
        oldest = self._local_session.oldest()
        self._times = self._times + 1 if oldest == self._oldest else 1
        self._oldest = oldest
        if oldest is None or self._times < POISON_ATTEMPTS:
            return reason
        _, topic, octets = oldest
        return (
            f"{reason}; as before, it had not answered a message of {octets:,} bytes under {topic}: if it does not "
            "take that, write rules whose patterns leave the topic out, and what waits behind it goes"
        )


CONNACK_TIMEOUT: Final[Duration] = 30 * SECOND
"""How long the remote may take for CONNACK."""
DIAL_TIMEOUT: Final[Duration] = 120 * SECOND
"""How long to dial in vain; who dials knows more, and sooner."""
_CONNECTED: Final = (BridgeState.GREETING, BridgeState.OPEN)


class Bridge:
    """A state machine: see the package. `state`, `reason`, `out`, `into` and `refusals` may be looked at."""

    def __init__(
        self, terms: BridgeOptions, memory: LocalSession, chance: Callable[[], float], asked: Set[str] = frozenset()
    ) -> None:
        """*chance* gives numbers from 0 to below 1, for the back-off. *asked*: what the remote was asked for before."""
        self.options = terms
        self.state = BridgeState.PAUSED
        self.reason = ""
        """Why there is no connection, or why the last one ended."""
        self.since: Instant = 0
        """When `state` began."""
        self.connects = 0
        """Connections so far."""
        self.outbound_counters = BridgeCounters()
        self.inbound_counters = BridgeCounters()
        self.refusals: dict[int, str] = {}
        """Rules whose subscription was refused, by number: by whom, and why."""
        self._local_session = memory
        self._endpoints = Endpoints()
        self._rules = RuleSet(terms.rules, not terms.stands_by)
        self._loop_detector = LoopDetector(terms, self._rules)
        self._outbound = OutboundFlow(self._endpoints, self._rules, self._loop_detector, self.outbound_counters, memory)
        self._inbound = InboundFlow(
            self._endpoints, self._rules, self._loop_detector, self.inbound_counters, terms, memory
        )
        self._keepalive = KeepAliveTimer()
        self._stall_check_due: Instant = 0  # when to look whether the remote answers
        self._backoff = Backoff(terms.retry_max, chance)
        self._due: Instant | None = None
        self._remote_end = RemoteEnd(terms, self._endpoints, self._outbound, self._inbound)
        self._subscribes_later = False  # the remote, for what it is to send us
        self._awaits_local_end = False  # what the remote says has to wait for it
        self.handshake = Handshake(terms, memory, self._endpoints)
        self._poison_detector = PoisonDetector(memory)
        self._remote_subscriptions = RemoteSubscriptions(
            self._endpoints, self._rules, memory, self.refusals, asked, terms.retained_again
        )
        self.shaper = Shaper(terms.shaper_options)
        self.pacing_queue = (
            None
            if terms.shaper_options.is_unlimited
            else PacingQueue(self.shaper, self._outbound, self._endpoints, self.outbound_counters, memory)
        )
        """Where messages wait for the rate and the day's bytes, if there are any."""
        self.local_end = LocalEnd(
            terms,
            memory,
            self._endpoints,
            self._rules,
            self._outbound,
            self._inbound,
            self.refusals,
            self.pacing_queue or self._outbound,
        )

    # -- what the world fetches ---------------------------------------------------------------------------------

    @property
    def capabilities(self) -> RemoteCapabilities:
        """What the remote said last."""
        return self._endpoints.capabilities

    @property
    def sends_qos_1(self) -> bool:
        """Whether messages of QoS 2 go at QoS 1, because the remote acknowledged one in another way than QoS 2 does."""
        return self._outbound.qos_max < 2

    @property
    def retransmitted(self) -> int:
        """QoS 2 messages that were sent again because the remote lost its session: it may have them twice."""
        return self.local_end.retransmitted

    @property
    def requested_subscriptions(self) -> frozenset[str]:
        """The texts of all subscriptions that the remote may have of us; the same object while nothing changes. To be
        remembered before what is said is written: the next splice has to know them.
        """
        return self._remote_subscriptions.requested

    def take_commands(self) -> list[BridgeCommand]:
        """What is to be done now, in order."""
        orders, self._endpoints.commands = self._endpoints.commands, []
        return orders

    def take_remote_output(self, now: Instant) -> list[bytes]:
        """What to write to the remote now."""
        taken, self._endpoints.remote = self._endpoints.remote, []
        if taken:
            self._keepalive.on_send(now)
            self.shaper.record_write(sum(map(len, taken)), now)
        return taken

    def take_local_output(self) -> list[bytes]:
        """What to write to our own front end now."""
        taken, self._endpoints.local = self._endpoints.local, []
        return taken

    def take_warnings(self) -> list[tuple[str, str]]:
        """Events of the operator log and their texts, each once in the life of this bridge."""
        warnings, self._endpoints.warnings = self._endpoints.warnings, []
        return warnings

    def next_due(self) -> Instant | None:
        """When to call `fire`."""
        if self.state is not BridgeState.OPEN:
            return self._due
        if self.local_end.has_backlog or self._inbound.has_backlog:
            return self.since  # as soon as others have had their turn
        out = self._outbound.due() if self.pacing_queue is None else self.pacing_queue.due()
        return min(due for due in (self._keepalive.due(), out, self._stall_check_due) if due is not None)

    # -- what an operator wants ---------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin: from now on what is for the remote is kept, and it is dialled."""
        self._local_session.watch_retained()
        if self.local_end.needs_subscriptions():
            self._endpoints.commands.append(BridgeCommand.OPEN)
        self._enter(BridgeState.WAITING, now)
        self._due, self.reason = now, ""
        if self.shaper.is_closed:
            self._end(BridgeState.CLOSED, self._closed_reason, now)

    def set_local_time(self, moment: LocalTime, now: Instant) -> None:
        """A clock on the wall shows *moment*: to be said before `start`, and when a minute begins."""
        if self.shaper.set_local_time(moment, now):
            self.outbound_counters.by_prefix.begin_day()
            self.inbound_counters.by_prefix.begin_day()
        if self.state is BridgeState.CLOSED:
            self.reason = self._closed_reason
            if not self.shaper.is_closed:
                self._enter(BridgeState.WAITING, now)
                self._due = now
        elif self.shaper.is_closed and self.state is not BridgeState.PAUSED:
            self._disconnect(ReasonCode.NORMAL_DISCONNECTION)
            self._end(BridgeState.CLOSED, self._closed_reason, now)
        elif self.pacing_queue is not None and self.state is BridgeState.OPEN:
            self.pacing_queue.fire(now)

    @property
    def _closed_reason(self) -> str:
        """Why nobody is dialled, if the clock forbids it."""
        until = self.shaper.closed_until
        return f"closed until {until}, as its schedule says" if until else ""

    def pause(self, now: Instant, reason: str = "an operator wants it so") -> None:
        """Hang up, and dial no more until `start`. What is for the remote waits."""
        if self.state is not BridgeState.PAUSED:
            self._disconnect(ReasonCode.NORMAL_DISCONNECTION)
            self._end(BridgeState.PAUSED, reason, now)

    def remove(self, now: Instant) -> bool:
        """Hang up for good; whether that ended the session at the remote, which is asked for by version 5 alone."""
        can = self.state is BridgeState.OPEN and self._endpoints.capabilities.dialect.has_properties
        self._disconnect(ReasonCode.NORMAL_DISCONNECTION, {Property.SESSION_EXPIRY_INTERVAL: 0} if can else None)
        if self.state is not BridgeState.PAUSED:
            self._end(BridgeState.PAUSED, "it is no more", now)
        return can

    # -- the remote ---------------------------------------------------------------------------------------------

    def on_connected(self, now: Instant) -> None:
        """There is a connection to the remote."""
        self._awaits_local_end = False
        self._remote_end.begin_connection()
        self._outbound.drop_unwritten()
        self._enter(BridgeState.GREETING, now)
        self._due = now + CONNACK_TIMEOUT
        self.handshake.begin()
        self.handshake.record_doubt(now)

    def on_connection_lost(self, reason: str, now: Instant) -> None:
        """There is no connection to the remote any more, or none came about."""
        stays = self.state is not BridgeState.GREETING or not self.handshake.on_no_connack()
        if self.state is BridgeState.OPEN:
            reason = self._poison_detector.annotate(reason)
        if self.state in (BridgeState.DIALLING, BridgeState.GREETING, BridgeState.OPEN):
            self._end(BridgeState.WAITING, reason, now, is_connected=False, stays=stays)

    def receive_remote(self, chunk: bytes, now: Instant) -> None:
        """Bytes of the remote."""
        self._remote_end.feed(chunk)
        if self.state not in _CONNECTED:  # the world has not hung up yet: it is counted when the next one begins
            return
        self._keepalive.on_receive(now)
        self.shaper.record_read(len(chunk))
        self._read(now)

    def _read(self, now: Instant) -> None:
        """Packets of the remote, as far as there is an end for them."""
        try:
            while (
                not self._awaits_local_end
                and (packet := self._remote_end.next_packet(self.state is BridgeState.OPEN)) is not None
            ):
                self._on_remote(packet, now)
                if self.state not in _CONNECTED:
                    break
        except ProtocolError as error:
            self._give_up(f"the remote breaks the protocol: {error}", error.reason, now)
        if self._inbound.full_reason and self.state is BridgeState.OPEN:
            self._give_up(f"no room here: {self._inbound.full_reason}", ReasonCode.QUOTA_EXCEEDED, now)

    def _on_remote(self, packet: Packet, now: Instant) -> None:
        match packet:
            case ConnAck() if self.state is BridgeState.GREETING:
                self._on_connack(packet, now)
            case _ if self.state is BridgeState.GREETING:
                self._give_up("the remote says something else than CONNACK", ReasonCode.PROTOCOL_ERROR, now)
            case Publish():
                self._inbound.publish(packet, now)
            case PubAck() | PubRec() | PubComp():
                self._outbound.on_acknowledgement(packet)
            case PubRel():
                self._inbound.on_pubrel(packet.packet_id)
            case SubAck():
                self._remote_subscriptions.on_suback(packet)
            case UnsubAck():
                self._remote_subscriptions.on_unsuback(packet)
            case Disconnect():
                why = f"the remote said good-bye: {reason_text(packet.reason, packet.properties)}"
                self._end(
                    BridgeState.WAITING,
                    self._poison_detector.annotate(why),
                    now,
                    stays=packet.reason not in NEXT_ADDRESS_REASONS,
                )

    def _on_connack(self, connack: ConnAck, now: Instant) -> None:
        match self.handshake.on_connack(connack):
            case RemoteCapabilities() as granted:
                self._begin(granted, now)
            case HandshakeRetry():
                self._dial_again(now)
            case reason:
                self.handshake.record_doubt(now)
                self._end(BridgeState.WAITING, reason, now, stays=False)

    def _begin(self, granted: RemoteCapabilities, now: Instant) -> None:
        """The remote has greeted us: what there is goes through, from when our own front end is there too."""
        self._endpoints.capabilities = granted
        self.connects += 1
        self.reason = ""
        self._enter(BridgeState.OPEN, now)
        self._keepalive.begin(granted.keep_alive_s, now)
        self._stall_check_due = now + self.options.answer_max // 2
        self._rules.set_remote(granted.tests_filters)
        self._loop_detector.begin(granted)
        self._outbound.begin_connection()
        self._inbound.begin_connection()
        self.refusals.clear()
        if self.local_end.is_connected:  # it was opened for its subscriptions alone
            self.local_end.close()
        # What the remote keeps for us from now on would be thrown away, if we died and did not know that we had met it.
        self._subscribes_later = not self._local_session.sync_state.has_remote_session
        if not self._subscribes_later:
            self._subscribe()
        self._awaits_local_end = True
        self._endpoints.commands.append(BridgeCommand.OPEN)

    def _subscribe(self) -> None:
        """Subscribe; and whoever is then told that the bridge is there may count on it in both directions."""
        self._remote_subscriptions.begin()
        if self.options.announced_topic:
            self._endpoints.send_remote(
                handshake.notification_publish(self.options, self._endpoints.capabilities, b"1")
            )

    def _dial_again(self, now: Instant) -> None:
        """Hang up, and dial at once."""
        self._endpoints.commands.append(BridgeCommand.HANG_UP)
        self._enter(BridgeState.WAITING, now)
        self._due = now

    # -- our own front end --------------------------------------------------------------------------------------

    def on_local_open(self, now: Instant) -> None:
        """There is an end towards our own front end."""
        is_open = self.state is BridgeState.OPEN
        self.local_end.open(is_open, now)
        if is_open:
            self.handshake.confirm()
            self._awaits_local_end = False
            self._read(now)  # what came in one piece with CONNACK

    def receive_local(self, chunk: bytes, now: Instant) -> None:
        """Bytes of our own front end."""
        if not self.local_end.is_connected:
            self.local_end.discard(chunk)
            return
        if self.pacing_queue is not None:
            self.pacing_queue.now = now
        self._on_local_read(self.local_end.receive(chunk, self.state is BridgeState.OPEN, now), now)

    def _on_local_read(self, reason: str, now: Instant) -> None:
        """Our own front end was listened to, and has ended this if there is a *reason*."""
        if reason:
            self._on_local_end_lost(reason, now)
        if self._subscribes_later and self.local_end.has_connack and self.state is BridgeState.OPEN:
            self._subscribes_later = False
            self._subscribe()
        if self._inbound.full_reason and self.state is BridgeState.OPEN:
            self._give_up(f"no room here: {self._inbound.full_reason}", ReasonCode.QUOTA_EXCEEDED, now)

    def on_local_closed(self, now: Instant) -> None:
        """Our own front end has closed its end, and has not said why."""
        if self.local_end.is_connected:
            self.local_end.is_connected = False
            self._on_local_end_lost("our own gateway hung up", now)

    def _on_local_end_lost(self, reason: str, now: Instant) -> None:
        """Our own front end has ended this."""
        self.local_end.close()
        if self.state is BridgeState.OPEN:
            self._give_up(reason, ReasonCode.NORMAL_DISCONNECTION, now)

    # -- time, and ends ---------------------------------------------------------------------------------------

    def fire(self, now: Instant) -> None:
        """Do what is due."""
        if self.state is BridgeState.OPEN:
            if self._keepalive.is_timed_out(now):
                self._end(BridgeState.WAITING, "the remote does not answer any more", now)
                return
            if now >= self._stall_check_due and self._has_stalled(now):
                return
            if self._keepalive.wants_ping(now):
                self._endpoints.remote.append(PING_REQ)
            if self.pacing_queue is not None:
                self.pacing_queue.fire(now)
            else:
                self._outbound.fire(now)
            self._inbound.fire()
            if self.local_end.has_backlog:
                self._on_local_read(self.local_end.process(True, now), now)
        elif self._due is not None and now >= self._due:
            self._due = None
            if self.state is BridgeState.WAITING:
                self._enter(BridgeState.DIALLING, now)
                self._due = now + DIAL_TIMEOUT
                self._endpoints.commands.append(BridgeCommand.DIAL)
            elif self.state is BridgeState.DIALLING:
                self._end(BridgeState.WAITING, f"no connection within {DIAL_TIMEOUT // SECOND} s", now, stays=False)
            elif self.state is BridgeState.GREETING:
                self._end(BridgeState.WAITING, f"no CONNACK within {CONNACK_TIMEOUT // SECOND} s", now, stays=False)

    def _has_stalled(self, now: Instant) -> bool:
        """Whether the remote left something unanswered between two checks; then the connection ends.

        Two checks are half of the time apart that it may take, so an answer is awaited for half to all of it.
        """
        self._stall_check_due = now + self.options.answer_max // 2
        is_message = self._outbound.has_stalled()
        if not is_message and not self._remote_subscriptions.has_stalled():
            return False
        what = "a message" if is_message else "a subscription"
        seconds = self.options.answer_max // SECOND
        reason = f"the remote has not acknowledged {what} within {seconds} s (answer_s_max), though it is connected"
        self._end(BridgeState.WAITING, self._poison_detector.annotate(reason), now, is_stable=False)
        return True

    def _give_up(self, reason: str, code: ReasonCode, now: Instant) -> None:
        """End a connection that goes on otherwise, saying why if the remote can hear it."""
        self._disconnect(code)
        self._end(BridgeState.WAITING, reason, now, stays=self.state is BridgeState.OPEN)

    def _disconnect(self, code: ReasonCode, properties: Properties | None = None) -> None:
        if self.state is BridgeState.OPEN:
            if self.options.announced_topic and code == ReasonCode.NORMAL_DISCONNECTION:
                self._endpoints.send_remote(
                    handshake.notification_publish(self.options, self._endpoints.capabilities, b"0")
                )
            self._endpoints.send_remote(Disconnect(code, properties or {}))

    def _end(
        self,
        state: BridgeState,
        reason: str,
        now: Instant,
        *,
        is_connected: bool = True,
        stays: bool = True,
        is_stable: bool = True,
    ) -> None:
        """The connection to the remote is over, and so is the end towards our front end.

        *stays*: the same address is dialled first when it is time to. *is_stable*: it was a success if it lasted.
        """
        if not stays:
            self._endpoints.commands.append(BridgeCommand.ELSEWHERE)
        if is_connected and self.state is not BridgeState.WAITING:
            self._endpoints.commands.append(BridgeCommand.HANG_UP)
        if self.state is BridgeState.OPEN:
            self.local_end.close()
            self._inbound.close(self._remote_end.take_unread())
            (self._outbound if self.pacing_queue is None else self.pacing_queue).close()
            if is_stable and now - self.since >= STABLE_AFTER:
                self._backoff.reset()
        self.reason = printable(reason)
        self._enter(state, now)
        self._due = now + self._backoff.next() if state is BridgeState.WAITING else None

    def _enter(self, state: BridgeState, now: Instant) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} cannot become {state}"
        self.state = state
        self.since = now
