"""One bridge: dials, greets both ends, hands packets from one to the other, and comes back when that ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.upstream import greeting
from edgebridge.upstream.backoff import STAYED, Backoff
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.heartbeat import Heartbeat
from edgebridge.upstream.inward import Inward
from edgebridge.upstream.loopguard import LoopGuard
from edgebridge.upstream.outward import Outward
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.state import NEXT, Order, State
from edgebridge.upstream.tally import Cause, Tally
from edgebridge.upstream.terms import Granted, Memory, Terms
from edgebridge.upstream.words import in_words
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, V311_BRIDGE, Dialect
from edgebridge.wire.encode import PING_REQ
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Disconnect, Packet, PubAck, PubComp, Publish, PubRec, PubRel, SubAck
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import MIB

ANSWER: Final[Duration] = 30 * SECOND
"""How long the remote may take for CONNACK."""
PUBLISH: Final = 3  # the packet type, the upper half of the first byte
PUBACK: Final = 0x40  # the first byte
DIAL: Final[Duration] = 120 * SECOND
"""How long to dial in vain; who dials knows more, and sooner."""
_CONNECTED: Final = (State.GREETING, State.OPEN)
PACKET_BYTES_MAX: Final = 256 * MIB  # what the standard allows, and our own front end may say


class Splice:
    """A state machine: see the package. `state`, `reason`, `out`, `into` and `refusals` may be looked at."""

    def __init__(self, terms: Terms, memory: Memory, chance: Callable[[], float]) -> None:
        """*chance* gives numbers from 0 to below 1, for the back-off."""
        self.terms = terms
        self.state = State.PAUSED
        self.reason = ""
        """Why there is no connection, or why the last one ended."""
        self.since: Instant = 0
        """When `state` began."""
        self.connects = 0
        """Connections so far."""
        self.out = Tally()
        self.into = Tally()
        self.refusals: dict[int, str] = {}
        """Rules whose subscription was refused, by number: by whom, and why."""
        self.sent_again = 0
        """QoS 2 messages that were sent again because the remote lost its session: it may have them twice."""
        self._memory = memory
        self._ends = Ends()
        self._rules = Rules(terms.rules)
        self._guard = LoopGuard(terms, self._rules)
        self._outward = Outward(self._ends, self._rules, self._guard, self.out)
        self._inward = Inward(self._ends, self._rules, self._guard, self.into, terms.receive_maximum)
        self._heartbeat = Heartbeat()
        self._backoff = Backoff(terms.retry_max, chance)
        self._orders: list[Order] = []
        self._due: Instant | None = None
        self._remote = Framer(terms.packet_bytes_max)
        self._local = Framer(PACKET_BYTES_MAX)
        self.has_local_end = False
        """Whether there is an end towards our own front end."""
        self._awaits_end = False  # what the remote says has to wait for it
        self._may_be_private = terms.try_private and terms.dialect is V311
        self._is_plain = not self._may_be_private
        self._ungreeted = 0  # connections that ended before CONNACK, one after the other
        self._asked: dict[int, int] = {}  # packet identifier of a SUBSCRIBE to the remote -> subscription identifier
        self._asked_local: dict[int, int] = {}  # the same at our front end -> rule
        # A session of ours that begins anew numbers its messages anew: the remote would take them for old ones.
        self._is_anew = terms.wants_exactly_once and not memory.is_known()
        # What is retained here goes to a remote that knows nothing (any more). If our session is new as well, it has it
        # from when it subscribed, among what waits.
        self._tells_retained = memory.is_known()

    # -- what the world fetches ---------------------------------------------------------------------------------

    @property
    def granted(self) -> Granted:
        """What the remote said last."""
        return self._ends.granted

    def take_orders(self) -> list[Order]:
        """What is to be done now, in order."""
        orders, self._orders = self._orders, []
        return orders

    def take_remote(self, now: Instant) -> list[bytes]:
        """What to write to the remote now."""
        taken, self._ends.remote = self._ends.remote, []
        if taken:
            self._heartbeat.said(now)
        return taken

    def take_local(self) -> list[bytes]:
        """What to write to our own front end now."""
        taken, self._ends.local = self._ends.local, []
        return taken

    def next_due(self) -> Instant | None:
        """When to call `fire`."""
        return self._heartbeat.due() if self.state is State.OPEN else self._due

    # -- what an operator wants ---------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin: from now on what is for the remote is kept, and it is dialled."""
        if self._needs_priming():
            self._orders.append(Order.OPEN)
        self._enter(State.WAITING, now)
        self._due = now

    def pause(self, now: Instant, reason: str = "an operator wants it so") -> None:
        """Hang up, and dial no more until `start`. What is for the remote waits."""
        if self.state is not State.PAUSED:
            self._say_good_bye(ReasonCode.NORMAL_DISCONNECTION)
            self._end(State.PAUSED, reason, now)

    # -- the remote ---------------------------------------------------------------------------------------------

    def dialled(self, now: Instant) -> None:
        """There is a connection to the remote."""
        self._awaits_end = False
        self._remote = Framer(self.terms.packet_bytes_max)
        self._ends.remote.clear()
        dialect = self._dialect
        self._ends.granted = Granted(dialect)
        self._enter(State.GREETING, now)
        self._due = now + ANSWER
        self._ends.tell_remote(greeting.connect_remote(self.terms, dialect, self._is_anew))

    def lost(self, reason: str, now: Instant) -> None:
        """There is no connection to the remote any more, or none came about."""
        if self.state is State.GREETING and self._may_be_private:
            self._ungreeted += 1  # twice may mean that it cannot bear what bridges say first; once, anything
            self._is_plain = self._ungreeted % 2 == 0
        if self.state in (State.DIALLING, State.GREETING, State.OPEN):
            self._end(State.WAITING, reason, now, is_connected=False)

    def heard(self, chunk: bytes, now: Instant) -> None:
        """Bytes of the remote."""
        if self.state not in _CONNECTED:
            return
        self._heartbeat.heard(now)
        self._remote.feed(chunk)
        self._read(now)

    def _read(self, now: Instant) -> None:
        """Packets of the remote, as far as there is an end for them."""
        try:
            while not self._awaits_end and (frame := self._remote.next_frame()) is not None:
                first, body = frame
                if first >> 4 == PUBLISH and self.state is State.OPEN and self._inward.express(first, body):
                    continue
                if first == PUBACK and len(body) == 2 and any(body) and self.state is State.OPEN:
                    self._outward.acknowledged(body)
                    continue
                self._on_remote(decode_packet(first, body, self._ends.granted.dialect), now)
                if self.state not in _CONNECTED:
                    break
        except ProtocolError as error:
            self._give_up(f"the remote breaks the protocol: {error}", error.reason, now)
        if self._inward.full and self.state is State.OPEN:
            self._give_up(f"no room here: {self._inward.full}", ReasonCode.QUOTA_EXCEEDED, now)

    def _on_remote(self, packet: Packet, now: Instant) -> None:
        match packet:
            case ConnAck() if self.state is State.GREETING:
                self._greeted(packet, now)
            case _ if self.state is State.GREETING:
                self._give_up("the remote says something else than CONNACK", ReasonCode.PROTOCOL_ERROR, now)
            case Publish():
                self._inward.publish(packet, now)
            case PubAck() | PubRec() | PubComp():
                self._outward.answered(packet)
            case PubRel():
                self._inward.released(packet)
            case SubAck():
                self._subscribed(packet)
            case Disconnect():
                why = in_words(packet.reason, packet.properties)
                self._end(State.WAITING, f"the remote said good-bye: {why}", now)

    def _greeted(self, connack: ConnAck, now: Instant) -> None:
        if connack.reason >= FAILURE:
            if connack.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and not self._is_plain:
                self._dial_plain(now)
            else:
                why = in_words(connack.reason, connack.properties)
                self._end(State.WAITING, f"the remote refuses us: {why}", now)
            return
        granted = Granted.of(connack, self._dialect, self.terms.keep_alive_s)
        if granted.identity and granted.identity == self.terms.identity:
            self._give_up("the remote is this gateway itself", ReasonCode.NORMAL_DISCONNECTION, now)
            return
        if self._is_anew:
            self._is_anew = False
            if not self._dialect.has_properties:  # for 3.1.1 a session that begins anew ends with its connection
                self._ends.tell_remote(Disconnect())
                self._dial_again(now)
                return
        self._ends.granted = granted
        self.connects, self._ungreeted = self.connects + 1, 0
        self.reason = ""
        self._enter(State.OPEN, now)
        self._heartbeat.begin(granted.keep_alive_s, now)
        self._rules.listen(granted.filters)
        self._guard.begin(granted)
        self._outward.restart()
        self._inward.restart()
        self.refusals.clear()
        self._asked.clear()
        if self.has_local_end:  # it was opened for its subscriptions alone
            self._close_local()
        if self.terms.notification_topic:
            self._ends.tell_remote(greeting.notification(self.terms, b"1"))
        for wanted, subscribe in greeting.subscribe_remote(self._rules, granted):
            self._asked[subscribe.packet_id] = wanted.identifier
            self._ends.tell_remote(subscribe)
        self._awaits_end = True
        self._orders.append(Order.OPEN)

    def _subscribed(self, suback: SubAck) -> None:
        identifier = self._asked.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if identifier is not None and reason >= FAILURE:
            self._rules.refused(identifier)
            for wanted in self._rules.into:
                if wanted.identifier == identifier:
                    self.refusals[wanted.number] = f"the remote: {in_words(ReasonCode(reason), suback.properties)}"

    def _dial_plain(self, now: Instant) -> None:
        """The remote does not know what bridges say first: once more, as any client, and at once."""
        self._is_plain, self._may_be_private = True, False
        self._dial_again(now)

    def _dial_again(self, now: Instant) -> None:
        """Hang up, and dial at once."""
        self._orders.append(Order.HANG_UP)
        self._enter(State.WAITING, now)
        self._due = now

    @property
    def _dialect(self) -> Dialect:
        return self.terms.dialect if self._is_plain else V311_BRIDGE

    # -- our own front end --------------------------------------------------------------------------------------

    def opened(self, now: Instant) -> None:
        """There is an end towards our own front end."""
        self._local = Framer(PACKET_BYTES_MAX)
        self._ends.local.clear()
        self.has_local_end = True
        is_open = self.state is State.OPEN
        granted = self._ends.granted
        known = self._memory.is_known()
        subscribed = self._memory.subscribed() if known else ()
        if is_open and known and not granted.session_present:
            self.sent_again += self._memory.send_again()
        self._ends.tell_local(greeting.connect_local(self.terms, granted))
        if is_open and known and not granted.session_present:
            self._inward.forget(self._memory.received())
        handling = greeting.SEND_IF_NEW
        if is_open and not granted.session_present and self._tells_retained:
            handling = greeting.SEND_ALWAYS
        self._tells_retained |= is_open
        self._asked_local.clear()
        for wanted, subscribe in greeting.subscribe_local(self._rules, handling):
            self._asked_local[subscribe.packet_id] = wanted.number
            self._ends.tell_local(subscribe)
        if (unsubscribe := greeting.unsubscribe_local(self._rules, subscribed)) is not None:
            self._ends.tell_local(unsubscribe)
        if is_open:
            self._awaits_end = False
            self._read(now)  # what came in one piece with CONNACK

    def told(self, chunk: bytes, now: Instant) -> None:
        """Bytes of our own front end."""
        if not self.has_local_end:
            return
        self._local.feed(chunk)
        while (frame := self._local.next_frame()) is not None:
            first, body = frame
            if self.state is State.OPEN:
                if first >> 4 == PUBLISH and self._outward.express(first, body):
                    continue
                if first == PUBACK and len(body) == 2:
                    self._inward.acknowledged(body)
                    continue
            self._on_local(decode_packet(first, body, V5), now)
            if not self.has_local_end:
                break
        if self._inward.full and self.state is State.OPEN:
            self._give_up(f"no room here: {self._inward.full}", ReasonCode.QUOTA_EXCEEDED, now)

    def closed(self, now: Instant) -> None:
        """Our own front end has closed its end, and has not said why."""
        if self.has_local_end:
            self.has_local_end = False
            self._left_alone("our own gateway hung up", now)

    def _on_local(self, packet: Packet, now: Instant) -> None:
        match packet:
            case Publish() if self.state is State.OPEN:
                self._outward.publish(packet, now)
            case Publish():  # of QoS 1 and 2 nothing is lost: the session sends them again
                self.out.dropped[Cause.ABSENT] += not packet.qos
            case PubAck() | PubRec() | PubComp() if self.state is State.OPEN:
                self._inward.answered(packet)
            case PubRel() if self.state is State.OPEN:
                self._outward.released(packet)
            case SubAck():
                self._subscribed_here(packet)
            case ConnAck(reason=reason) if reason >= FAILURE:
                self._left_alone(f"our own gateway refuses us: {in_words(reason, packet.properties)}", now)
            case Disconnect():
                self._left_alone(f"our own gateway said good-bye: {in_words(packet.reason, packet.properties)}", now)

    def _subscribed_here(self, suback: SubAck) -> None:
        rule = self._asked_local.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if rule is not None and reason >= FAILURE:
            self.refusals[rule] = f"our own gateway: {in_words(ReasonCode(reason), suback.properties)}"
        if not self._asked_local and self.state is not State.OPEN:
            self._close_local()

    def _needs_priming(self) -> bool:
        """Whether the session at our front end is to be given its subscriptions before the remote is there."""
        wanted = {wanted.text for wanted in self._rules.out}
        subscribed = set(self._memory.subscribed()) if self._memory.is_known() else set()
        return bool(wanted) and wanted != subscribed

    def _left_alone(self, reason: str, now: Instant) -> None:
        """Our own front end has ended this."""
        self._close_local()
        if self.state is State.OPEN:
            self._give_up(reason, ReasonCode.NORMAL_DISCONNECTION, now)

    def _close_local(self) -> None:
        if self.has_local_end:
            self.has_local_end = False
            self._ends.tell_local(Disconnect())
        self._orders.append(Order.CLOSE)

    # -- time, and ends ---------------------------------------------------------------------------------------

    def fire(self, now: Instant) -> None:
        """Do what is due."""
        if self.state is State.OPEN:
            if self._heartbeat.is_dead(now):
                self._end(State.WAITING, "the remote does not answer any more", now)
            elif self._heartbeat.wants_ping(now):
                self._ends.remote.append(PING_REQ)
        elif self._due is not None and now >= self._due:
            self._due = None
            if self.state is State.WAITING:
                self._enter(State.DIALLING, now)
                self._due = now + DIAL
                self._orders.append(Order.DIAL)
            elif self.state is State.DIALLING:
                self._end(State.WAITING, f"no connection within {DIAL // SECOND} s", now)
            elif self.state is State.GREETING:
                self._end(State.WAITING, f"no CONNACK within {ANSWER // SECOND} s", now)

    def _give_up(self, reason: str, code: ReasonCode, now: Instant) -> None:
        """End a connection that goes on otherwise, saying why if the remote can hear it."""
        self._say_good_bye(code)
        self._end(State.WAITING, reason, now)

    def _say_good_bye(self, code: ReasonCode) -> None:
        if self.state is State.OPEN:
            if self.terms.notification_topic and code == ReasonCode.NORMAL_DISCONNECTION:
                self._ends.tell_remote(greeting.notification(self.terms, b"0"))
            self._ends.tell_remote(Disconnect(code))

    def _end(self, state: State, reason: str, now: Instant, is_connected: bool = True) -> None:
        """The connection to the remote is over, and so is the end towards our front end."""
        if is_connected and self.state is not State.WAITING:
            self._orders.append(Order.HANG_UP)
        if self.state is State.OPEN:
            self._close_local()
            if now - self.since >= STAYED:
                self._backoff.reset()
        self.reason = reason
        self._enter(state, now)
        self._due = now + self._backoff.next() if state is State.WAITING else None

    def _enter(self, state: State, now: Instant) -> None:
        assert state in NEXT[self.state], f"{self.state} cannot become {state}"
        self.state = state
        self.since = now
