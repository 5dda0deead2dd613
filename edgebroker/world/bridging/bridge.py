"""One bridge: runs its splice on a socket, an end towards our own front end, and one timer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.bridgesession import BridgeSession
from edgebridge.upstream.purse import Moment
from edgebridge.upstream.splice import Splice
from edgebridge.upstream.state import Order, State
from edgebridge.upstream.terms import Terms
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import MIB
from edgebroker.world.bridging.bounding import bounds_of
from edgebroker.world.bridging.inlet import Inlet
from edgebroker.world.bridging.kept import Kept
from edgebroker.world.bridging.leaving import Leaving
from edgebroker.world.bridging.line import Line
from edgebroker.world.bridging.road import Road
from edgebroker.world.bridging.till import Till, moment
from edgebroker.world.operatorlog import Level, OperatorLog
from edgebroker.world.peering.dialler import NoAnswer, reason_of
from edgebroker.world.reactor import GOODBYE_S, Reactor, clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgebroker.world.settings.bridge import BridgeSettings

UNREAD_BYTES_MAX: Final = MIB
"""Answers to a remote that goes on sending and does not read them: a million of them are 4 MB."""
_ANSWERS: Final = range(0x40, 0x80)  # the first byte of PUBACK, PUBREC, PUBREL, PUBCOMP
LOOK_S: Final = 0.005
"""How soon to look again whether something is on disk: commits are 5 to 20 ms apart."""
WANTED: Final = "an operator wants it so"


class Bridge:
    """From `start` to `stop`. Every event of the world ends in `_settle`, which does what the splice asks for."""

    def __init__(
        self,
        settings: BridgeSettings,
        terms: Terms,
        reactor: Reactor,
        notices: OperatorLog,
        chance: Callable[[], float],
        road: Road,
        till: Till,
        kept: Kept,
    ) -> None:
        self.settings = settings
        self.terms = terms
        self.memory = BridgeSession(reactor.frontend, terms.local_client_id)
        if kept.met_as(terms.name) not in (None, terms.client_id):
            self.memory.part(clock())  # before it is asked whom it has met
        self.splice = Splice(terms, self.memory, chance, kept.asked(terms.name))
        self.splice.introduction.knows_bridges = kept.knows_bridges(terms.name)
        self.splice.toll.purse.go_on(till.spent(terms.name))
        self._till = till
        self._spending = ""
        self._kept = kept
        self._asked = self.splice.asked
        self._awaits_disk = False
        self.began = clock()
        """When it began to count."""
        self._reactor = reactor
        self._notices = notices
        self.road = road
        self._loop = asyncio.get_running_loop()
        self._at = 0  # the number of the address to dial first: of the one that answered last, which has our session
        self._line: Line | None = None
        self._unread: int | None = None  # bytes of answers since the remote takes nothing
        self._dialling: asyncio.Task[None] | None = None
        self._inlet: Inlet | None = None
        self._is_held = False  # our front end, at that inlet
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: Instant | None = None
        self._told = State.PAUSED
        self._reason = ""

    def start(self) -> None:
        """Begin, or go on after a pause."""
        self._bound()
        self.splice.clock(moment(), clock())
        self.splice.start(clock())
        self._settle()

    def clock(self, shown: Moment) -> None:
        """The clock on the wall shows another minute."""
        self.splice.clock(shown, clock())
        if self.splice.toll.purse.is_to_be_noted:
            self.note()
        self._warn()
        self._settle()

    def note(self) -> None:
        """Keep what is spent of the day's bytes."""
        if self.splice.toll.dues.bytes_per_day:
            self._till.note(self.terms.name, self.splice.toll.purse.noted())
            self._warn()

    def _warn(self) -> None:
        """Tell what is new of the day's bytes."""
        warning = self.splice.toll.warning
        if warning and warning != self._spending:
            self._notices.tell(Level.WARNING, "bridge-budget", warning, bridge=self.terms.name)
        self._spending = warning

    def keep(self, reason: str = WANTED) -> None:
        """Dial nobody, but keep what is for the remote from now on."""
        self.start()
        self.pause(reason)

    def resume(self) -> None:
        """Dial again, and now, if it waits to be dialled."""
        if self.splice.state is State.WAITING:
            self.splice.pause(clock())
        if self.splice.state is State.PAUSED:
            self.start()

    def leave(self) -> Leaving | None:
        """Hang up for good, and end the session at the remote; what is to be run for that if it takes more."""
        is_known_there = self.memory.has_met()
        is_told = self.splice.leave(clock())
        self._settle()
        return Leaving(self.terms, self.road, self._at) if is_known_there and not is_told else None

    @property
    def address(self) -> str:
        """The one of its addresses that answered last, or is to be dialled first."""
        return str(self.road.addresses[self._at])

    @property
    def is_paused(self) -> bool:
        """Whether it dials nobody until it is resumed."""
        return self.splice.state is State.PAUSED

    def pause(self, reason: str = WANTED) -> None:
        """Hang up. What is for the remote waits until `start`."""
        self.splice.pause(clock(), reason)
        self._settle()

    async def stop(self) -> None:
        """Hang up for good, and return when that is written or the remote does not take it."""
        line = self._line
        self.pause("the gateway stops")
        self.note()
        if self._alarm is not None:
            self._alarm.cancel()
        deadline = self._loop.time() + GOODBYE_S
        while line is not None and line.transport.get_write_buffer_size() and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        if line is not None:
            line.transport.abort()

    # -- the remote -----------------------------------------------------------------------------------------------

    def tries(self, at: int) -> None:
        """This one of its addresses is dialled."""
        self._at = at

    def waits(self, line: Line) -> None:
        """There is a socket, but it is not known yet what is on it."""
        self._line = line

    def came(self, line: Line) -> None:
        """The remote is there."""
        if self.splice.state is not State.DIALLING or self._line not in (None, line):  # it came too late
            line.transport.abort()
            return
        self._line, self._unread = line, None
        self.splice.dialled(clock())
        self._reactor.arm()  # something may have to be on disk first
        self._settle()

    def heard(self, line: Line, data: bytes) -> None:
        """It says something."""
        if line is self._line:
            self.splice.heard(data, clock())
            self._settle()

    def full(self, line: Line, is_full: bool) -> None:
        """It takes nothing for now, or goes on."""
        if line is self._line:
            self._unread = 0 if is_full else None
            self._regulate()

    def _regulate(self) -> None:
        """Let our front end go on, unless the remote takes nothing or we have not done what it has said."""
        is_held = self._unread is not None or self.splice.local.is_full
        if self._inlet is not None and is_held != self._is_held:
            self._is_held = is_held
            self._inlet.hold(is_held)

    def gone(self, line: Line, error: Exception | None) -> None:
        """The connection is over."""
        if line is self._line:
            self._line = None
            if self.splice.state is State.DIALLING:  # who answered has no WebSocket for us
                self._do(Order.ELSEWHERE)
            why = "the remote closed the connection" if error is None else reason_of(error)
            self.splice.lost(why, clock())
            self._settle()

    async def _dial(self) -> None:
        try:
            await self.road.dial(self, self._at)
        except NoAnswer as error:
            self._dialling = None
            self.splice.lost(str(error), clock())
            self._settle()
        self._dialling = None

    # -- our own front end ----------------------------------------------------------------------------------------

    def told(self, inlet: Inlet, data: bytes) -> None:
        """It says something, while the reactor is busy with it: what that brings back waits for the next turn."""
        if inlet is self._inlet:
            self.splice.told(data, clock())
            self._remember()
            self._write()
            self._loop.call_soon(self._settle)

    def closed(self, inlet: Inlet) -> None:
        """It has ended it."""
        if inlet is self._inlet:
            self._inlet = None
            self.splice.closed(clock())
            self._settle()

    def pause_reading(self, is_full: bool) -> None:
        """It wants nothing more for now, or goes on."""
        if self._line is not None:
            self._line.read(not is_full)

    # -- what the splice asks for ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Do what is to be done, until nothing is."""
        while True:
            self._hand_in()
            orders = self.splice.take_orders()
            if not orders:
                break
            for order in orders:
                self._do(order)
        if self.splice.state is State.OPEN and self._told is not State.OPEN:
            self._kept.meet(self.terms.name, self.terms.client_id, self.splice.introduction.knows_bridges)
        self._remember()
        self._write()
        if self._unread is not None and self._unread > UNREAD_BYTES_MAX:
            self._cut()
        self._regulate()
        self._tell()
        self._arm()

    def _remember(self) -> None:
        """What the remote is about to be asked for."""
        if self.splice.asked is not self._asked:
            self._asked = self.splice.asked
            self._kept.ask(self.terms.name, self._asked)

    def _may_ask(self) -> bool:
        """Whether what the remote is asked for is on disk; else nothing is said until it is."""
        if not self.memory.is_noted():
            self._look_again()
            return False
        if self._kept.is_on_disk(self.terms.name):
            return True
        if not self._awaits_disk:
            self._awaits_disk = True
            self._kept.when_written(self._go_on)
        return False

    def _look_again(self) -> None:
        if not self._awaits_disk:
            self._awaits_disk = True
            self._loop.call_later(LOOK_S, self._go_on)

    def _go_on(self) -> None:
        self._awaits_disk = False
        self._settle()

    def _do(self, order: Order) -> None:
        match order:
            case Order.DIAL:
                self._dialling = self._loop.create_task(self._dial())
            case Order.HANG_UP:
                self._write(at_last=True)
                self._reactor.arm()  # whether the remote refuses us is kept
                if self._dialling is not None:
                    self._dialling.cancel()
                    self._dialling = None
                if self._line is not None:
                    line, self._line = self._line, None
                    line.close()
                    self._loop.call_later(GOODBYE_S, line.transport.abort)
            case Order.ELSEWHERE:
                self._at = (self._at + 1) % len(self.road.addresses)
            case Order.OPEN:
                self._is_held = False
                self._inlet = Inlet(self._reactor, self, self.terms.name, self.settings.local_user or "")
                self.splice.opened(clock())
                self._hand_in()
                self._bound()
            case Order.CLOSE:
                self._hand_in()
                if self._inlet is not None:
                    inlet, self._inlet = self._inlet, None
                    inlet.leave()

    def _hand_in(self) -> None:
        """Give our front end what is for it. It is never in the midst of something else then."""
        if self._inlet is not None and (packets := self.splice.take_local()):
            self._inlet.say(packets[0] if len(packets) == 1 else b"".join(packets))

    def _write(self, at_last: bool = False) -> None:
        """*at_last*: nothing can be written later."""
        if self._line is None or not (self.memory.is_noted() if at_last else self._may_ask()):
            return
        if packets := self.splice.take_remote(clock()):
            self._line.write(packets)
            if self._unread is not None:
                self._unread += sum(len(one) for one in packets if one[0] in _ANSWERS)
            if self.splice.toll.purse.is_to_be_noted:
                self.note()

    def _cut(self) -> None:
        """End the connection of a remote that sends, and does not read what it is answered."""
        line, self._line, self._unread = self._line, None, None
        if line is not None and line.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            line.transport.abort()
            self.splice.lost(f"the remote does not read: {UNREAD_BYTES_MAX:,} bytes of answers wait for it", clock())
            self._loop.call_soon(self._settle)
        else:  # it reads, and is slow
            self._line, self._unread = line, 0

    def _bound(self) -> None:
        self.memory.bound(bounds_of(self.settings), clock())
        self._reactor.arm()  # it may have set a timer

    def _tell(self) -> None:
        """Let the operator know what is new: what goes on for days is told once."""
        splice = self.splice
        if splice.state is State.OPEN and self._told is not State.OPEN:
            self._notices.tell(Level.INFO, "bridge-up", "the remote is there", bridge=self.terms.name)
            self._reason = ""
        elif splice.state is State.WAITING and splice.reason and splice.reason != self._reason:
            self._reason = splice.reason
            self._notices.tell(Level.WARNING, "bridge-down", splice.reason, bridge=self.terms.name)
        for text in splice.take_warnings():
            self._notices.tell(Level.WARNING, "bridge-drops", text, bridge=self.terms.name)
        if splice.state is State.CLOSED and self._told is not State.CLOSED:
            self._notices.tell(Level.INFO, "bridge-closed", splice.reason, bridge=self.terms.name)
        self._told = splice.state

    def _arm(self) -> None:
        due = self.splice.next_due()
        if due == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at, self._alarm = due, None
        if due is not None:
            self._alarm = self._loop.call_later(max(due - clock(), 0) / SECOND, self._ring)

    def _ring(self) -> None:
        self._alarm_at = None
        self.splice.fire(clock())
        self._settle()
