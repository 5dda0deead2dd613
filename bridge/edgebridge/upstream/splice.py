"""One bridge: dials, greets both ends, hands packets from one to the other, and comes back when that ends."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from edgebridge.upstream import greeting
from edgebridge.upstream.backoff import STAYED, Backoff
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.gate import Gate
from edgebridge.upstream.heartbeat import Heartbeat
from edgebridge.upstream.introduction import MOVE_ON, Again, Introduction
from edgebridge.upstream.inward import Inward
from edgebridge.upstream.localend import LocalEnd
from edgebridge.upstream.loopguard import LoopGuard
from edgebridge.upstream.outward import Outward
from edgebridge.upstream.purse import Moment
from edgebridge.upstream.remoteend import RemoteEnd
from edgebridge.upstream.requests import Requests
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.state import NEXT, Order, State
from edgebridge.upstream.suspect import Suspect
from edgebridge.upstream.tally import Tally
from edgebridge.upstream.terms import Granted, Memory, Terms
from edgebridge.upstream.toll import Toll
from edgebridge.upstream.words import in_words, printable
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

ANSWER: Final[Duration] = 30 * SECOND
"""How long the remote may take for CONNACK."""
DIAL: Final[Duration] = 120 * SECOND
"""How long to dial in vain; who dials knows more, and sooner."""
_CONNECTED: Final = (State.GREETING, State.OPEN)


class Splice:
    """A state machine: see the package. `state`, `reason`, `out`, `into` and `refusals` may be looked at."""

    def __init__(
        self, terms: Terms, memory: Memory, chance: Callable[[], float], asked: Set[str] = frozenset()
    ) -> None:
        """*chance* gives numbers from 0 to below 1, for the back-off. *asked*: what the remote was asked for before."""
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
        self._memory = memory
        self._ends = Ends()
        self._rules = Rules(terms.rules)
        self._guard = LoopGuard(terms, self._rules)
        self._outward = Outward(self._ends, self._rules, self._guard, self.out, memory)
        self._inward = Inward(self._ends, self._rules, self._guard, self.into, terms, memory)
        self._heartbeat = Heartbeat()
        self._backoff = Backoff(terms.retry_max, chance)
        self._due: Instant | None = None
        self._remote = RemoteEnd(terms, self._ends, self._outward, self._inward)
        self._asks_later = False  # the remote, for what it is to send us
        self._awaits_end = False  # what the remote says has to wait for it
        self.introduction = Introduction(terms, memory, self._ends)
        self._suspect = Suspect(memory)
        self._requests = Requests(self._ends, self._rules, memory, self.refusals, asked)
        self.local = LocalEnd(terms, memory, self._ends, self._rules, self._outward, self._inward, self.refusals)
        self.toll = Toll(terms.dues)
        self.gate = None if terms.dues.are_none else Gate(self.toll, self._outward, self._ends, self.out, memory)
        """Where messages wait for the rate and the day's bytes, if there are any."""
        if self.gate is not None:
            self.local.express = self.gate.express

    # -- what the world fetches ---------------------------------------------------------------------------------

    @property
    def granted(self) -> Granted:
        """What the remote said last."""
        return self._ends.granted

    @property
    def sent_again(self) -> int:
        """QoS 2 messages that were sent again because the remote lost its session: it may have them twice."""
        return self.local.sent_again

    @property
    def asked(self) -> frozenset[str]:
        """The texts of all subscriptions that the remote may have of us; the same object while nothing changes. To be
        remembered before what is said is written: the next splice has to know them.
        """
        return self._requests.asked

    def take_orders(self) -> list[Order]:
        """What is to be done now, in order."""
        orders, self._ends.orders = self._ends.orders, []
        return orders

    def take_remote(self, now: Instant) -> list[bytes]:
        """What to write to the remote now."""
        taken, self._ends.remote = self._ends.remote, []
        if taken:
            self._heartbeat.said(now)
            self.toll.wrote(sum(map(len, taken)), now)
        return taken

    def take_local(self) -> list[bytes]:
        """What to write to our own front end now."""
        taken, self._ends.local = self._ends.local, []
        return taken

    def take_warnings(self) -> list[str]:
        """What an operator should know, once in the life of this bridge."""
        warnings, self._ends.warnings = self._ends.warnings, []
        return warnings

    def next_due(self) -> Instant | None:
        """When to call `fire`."""
        if self.state is not State.OPEN:
            return self._due
        if self.local.rests or self._inward.rests:
            return self.since  # as soon as others have had their turn
        out = self._outward.due() if self.gate is None else self.gate.due()
        return min((due for due in (self._heartbeat.due(), out) if due is not None), default=None)

    # -- what an operator wants ---------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin: from now on what is for the remote is kept, and it is dialled."""
        if self.local.needs_priming():
            self._ends.orders.append(Order.OPEN)
        self._enter(State.WAITING, now)
        self._due, self.reason = now, ""
        if self.toll.is_closed:
            self._end(State.CLOSED, self._hours, now)

    def clock(self, moment: Moment, now: Instant) -> None:
        """A clock on the wall shows *moment*: to be said before `start`, and when a minute begins."""
        if self.toll.clock(moment, now):
            self.out.costs.begin_day()
            self.into.costs.begin_day()
        if self.state is State.CLOSED:
            self.reason = self._hours
            if not self.toll.is_closed:
                self._enter(State.WAITING, now)
                self._due = now
        elif self.toll.is_closed and self.state is not State.PAUSED:
            self._say_good_bye(ReasonCode.NORMAL_DISCONNECTION)
            self._end(State.CLOSED, self._hours, now)
        elif self.gate is not None and self.state is State.OPEN:
            self.gate.fire(now)

    @property
    def _hours(self) -> str:
        """Why nobody is dialled, if the clock forbids it."""
        until = self.toll.closed_until
        return f"closed until {until}, as its schedule says" if until else ""

    def pause(self, now: Instant, reason: str = "an operator wants it so") -> None:
        """Hang up, and dial no more until `start`. What is for the remote waits."""
        if self.state is not State.PAUSED:
            self._say_good_bye(ReasonCode.NORMAL_DISCONNECTION)
            self._end(State.PAUSED, reason, now)

    def leave(self, now: Instant) -> bool:
        """Hang up for good; whether that ended the session at the remote, which is asked for by version 5 alone."""
        can = self.state is State.OPEN and self._ends.granted.dialect.has_properties
        self._say_good_bye(ReasonCode.NORMAL_DISCONNECTION, {Property.SESSION_EXPIRY_INTERVAL: 0} if can else None)
        if self.state is not State.PAUSED:
            self._end(State.PAUSED, "it is no more", now)
        return can

    # -- the remote ---------------------------------------------------------------------------------------------

    def dialled(self, now: Instant) -> None:
        """There is a connection to the remote."""
        self._awaits_end = False
        self._remote.restart()
        self._outward.unwritten()
        self._enter(State.GREETING, now)
        self._due = now + ANSWER
        self.introduction.begin()
        self.introduction.note(now)

    def lost(self, reason: str, now: Instant) -> None:
        """There is no connection to the remote any more, or none came about."""
        stays = self.state is not State.GREETING or not self.introduction.unanswered()
        if self.state is State.OPEN:
            reason = self._suspect.blamed(reason)
        if self.state in (State.DIALLING, State.GREETING, State.OPEN):
            self._end(State.WAITING, reason, now, is_connected=False, stays=stays)

    def heard(self, chunk: bytes, now: Instant) -> None:
        """Bytes of the remote."""
        self._remote.feed(chunk)
        if self.state not in _CONNECTED:  # the world has not hung up yet: it is counted when the next one begins
            return
        self._heartbeat.heard(now)
        self.toll.heard(len(chunk))
        self._read(now)

    def _read(self, now: Instant) -> None:
        """Packets of the remote, as far as there is an end for them."""
        try:
            while not self._awaits_end and (packet := self._remote.next_packet(self.state is State.OPEN)) is not None:
                self._on_remote(packet, now)
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
                self._inward.released(packet.packet_id)
            case SubAck():
                self._requests.answered(packet)
            case UnsubAck():
                self._requests.ended(packet)
            case Disconnect():
                why = f"the remote said good-bye: {in_words(packet.reason, packet.properties)}"
                self._end(State.WAITING, self._suspect.blamed(why), now, stays=packet.reason not in MOVE_ON)

    def _greeted(self, connack: ConnAck, now: Instant) -> None:
        match self.introduction.answered(connack):
            case Granted() as granted:
                self._begin(granted, now)
            case Again():
                self._dial_again(now)
            case reason:
                self.introduction.note(now)
                self._end(State.WAITING, reason, now, stays=False)

    def _begin(self, granted: Granted, now: Instant) -> None:
        """The remote has greeted us: what there is goes through, from when our own front end is there too."""
        self._ends.granted = granted
        self.connects += 1
        self.reason = ""
        self._enter(State.OPEN, now)
        self._heartbeat.begin(granted.keep_alive_s, now)
        self._rules.listen(granted.filters)
        self._guard.begin(granted)
        self._outward.restart()
        self._inward.restart()
        self.refusals.clear()
        if self.local.is_there:  # it was opened for its subscriptions alone
            self.local.close()
        # What the remote keeps for us from now on would be thrown away, if we died and did not know that we had met it.
        self._asks_later = not self._memory.has_met()
        if not self._asks_later:
            self._ask()
        self._awaits_end = True
        self._ends.orders.append(Order.OPEN)

    def _ask(self) -> None:
        """Subscribe; and whoever is then told that the bridge is there may count on it in both directions."""
        self._requests.begin()
        if self.terms.notification_topic:
            self._ends.tell_remote(greeting.notification(self.terms, self._ends.granted, b"1"))

    def _dial_again(self, now: Instant) -> None:
        """Hang up, and dial at once."""
        self._ends.orders.append(Order.HANG_UP)
        self._enter(State.WAITING, now)
        self._due = now

    # -- our own front end --------------------------------------------------------------------------------------

    def opened(self, now: Instant) -> None:
        """There is an end towards our own front end."""
        is_open = self.state is State.OPEN
        self.local.open(is_open, now)
        if is_open:
            self.introduction.is_known()
            self._awaits_end = False
            self._read(now)  # what came in one piece with CONNACK

    def told(self, chunk: bytes, now: Instant) -> None:
        """Bytes of our own front end."""
        if not self.local.is_there:
            self.local.missed(chunk)
            return
        if self.gate is not None:
            self.gate.now = now
        self._heed(self.local.told(chunk, self.state is State.OPEN, now), now)

    def _heed(self, reason: str, now: Instant) -> None:
        """Our own front end was listened to, and has ended this if there is a *reason*."""
        if reason:
            self._left_alone(reason, now)
        if self._asks_later and self.local.is_greeted and self.state is State.OPEN:
            self._asks_later = False
            self._ask()
        if self._inward.full and self.state is State.OPEN:
            self._give_up(f"no room here: {self._inward.full}", ReasonCode.QUOTA_EXCEEDED, now)

    def closed(self, now: Instant) -> None:
        """Our own front end has closed its end, and has not said why."""
        if self.local.is_there:
            self.local.is_there = False
            self._left_alone("our own gateway hung up", now)

    def _left_alone(self, reason: str, now: Instant) -> None:
        """Our own front end has ended this."""
        self.local.close()
        if self.state is State.OPEN:
            self._give_up(reason, ReasonCode.NORMAL_DISCONNECTION, now)

    # -- time, and ends ---------------------------------------------------------------------------------------

    def fire(self, now: Instant) -> None:
        """Do what is due."""
        if self.state is State.OPEN:
            if self._heartbeat.is_dead(now):
                self._end(State.WAITING, "the remote does not answer any more", now)
                return
            if self._heartbeat.wants_ping(now):
                self._ends.remote.append(PING_REQ)
            if self.gate is not None:
                self.gate.fire(now)
            else:
                self._outward.fire(now)
            self._inward.fire()
            if self.local.rests:
                self._heed(self.local.go_on(True, now), now)
        elif self._due is not None and now >= self._due:
            self._due = None
            if self.state is State.WAITING:
                self._enter(State.DIALLING, now)
                self._due = now + DIAL
                self._ends.orders.append(Order.DIAL)
            elif self.state is State.DIALLING:
                self._end(State.WAITING, f"no connection within {DIAL // SECOND} s", now, stays=False)
            elif self.state is State.GREETING:
                self._end(State.WAITING, f"no CONNACK within {ANSWER // SECOND} s", now, stays=False)

    def _give_up(self, reason: str, code: ReasonCode, now: Instant) -> None:
        """End a connection that goes on otherwise, saying why if the remote can hear it."""
        self._say_good_bye(code)
        self._end(State.WAITING, reason, now, stays=self.state is State.OPEN)

    def _say_good_bye(self, code: ReasonCode, properties: Properties | None = None) -> None:
        if self.state is State.OPEN:
            if self.terms.notification_topic and code == ReasonCode.NORMAL_DISCONNECTION:
                self._ends.tell_remote(greeting.notification(self.terms, self._ends.granted, b"0"))
            self._ends.tell_remote(Disconnect(code, properties or {}))

    def _end(self, state: State, reason: str, now: Instant, *, is_connected: bool = True, stays: bool = True) -> None:
        """The connection to the remote is over, and so is the end towards our front end.

        *stays*: the same address is dialled first when it is time to.
        """
        if not stays:
            self._ends.orders.append(Order.ELSEWHERE)
        if is_connected and self.state is not State.WAITING:
            self._ends.orders.append(Order.HANG_UP)
        if self.state is State.OPEN:
            self.local.close()
            self._inward.close()
            (self._outward if self.gate is None else self.gate).close()
            if now - self.since >= STAYED:
                self._backoff.reset()
        self.reason = printable(reason)
        self._enter(state, now)
        self._due = now + self._backoff.next() if state is State.WAITING else None

    def _enter(self, state: State, now: Instant) -> None:
        assert state in NEXT[self.state], f"{self.state} cannot become {state}"
        self.state = state
        self.since = now
