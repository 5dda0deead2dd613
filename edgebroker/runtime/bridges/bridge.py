"""Runs one bridge: its remote connection, its local client, one timer, and the bounds of its session.

The session of a bridge that cannot be used is kept within bounds until the settings are repaired.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.budget import LocalTime
from edgebridge.bridge.endpoints import BridgeCommand, BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.frontend.bridge_session import BridgeQueueBounds, BridgeSession
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import MIB
from edgebroker.runtime.bridges.connection import BridgeConnection, DialTarget, TeardownAttempt
from edgebroker.runtime.bridges.local_client import LocalClient
from edgebroker.runtime.bridges.state import BridgeStateFile, BudgetStore, local_time
from edgebroker.runtime.loop.reactor import GOODBYE_S, Reactor, clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.peers.connection import DialError, reason_of
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.problems import InvalidEntry

if TYPE_CHECKING:
    from collections.abc import Callable


def bounds_of(settings: BridgeSettings) -> BridgeQueueBounds:
    """As they say."""
    return BridgeQueueBounds(
        settings.queue_messages_max,
        settings.queue_bytes_max,
        settings.queue_full,
        (settings.queue_age_s_max or 0) * SECOND,
        settings.live_first,
    )


def keep_session(frontend: Frontend, name: str, aside: InvalidEntry, now: Instant) -> None:
    """Keep what waits for the bridge *name* that is set aside, and what comes as far as there is room."""
    memory = BridgeSession(frontend, BRIDGE_CLIENT_PREFIX + name)
    session = memory.session
    if session is None:
        return
    if aside.settings is not None:
        memory.bound(bounds_of(aside.settings), now)
        return
    # Bounds that are not all known are no reason to give anything up.
    messages, size = (aside.given.get(key) for key in ("queue_messages_max", "queue_bytes_max"))
    terms, outbox = frontend.options, session.outbox
    messages_max = messages if isinstance(messages, int) else terms.queue_messages_max
    bytes_max = size if isinstance(size, int) else terms.queue_bytes_max
    bounds = BridgeQueueBounds(
        max(messages_max, len(outbox)), max(bytes_max, outbox.held_bytes), OverflowPolicy.DROP_NEWEST
    )
    memory.bound(bounds, now)


def orphan_sessions(frontend: Frontend, names: frozenset[str]) -> list[str]:
    """Bridges that have a session, and are not among *names*."""
    ids = [
        one.removeprefix(BRIDGE_CLIENT_PREFIX)
        for one in frontend.connect_handler.sessions
        if one.startswith(BRIDGE_CLIENT_PREFIX)
    ]
    return [name for name in ids if name not in names]


def end_session(frontend: Frontend, name: str, now: Instant) -> int:
    """End the session of the bridge *name*, which is no more. How many messages waited in it."""
    session = BridgeSession(frontend, BRIDGE_CLIENT_PREFIX + name).session
    if session is None:
        return 0
    waiting = session.outstanding
    if session.connection is not None:
        frontend.closed(session.connection, now)
    frontend.connect_handler.expire_session(session, now)
    return waiting


UNREAD_BYTES_MAX: Final = MIB
"""Answers to a remote that goes on sending and does not read them: a million of them are 4 MB."""
_ANSWERS: Final = range(0x40, 0x80)  # the first byte of PUBACK, PUBREC, PUBREL, PUBCOMP
LOOK_S: Final = 0.005
"""How soon to look again whether something is on disk: commits are 5 to 20 ms apart."""
WANTED: Final = "an operator wants it so"


class BridgeRunner:
    """From `start` to `stop`. Every event of the world ends in `_settle`, which does what the splice asks for."""

    def __init__(
        self,
        settings: BridgeSettings,
        terms: BridgeOptions,
        reactor: Reactor,
        notices: OperatorLog,
        chance: Callable[[], float],
        road: DialTarget,
        budget_store: BudgetStore,
        kept: BridgeStateFile,
    ) -> None:
        self.settings = settings
        self.terms = terms
        self.local_session = BridgeSession(reactor.frontend, terms.local_client_id)
        if kept.client_id_at_remote(terms.name) not in (None, terms.client_id):
            self.local_session.part(clock())  # before it is asked whom it has met
        self.bridge = Bridge(terms, self.local_session, chance, kept.subscriptions_at_remote(terms.name))
        self.bridge.handshake.knows_bridges = kept.knows_bridges(terms.name)
        self.bridge.shaper.daily_budget.restore(budget_store.spent(terms.name))
        self._budget_store = budget_store
        self._spending = ""
        self._state_file = kept
        self._asked = self.bridge.requested_subscriptions
        self._awaits_disk = False
        self.began = clock()
        """When it began to count."""
        self._reactor = reactor
        self._notices = notices
        self.dial_target = road
        self._loop = asyncio.get_running_loop()
        self._at = 0  # the number of the address to dial first: of the one that answered last, which has our session
        self._connection: BridgeConnection | None = None
        self._unread: int | None = None  # bytes of answers since the remote takes nothing
        self._dialling: asyncio.Task[None] | None = None
        self._local_client: LocalClient | None = None
        self._is_held = False  # our front end, at that inlet
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: Instant | None = None
        self._told = BridgeState.PAUSED
        self._reason = ""

    def start(self) -> None:
        """Begin, or go on after a pause."""
        self._bound()
        self.bridge.set_local_time(local_time(), clock())
        self.bridge.start(clock())
        self._settle()

    def tick(self, shown: LocalTime) -> None:
        """The clock on the wall shows another minute."""
        self.bridge.set_local_time(shown, clock())
        if self.bridge.shaper.daily_budget.needs_checkpoint:
            self.record_spending()
        self._warn()
        self._settle()

    def record_spending(self) -> None:
        """Keep what is spent of the day's bytes."""
        if self.bridge.shaper.shaper_options.bytes_per_day:
            self._budget_store.record(self.terms.name, self.bridge.shaper.daily_budget.checkpoint())
            self._warn()

    def _warn(self) -> None:
        """Tell what is new of the day's bytes."""
        warning = self.bridge.shaper.warning
        if warning and warning != self._spending:
            self._notices.log(Level.WARNING, "bridge-budget", warning, bridge=self.terms.name)
        self._spending = warning

    def start_paused(self, reason: str = WANTED) -> None:
        """Dial nobody, but keep what is for the remote from now on."""
        self.start()
        self.pause(reason)

    def resume(self) -> None:
        """Dial again, and now, if it waits to be dialled."""
        if self.bridge.state is BridgeState.WAITING:
            self.bridge.pause(clock())
        if self.bridge.state is BridgeState.PAUSED:
            self.start()

    def terminate(self) -> TeardownAttempt | None:
        """Hang up for good, and end the session at the remote; what is to be run for that if it takes more."""
        is_known_there = self.local_session.has_remote_session()
        is_told = self.bridge.remove(clock())
        self._settle()
        return TeardownAttempt(self.terms, self.dial_target, self._at) if is_known_there and not is_told else None

    @property
    def address(self) -> str:
        """The one of its addresses that answered last, or is to be dialled first."""
        return str(self.dial_target.addresses[self._at])

    @property
    def is_paused(self) -> bool:
        """Whether it dials nobody until it is resumed."""
        return self.bridge.state is BridgeState.PAUSED

    def pause(self, reason: str = WANTED) -> None:
        """Hang up. What is for the remote waits until `start`."""
        self.bridge.pause(clock(), reason)
        self._settle()

    async def stop(self) -> None:
        """Hang up for good, and return when that is written or the remote does not take it."""
        line = self._connection
        self.pause("the gateway stops")
        self.record_spending()
        if self._alarm is not None:
            self._alarm.cancel()
        deadline = self._loop.time() + GOODBYE_S
        while line is not None and line.transport.get_write_buffer_size() and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        if line is not None:
            line.transport.abort()

    # -- the remote -----------------------------------------------------------------------------------------------

    def dial_started(self, at: int) -> None:
        """This one of its addresses is dialled."""
        self._at = at

    def socket_opened(self, line: BridgeConnection) -> None:
        """There is a socket, but it is not known yet what is on it."""
        self._connection = line

    def connection_made(self, line: BridgeConnection) -> None:
        """The remote is there."""
        if self.bridge.state is not BridgeState.DIALLING or self._connection not in (None, line):  # it came too late
            line.transport.abort()
            return
        self._connection, self._unread = line, None
        self.bridge.on_connected(clock())
        self._reactor.arm_timer()  # something may have to be on disk first
        self._settle()

    def data_received(self, line: BridgeConnection, data: bytes) -> None:
        """It says something."""
        if line is self._connection:
            self.bridge.receive_remote(data, clock())
            self._settle()

    def flow_changed(self, line: BridgeConnection, is_full: bool) -> None:
        """It takes nothing for now, or goes on."""
        if line is self._connection:
            self._unread = 0 if is_full else None
            self._regulate()

    def _regulate(self) -> None:
        """Let our front end go on, unless the remote takes nothing or we have not done what it has said."""
        is_held = self._unread is not None or self.bridge.local_end.is_full
        if self._local_client is not None and is_held != self._is_held:
            self._is_held = is_held
            self._local_client.set_paused(is_held)

    def connection_lost(self, line: BridgeConnection, error: Exception | None) -> None:
        """The connection is over."""
        if line is self._connection:
            self._connection = None
            if self.bridge.state is BridgeState.DIALLING:  # who answered has no WebSocket for us
                self._do(BridgeCommand.ELSEWHERE)
            why = "the remote closed the connection" if error is None else reason_of(error)
            self.bridge.on_connection_lost(why, clock())
            self._settle()

    async def _dial(self) -> None:
        try:
            await self.dial_target.dial(self, self._at)
        except DialError as error:
            self._dialling = None
            self.bridge.on_connection_lost(str(error), clock())
            self._settle()
        self._dialling = None

    # -- our own front end ----------------------------------------------------------------------------------------

    def local_data_received(self, local_client: LocalClient, data: bytes) -> None:
        """It says something, while the reactor is busy with it: what that brings back waits for the next turn."""
        if local_client is self._local_client:
            self.bridge.receive_local(data, clock())
            self._remember()
            self._write()
            self._loop.call_soon(self._settle)

    def local_closed(self, local_client: LocalClient) -> None:
        """It has ended it."""
        if local_client is self._local_client:
            self._local_client = None
            self.bridge.on_local_closed(clock())
            self._settle()

    def pause_reading(self, is_full: bool) -> None:
        """It wants nothing more for now, or goes on."""
        if self._connection is not None:
            self._connection.allow_reading(not is_full)

    # -- what the splice asks for ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Do what is to be done, until nothing is."""
        while True:
            self._hand_in()
            orders = self.bridge.take_commands()
            if not orders:
                break
            for order in orders:
                self._do(order)
        if self.bridge.state is BridgeState.OPEN and self._told is not BridgeState.OPEN:
            self._state_file.record_greeting(self.terms.name, self.terms.client_id, self.bridge.handshake.knows_bridges)
        self._remember()
        self._write()
        if self._unread is not None and self._unread > UNREAD_BYTES_MAX:
            self._cut()
        self._regulate()
        self._tell()
        self._arm()

    def _remember(self) -> None:
        """What the remote is about to be asked for."""
        if self.bridge.requested_subscriptions is not self._asked:
            self._asked = self.bridge.requested_subscriptions
            self._state_file.set_subscriptions(self.terms.name, self._asked)

    def _may_ask(self) -> bool:
        """Whether what the remote is asked for is on disk; else nothing is said until it is."""
        if not self.local_session.is_noted():
            self._look_again()
            return False
        if self._state_file.is_on_disk(self.terms.name):
            return True
        if not self._awaits_disk:
            self._awaits_disk = True
            self._state_file.on_written(self._go_on)
        return False

    def _look_again(self) -> None:
        if not self._awaits_disk:
            self._awaits_disk = True
            self._loop.call_later(LOOK_S, self._go_on)

    def _go_on(self) -> None:
        self._awaits_disk = False
        self._settle()

    def _do(self, order: BridgeCommand) -> None:
        match order:
            case BridgeCommand.DIAL:
                self._dialling = self._loop.create_task(self._dial())
            case BridgeCommand.HANG_UP:
                self._write(at_last=True)
                self._reactor.arm_timer()  # whether the remote refuses us is kept
                if self._dialling is not None:
                    self._dialling.cancel()
                    self._dialling = None
                if self._connection is not None:
                    line, self._connection = self._connection, None
                    line.close()
                    self._loop.call_later(GOODBYE_S, line.transport.abort)
            case BridgeCommand.ELSEWHERE:
                self._at = (self._at + 1) % len(self.dial_target.addresses)
            case BridgeCommand.OPEN:
                self._is_held = False
                self._local_client = LocalClient(self._reactor, self, self.terms.name, self.settings.local_user or "")
                self.bridge.on_local_open(clock())
                self._hand_in()
                self._bound()
            case BridgeCommand.CLOSE:
                self._hand_in()
                if self._local_client is not None:
                    local_client, self._local_client = self._local_client, None
                    local_client.disconnect()

    def _hand_in(self) -> None:
        """Give our front end what is for it. It is never in the midst of something else then."""
        if self._local_client is not None and (packets := self.bridge.take_local_output()):
            self._local_client.send(packets[0] if len(packets) == 1 else b"".join(packets))

    def _write(self, at_last: bool = False) -> None:
        """*at_last*: nothing can be written later."""
        if self._connection is None or not (self.local_session.is_noted() if at_last else self._may_ask()):
            return
        if packets := self.bridge.take_remote_output(clock()):
            self._connection.write(packets)
            if self._unread is not None:
                self._unread += sum(len(one) for one in packets if one[0] in _ANSWERS)
            if self.bridge.shaper.daily_budget.needs_checkpoint:
                self.record_spending()

    def _cut(self) -> None:
        """End the connection of a remote that sends, and does not read what it is answered."""
        line, self._connection, self._unread = self._connection, None, None
        if line is not None and line.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            line.transport.abort()
            self.bridge.on_connection_lost(
                f"the remote does not read: {UNREAD_BYTES_MAX:,} bytes of answers wait for it", clock()
            )
            self._loop.call_soon(self._settle)
        else:  # it reads, and is slow
            self._connection, self._unread = line, 0

    def _bound(self) -> None:
        self.local_session.bound(bounds_of(self.settings), clock())
        self._reactor.arm_timer()  # it may have set a timer

    def _tell(self) -> None:
        """Let the operator know what is new: what goes on for days is told once."""
        splice = self.bridge
        if splice.state is BridgeState.OPEN and self._told is not BridgeState.OPEN:
            self._notices.log(Level.INFO, "bridge-up", "the remote is there", bridge=self.terms.name)
            self._reason = ""
        elif splice.state is BridgeState.WAITING and splice.reason and splice.reason != self._reason:
            self._reason = splice.reason
            self._notices.log(Level.WARNING, "bridge-down", splice.reason, bridge=self.terms.name)
        for text in splice.take_warnings():
            self._notices.log(Level.WARNING, "bridge-drops", text, bridge=self.terms.name)
        if splice.state is BridgeState.CLOSED and self._told is not BridgeState.CLOSED:
            self._notices.log(Level.INFO, "bridge-closed", splice.reason, bridge=self.terms.name)
        self._told = splice.state

    def _arm(self) -> None:
        due = self.bridge.next_due()
        if due == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at, self._alarm = due, None
        if due is not None:
            self._alarm = self._loop.call_later(max(due - clock(), 0) / SECOND, self._ring)

    def _ring(self) -> None:
        self._alarm_at = None
        self.bridge.fire(clock())
        self._settle()
