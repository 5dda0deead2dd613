"""The scheduler of input: work beyond the share of one turn goes on in a later turn, round robin.

A connection is *held* while whole packets of it wait: because its share of this turn is used up, because it publishes
faster than its quota allows, or because it is being authenticated. A world reads nothing from a connection whose
`is_held` is set, so that the client feels back-pressure, until the connection stands in `readable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.handlers.publish import PublishHandler
from edgebridge.frontend.retained_replay import RetainedReplay
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import Duration, Instant
from edgebroker.node.timers import TimerQueue

TURN: Final = ("turn",)
QUIET_INTERVAL: Final[Duration] = 1_000
"""So long nobody else may have sent anything before a flood goes on. A wait for sockets counts milliseconds."""
REST_INTERVAL: Final[Duration] = 20_000
"""The longest it waits for that: ten times what a turn takes, so floods get a tenth of a gateway that others use."""


LATE_CHUNKS_MAX: Final = 16
"""Chunks, of 64 KiB at most: a world closes the connection when all have had their turn."""
SERVER_REASONS: Final = frozenset(
    {
        ReasonCode.ADMINISTRATIVE_ACTION,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode.MAXIMUM_CONNECT_TIME,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.SERVER_MOVED,
        ReasonCode.USE_ANOTHER_SERVER,
    }
)
"""Reasons to send away a client that has done nothing wrong."""
PACKET_INTERVAL: Final[Duration] = 10_000_000
"""A large packet that is not whole is looked at so long after it began: one timer for all packets until then."""
REST_INTERVAL_MAX: Final[Duration] = 1_000_000
"""The same after a filter that was much more than a turn's part."""


class PacketCounter(Protocol):
    """Counts what is received from all clients."""

    @property
    def packets(self) -> int:
        """How many packets so far."""


class InputScheduler:
    """Who goes on later. One connection at a time: in between the world looks after everybody else."""

    def __init__(
        self,
        timers: TimerQueue,
        delivery: Delivery,
        replaying: RetainedReplay,
        publish_handler: PublishHandler,
        feed: Callable[[Connection, bytes, Instant], None],
    ) -> None:
        """*feed* handles bytes of a connection, as `Frontend.feed` does."""
        self._delivery = delivery
        self._last_packet_count = 0
        """How many those were when somebody went on last, or waited for the others."""
        self._rest_until: Instant = 0
        """From then on nobody waits for the others any more."""
        self._timers = timers
        self._replay = replaying
        self._publish_handler = publish_handler
        self._feed = feed
        self._queue: deque[Connection] = deque()
        self._queued: set[int] = set()
        self._paused: set[int] = set()
        self.readable: list[Connection] = []
        """Connections that were held and are not any more."""
        self.cut_short = 0
        """How often somebody's input was too much for one turn."""
        self.slowed = 0
        """How often somebody was read more slowly because it published too fast."""

    def __len__(self) -> int:
        """How many connections go on by themselves, without anything that must happen first."""
        return len(self._queue)

    def hold(self, connection: Connection, overdrawn: float, now: Instant) -> None:
        """Go on with *connection*'s input in another turn. It was *overdrawn* by so many times its part of this one."""
        self.cut_short += 1
        if overdrawn >= 1:
            self._rest_until = max(self._rest_until, now + min(int((1 + overdrawn) * REST_INTERVAL), REST_INTERVAL_MAX))
        connection.is_held = True
        self.schedule(connection, now)

    def schedule(self, connection: Connection, now: Instant) -> None:
        """Come back to *connection* in another turn."""
        if connection.number not in self._queued:
            self._queued.add(connection.number)
            self._queue.append(connection)
            self._timers.set(TURN, now + 1)  # a later instant: what waits in the world's queues comes first

    def pause(self, connection: Connection, until: Instant) -> None:
        """Read nothing from *connection* until then."""
        self.slowed += 1
        connection.is_held = True
        self._paused.add(connection.number)
        self._timers.set(("pause", connection.number), until)

    def time_packet(self, connection: Connection, now: Instant) -> None:
        """Look after *connection*'s large unfinished packet later: nearly always it is complete long before."""
        connection.is_packet_timed = True
        self._timers.set(("packet", connection.number), now + PACKET_INTERVAL)

    def end_pauses(self, now: Instant) -> None:
        """Nobody has to wait any more for having published too fast."""
        for number in self._paused:
            self._timers.set(("pause", number), now)

    def resume(self, connection: Connection, now: Instant) -> None:
        """The pause is over."""
        self._paused.discard(connection.number)
        self._resume_input(connection, now)

    def run_next(self, received: PacketCounter, now: Instant) -> None:
        """Resume whoever has waited longest, unless others send meanwhile, as *received* shows: then later."""
        taken = received.packets
        if taken != self._last_packet_count and now < self._rest_until:
            self._last_packet_count = taken
            self._timers.set(TURN, now + QUIET_INTERVAL)
            return
        self._rest_until = now + REST_INTERVAL
        self._run(now)
        self._last_packet_count = received.packets

    def _run(self, now: Instant) -> None:
        connection = self._queue.popleft()
        self._queued.discard(connection.number)
        if self._queue:
            self._timers.set(TURN, now + 1)
        if connection.closing:
            return
        session = connection.session
        if session is not None and connection.is_deferred:
            connection.is_deferred = False
            self._delivery.release(session, now)
        if session is not None and session.replays and connection.job is None:  # the answer comes first
            self._replay.resume(session, now)
        self._resume_input(connection, now)
        if session is not None and self._replay.can_resume(session):
            self.schedule(connection, now)

    def receive_late(self, connection: Connection, chunk: bytes) -> None:
        """It is sent away, or taken over, and does not know yet: what it says is counted with what waits of it."""
        reason, _ = connection.disconnect_reason or (None, "")
        if reason in SERVER_REASONS and len(connection.pending) < LATE_CHUNKS_MAX:
            connection.pending.append(chunk)
            connection.is_held = True

    def forget(self, connection: Connection) -> None:
        """It is gone, and what it had said and waited for its turn is not read any more."""
        if connection.is_held and connection.pending:
            self._publish_handler.count_unread(connection, b"".join(connection.pending))
            connection.pending, connection.pending_bytes = [], 0
        self._paused.discard(connection.number)
        self._timers.cancel(("pause", connection.number))
        self._timers.cancel(("packet", connection.number))

    def _resume_input(self, connection: Connection, now: Instant) -> None:
        if connection.closing or not connection.is_held or connection.number in self._paused:
            return
        if connection.state is ConnectionState.AUTHENTICATING:
            return
        connection.is_held = False
        self._feed(connection, b"", now)
        if not connection.is_held:
            self.readable.append(connection)
