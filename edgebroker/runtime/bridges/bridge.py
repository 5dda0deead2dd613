"""Runs one bridge: its remote connection, its local client, one timer, and the bounds of its session.

The session of a bridge with invalid settings is kept within bounds until the settings are repaired.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.budget import LocalTime
from edgebridge.bridge.endpoints import BridgeCommand, BridgeState
from edgebridge.frontend.bridge_session import BridgeQueueBounds, BridgeSession
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import MIB
from edgebroker.runtime.bridges.connection import BridgeConnection, TeardownAttempt
from edgebroker.runtime.bridges.local_client import LocalClient
from edgebroker.runtime.bridges.state import BridgeStateFile, BudgetStore, local_time
from edgebroker.runtime.loop.reactor import GOODBYE_S, Reactor, clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.peers.connection import DialError, reason_of
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.problems import InvalidEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgebroker.runtime.bridges.plan import BridgePlan


def bounds_of(settings: BridgeSettings) -> BridgeQueueBounds:
    """Returns the queue bounds that *settings* ask for."""
    return BridgeQueueBounds(
        settings.queue_messages_max,
        settings.queue_bytes_max,
        settings.queue_full,
        (settings.queue_age_s_max or 0) * SECOND,
        settings.live_first,
    )


def keep_session(frontend: Frontend, name: str, entry: InvalidEntry, now: Instant) -> None:
    """Keeps the queue of the bridge *name*, whose settings *entry* is invalid, and bounds it from now on.

    Where the bounds of *entry* cannot be read, nothing that is queued already is dropped for them.
    """
    local_session = BridgeSession(frontend, BRIDGE_CLIENT_PREFIX + name)
    session = local_session.session
    if session is None:
        return
    if entry.settings is not None:
        local_session.bound(bounds_of(entry.settings), now)
        return
    # While one of the bounds is invalid, the queue must not shrink: nothing is dropped for a typing error.
    given_messages, given_bytes = (entry.given.get(key) for key in ("queue_messages_max", "queue_bytes_max"))
    terms, outbox = frontend.options, session.outbox
    messages_max = given_messages if isinstance(given_messages, int) else terms.queue_messages_max
    bytes_max = given_bytes if isinstance(given_bytes, int) else terms.queue_bytes_max
    bounds = BridgeQueueBounds(
        max(messages_max, len(outbox)), max(bytes_max, outbox.held_bytes), OverflowPolicy.DROP_NEWEST
    )
    local_session.bound(bounds, now)


def orphan_sessions(frontend: Frontend, names: frozenset[str]) -> list[str]:
    """Returns the names of bridges that have a session and are not among *names*."""
    owners = [
        client_id.removeprefix(BRIDGE_CLIENT_PREFIX)
        for client_id in frontend.connect_handler.sessions
        if client_id.startswith(BRIDGE_CLIENT_PREFIX)
    ]
    return [name for name in owners if name not in names]


def end_session(frontend: Frontend, name: str, now: Instant) -> int:
    """Ends the session of the removed bridge *name*. Returns how many messages were queued in it."""
    session = BridgeSession(frontend, BRIDGE_CLIENT_PREFIX + name).session
    if session is None:
        return 0
    waiting = session.outstanding
    if session.connection is not None:
        frontend.closed(session.connection, now)
    frontend.connect_handler.expire_session(session, now)
    return waiting


UNREAD_BYTES_MAX: Final = MIB
"""Acknowledgements queued for a remote that keeps sending and reads none of them: a million of them are 4 MB."""
_ACK_FIRST_BYTES: Final = range(0x40, 0x80)  # the first byte of PUBACK, PUBREC, PUBREL, PUBCOMP
DISK_POLL_S: Final = 0.005
"""Interval of asking whether a record has reached the disk: commits are 5 to 20 ms apart."""
PAUSED_BY_OPERATOR: Final = "an operator wants it so"
AWAITS_PAIR: Final = "it was the active one of its pair, and asks the other gateways whether it still is"


class BridgeRunner:
    """Runs one bridge from `start` to `stop`: executes the commands of its state machine, `bridge`.

    Each event (bytes, timers, connections, the disk) ends in `_settle`, which executes the commands it caused.
    """

    def __init__(
        self,
        plan: BridgePlan,
        reactor: Reactor,
        operator_log: OperatorLog,
        chance: Callable[[], float],
        budget_store: BudgetStore,
        state_file: BridgeStateFile,
    ) -> None:
        """*chance* returns numbers from 0 to below 1, for the time between attempts to connect."""
        self.settings = plan.settings
        self.options = options = plan.options
        self.dial_target = plan.dial_target
        self.local_session = BridgeSession(reactor.frontend, options.local_client_id)
        if state_file.client_id_at_remote(options.name) not in (None, options.client_id):
            # The remote holds its session for the old client identifier; the new one starts without a session.
            self.local_session.part(clock())
        self.bridge = Bridge(options, self.local_session, chance, state_file.subscriptions_at_remote(options.name))
        self.bridge.handshake.greeted_version = state_file.greeted_version(options.name)
        self.bridge.shaper.daily_budget.restore(budget_store.spent(options.name))
        self._budget_store = budget_store
        self._reported_budget_warning = ""
        self._state_file = state_file
        self._saved_subscriptions = self.bridge.requested_subscriptions
        self._waits_for_disk = False
        self.started_at = clock()
        """When its counters began."""
        self._reactor = reactor
        self._operator_log = operator_log
        self._loop = asyncio.get_running_loop()
        self._address_index = 0  # dialled first: the address that answered last, whose broker has our session
        self._connection: BridgeConnection | None = None
        # Bytes of acknowledgements sent since the remote stopped reading; None: it reads.
        self._unread_reply_bytes: int | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._local_client: LocalClient | None = None
        self._is_local_paused = False  # whether the local client is paused
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: Instant | None = None
        self._reported_state = BridgeState.PAUSED
        self._reported_reason = ""

    def start(self) -> None:
        """Starts the bridge, or resumes it after a pause."""
        self._apply_bounds()
        self.bridge.set_local_time(local_time(), clock())
        self.bridge.start(clock())
        self._settle()

    def tick(self, now: LocalTime) -> None:
        """Handles a new minute of the local time, *now*."""
        self.bridge.set_local_time(now, clock())
        if self.bridge.shaper.daily_budget.needs_checkpoint:
            self.record_spending()
        self._log_budget_warning()
        self._settle()

    def record_spending(self) -> None:
        """Saves how much of the daily byte budget is spent."""
        if self.bridge.shaper.shaper_options.bytes_per_day:
            self._budget_store.record(self.options.name, self.bridge.shaper.daily_budget.checkpoint())
            self._log_budget_warning()

    def _log_budget_warning(self) -> None:
        """Logs the warning about the daily byte budget, if it is a new one."""
        warning = self.bridge.shaper.warning
        if warning and warning != self._reported_budget_warning:
            self._operator_log.log(Level.WARNING, "bridge-budget", warning, bridge=self.options.name)
        self._reported_budget_warning = warning

    def start_paused(self, reason: str = PAUSED_BY_OPERATOR) -> None:
        """Starts the bridge without dialling: messages for the remote are queued from now on."""
        self.start()
        self.pause(reason)

    def resume(self) -> None:
        """Resumes a paused bridge; a bridge that waits for its next attempt dials at once."""
        if self.bridge.state is BridgeState.WAITING:
            self.bridge.pause(clock())
        if self.bridge.state is BridgeState.PAUSED:
            self.start()

    def terminate(self) -> TeardownAttempt | None:
        """Disconnects for ever.

        Returns the attempt that is needed to end the session at the remote, if DISCONNECT did not end it.
        """
        is_known_there = self.local_session.sync_state.has_remote_session
        has_ended_session = self.bridge.remove(clock())
        self._settle()
        if has_ended_session or not is_known_there:
            return None
        options = replace(self.options, dialect=self.bridge.handshake.dialect)
        return TeardownAttempt(options, self.dial_target, self._address_index)

    @property
    def address(self) -> str:
        """The address that answered last, or the one to dial first."""
        return str(self.dial_target.addresses[self._address_index])

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the remote although it is connected, as lines of text."""
        counts = self.bridge.outbound_counters.wrong_acknowledgements
        if not counts:
            return []
        told = ", ".join(f"{number:,} x {kind}" for kind, number in sorted(counts.items()))
        lowered = "; messages of QoS 2 go to it at QoS 1" if self.bridge.sends_qos_1 else ""
        return [f"acknowledgements of the wrong kind from the remote: {told}{lowered}"]

    @property
    def is_ready(self) -> bool:
        """Whether the remote is there, as far as this bridge knows: the active one is believed to connect until it has
        failed.
        """
        state = self.bridge.state
        if state is BridgeState.OPEN or self.options.stands_by:
            return state is BridgeState.OPEN
        return state not in (BridgeState.PAUSED, BridgeState.CLOSED) and not self.bridge.reason

    @property
    def awaits_pair(self) -> bool:
        """Whether it is paused until its role in its pair is known."""
        return self.is_paused and self.bridge.reason == AWAITS_PAIR

    @property
    def role(self) -> str:
        """What this bridge of a pair does now. It stands by some time after another gateway has become active."""
        return "undecided" if self.awaits_pair else "standby" if self.options.stands_by else "active"

    @property
    def is_paused(self) -> bool:
        """Whether the bridge dials nobody until it is resumed."""
        return self.bridge.state is BridgeState.PAUSED

    def pause(self, reason: str = PAUSED_BY_OPERATOR) -> None:
        """Disconnects. Messages for the remote are queued until `start`."""
        self.bridge.pause(clock(), reason)
        self._settle()

    async def stop(self) -> None:
        """Disconnects for ever. Returns when the last bytes are written, or after `GOODBYE_S` seconds."""
        connection = self._connection
        self.pause("the gateway stops")
        self.record_spending()
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._loop.time() + GOODBYE_S
        while connection is not None and connection.transport.get_write_buffer_size() and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        if connection is not None:
            connection.transport.abort()

    # -- the remote connection -----------------------------------------------------------------------------------

    def dial_started(self, index: int) -> None:
        """Records that the address number *index* is being dialled."""
        self._address_index = index

    def socket_opened(self, connection: BridgeConnection) -> None:
        """Records the socket; TLS or WebSocket may not be negotiated yet."""
        self._connection = connection

    def connection_made(self, connection: BridgeConnection) -> None:
        """Starts the MQTT handshake with the remote."""
        if self.bridge.state is not BridgeState.DIALLING or self._connection not in (None, connection):  # too late
            connection.transport.abort()
            return
        self._connection, self._unread_reply_bytes = connection, None
        self.bridge.on_connected(clock())
        self._reactor.arm_timer()  # a record may have to be synced first
        self._settle()

    def data_received(self, connection: BridgeConnection, data: bytes) -> None:
        """Passes bytes from the remote to the bridge."""
        if connection is self._connection:
            self.bridge.receive_remote(data, clock())
            self._settle()

    def flow_changed(self, connection: BridgeConnection, is_full: bool) -> None:
        """Notes that the write buffer of the connection is full, or has room again."""
        if connection is self._connection:
            self._unread_reply_bytes = 0 if is_full else None
            self._regulate()

    def _regulate(self) -> None:
        """Pauses the local client while the remote does not read or the bridge has input to work off."""
        is_paused = self._unread_reply_bytes is not None or self.bridge.local_end.is_full
        if self._local_client is not None and is_paused != self._is_local_paused:
            self._is_local_paused = is_paused
            self._local_client.set_paused(is_paused)

    def connection_lost(self, connection: BridgeConnection, error: Exception | None) -> None:
        """Notifies the bridge that its connection has ended."""
        if connection is self._connection:
            self._connection = None
            if self.bridge.state is BridgeState.DIALLING:  # the peer refused the WebSocket: try the next address
                self._execute(BridgeCommand.ELSEWHERE)
            why = "the remote closed the connection" if error is None else reason_of(error)
            self.bridge.on_connection_lost(why, clock())
            self._settle()

    async def _dial(self) -> None:
        try:
            await self.dial_target.dial(self, self._address_index)
        except DialError as error:
            self._dialling = None
            self.bridge.on_connection_lost(str(error), clock())
            self._settle()
        self._dialling = None

    # -- the local client ----------------------------------------------------------------------------------------

    def local_data_received(self, local_client: LocalClient, data: bytes) -> None:
        """Passes bytes from the front end to the bridge.

        The reactor is in the middle of its turn, so the commands that follow are executed in the next one.
        """
        if local_client is self._local_client:
            self.bridge.receive_local(data, clock())
            self._save_subscriptions()
            self._send_remote()
            self._loop.call_soon(self._settle)

    def local_closed(self, local_client: LocalClient) -> None:
        """Notifies the bridge that the front end closed its local client."""
        if local_client is self._local_client:
            self._local_client = None
            self.bridge.on_local_closed(clock())
            self._settle()

    def pause_reading(self, is_full: bool) -> None:
        """Stops or resumes reading from the remote, as the front end asks for it."""
        if self._connection is not None:
            self._connection.allow_reading(not is_full)

    # -- commands of the bridge ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Executes the commands of the bridge until there are none, then writes, logs and sets the timer."""
        while True:
            self._send_local()
            commands = self.bridge.take_commands()
            if not commands:
                break
            for command in commands:
                self._execute(command)
        if self.bridge.state is BridgeState.OPEN and self._reported_state is not BridgeState.OPEN:
            self._state_file.record_greeting(
                self.options.name, self.options.client_id, self.bridge.handshake.greeted_version
            )
        self._save_subscriptions()
        self._send_remote()
        if self._unread_reply_bytes is not None and self._unread_reply_bytes > UNREAD_BYTES_MAX:
            self._abort_if_unread()
        self._regulate()
        self._log_changes()
        self._set_timer()

    def _save_subscriptions(self) -> None:
        """Saves the subscriptions that the remote is about to receive."""
        if self.bridge.requested_subscriptions is not self._saved_subscriptions:
            self._saved_subscriptions = self.bridge.requested_subscriptions
            self._state_file.set_subscriptions(self.options.name, self._saved_subscriptions)

    def _is_state_on_disk(self) -> bool:
        """Whether all state that the next packets depend on is on disk. If not, `_settle` runs again once it is."""
        if not self.local_session.is_noted():
            self._retry_later()
            return False
        if self._state_file.is_on_disk(self.options.name):
            return True
        if not self._waits_for_disk:
            self._waits_for_disk = True
            self._state_file.on_written(self._on_disk)
        return False

    def _retry_later(self) -> None:
        if not self._waits_for_disk:
            self._waits_for_disk = True
            self._loop.call_later(DISK_POLL_S, self._on_disk)

    def _on_disk(self) -> None:
        self._waits_for_disk = False
        self._settle()

    def _execute(self, command: BridgeCommand) -> None:
        match command:
            case BridgeCommand.DIAL:
                self._dialling = self._loop.create_task(self._dial())
            case BridgeCommand.HANG_UP:
                self._send_remote(is_last=True)
                self._reactor.arm_timer()  # the session record may have changed
                if self._dialling is not None:
                    self._dialling.cancel()
                    self._dialling = None
                if self._connection is not None:
                    connection, self._connection = self._connection, None
                    connection.close()
                    self._loop.call_later(GOODBYE_S, connection.transport.abort)
            case BridgeCommand.ELSEWHERE:
                self._address_index = (self._address_index + 1) % len(self.dial_target.addresses)
            case BridgeCommand.OPEN:
                self._is_local_paused = False
                self._local_client = LocalClient(self._reactor, self, self.options.name, self.settings.local_user or "")
                self.bridge.on_local_open(clock())
                self._send_local()
                self._apply_bounds()
            case BridgeCommand.CLOSE:
                self._send_local()
                if self._local_client is not None:
                    local_client, self._local_client = self._local_client, None
                    local_client.disconnect()

    def _send_local(self) -> None:
        """Passes the bridge's output to the front end, which is never in the middle of something else here."""
        if self._local_client is not None and (packets := self.bridge.take_local_output()):
            self._local_client.send(packets[0] if len(packets) == 1 else b"".join(packets))

    def _send_remote(self, is_last: bool = False) -> None:
        """Writes the bridge's output to the remote. *is_last*: nothing can be written later."""
        if self._connection is None or not (self.local_session.is_noted() if is_last else self._is_state_on_disk()):
            return
        if packets := self.bridge.take_remote_output(clock()):
            self._connection.write(packets)
            if self._unread_reply_bytes is not None:
                self._unread_reply_bytes += sum(len(packet) for packet in packets if packet[0] in _ACK_FIRST_BYTES)
            if self.bridge.shaper.daily_budget.needs_checkpoint:
                self.record_spending()

    def _abort_if_unread(self) -> None:
        """Aborts the connection of a remote that sends but does not read the acknowledgements."""
        connection, self._connection, self._unread_reply_bytes = self._connection, None, None
        if connection is not None and connection.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            connection.transport.abort()
            self.bridge.on_connection_lost(
                f"the remote does not read: {UNREAD_BYTES_MAX:,} bytes of answers wait for it", clock()
            )
            self._loop.call_soon(self._settle)
        else:  # slow, but it reads
            self._connection, self._unread_reply_bytes = connection, 0

    def _apply_bounds(self) -> None:
        self.local_session.bound(bounds_of(self.settings), clock())
        self._reactor.arm_timer()  # the bounds may have set a timer

    def _log_changes(self) -> None:
        """Logs changes of the state, and each lasting condition once."""
        bridge = self.bridge
        if bridge.state is BridgeState.OPEN and self._reported_state is not BridgeState.OPEN:
            level = Level.WARNING if self._reported_reason else Level.INFO  # who heard of the trouble hears of its end
            self._operator_log.log(level, "bridge-up", "the remote is there", bridge=self.options.name)
            self._reported_reason = ""
        elif bridge.state is BridgeState.WAITING and bridge.reason and bridge.reason != self._reported_reason:
            self._reported_reason = bridge.reason
            self._operator_log.log(Level.WARNING, "bridge-down", bridge.reason, bridge=self.options.name)
        for event, text in bridge.take_warnings():
            self._operator_log.log(Level.WARNING, event, text, bridge=self.options.name)
        if bridge.state is BridgeState.CLOSED and self._reported_state is not BridgeState.CLOSED:
            self._operator_log.log(Level.INFO, "bridge-closed", bridge.reason, bridge=self.options.name)
        self._reported_state = bridge.state

    def _set_timer(self) -> None:
        due = self.bridge.next_due()
        if due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due, self._timer = due, None
        if due is not None:
            self._timer = self._loop.call_later(max(due - clock(), 0) / SECOND, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_due = None
        self.bridge.fire(clock())
        self._settle()
