"""The simulated broker: a front end and the connections of its clients, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TypeAlias

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.handlers.authentication import Verification
from edgebridge.frontend.options import LOCAL_LISTENER, QUOTA, FrontendHost, FrontendOptions, Quota
from edgebridge.session.access import OPEN, AccessPolicy
from edgebridge.session.journal.state import JournalState
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.conditions import FAIR, LineConditions, LineDirection
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import WALL, SimulatedStore

Watch: TypeAlias = Callable[["ClientLine", bytes], None]
"""Called with the bytes that a broker writes to a line, at the time of the write."""


class ClientLine:
    """One connection between a client and the broker. It ends once, for both sides."""

    def __init__(
        self,
        broker: SimulatedBroker,
        peer: str,
        conditions: LineConditions,
        read: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self.peer = peer
        self._broker = broker
        self._ended = ended
        self.is_open = True
        self.is_accepted = True
        """Whether the line is open for the broker."""
        self.connection: Connection = broker.frontend.opened(peer, broker.simulation.now, broker.entrance)
        self.connection.transport = self
        self.to_broker = LineDirection(broker.simulation, conditions, self._broker_reads, self._broker_sees_end)
        self.to_client = LineDirection(broker.simulation, conditions, read, self._client_sees_end)
        self.conditions = conditions

    @property
    def is_moving(self) -> bool:
        """Return whether bytes will arrive at either side without further actions."""
        return self.is_open and (self.to_broker.is_moving or self.to_client.is_moving)

    def write(self, chunk: bytes) -> None:
        """Send bytes from the client; without effect if the line has ended."""
        if self.is_open:
            self.to_broker.write(chunk)

    def stall(self) -> None:
        """Let the client stop reading."""
        self.to_client.stalled = True

    def resume(self) -> None:
        """Let the client read again."""
        self.to_client.stalled = False
        self.to_client.deliver()
        self._broker.drained(self)

    def cut(self) -> None:
        """Break the line: bytes in transit are lost, possibly within a packet, and the broker notices at once.

        The client is not notified: the caller knows.
        """
        if self.is_open:
            self.to_broker.lose_all()
            self._broker_sees_end()

    def leave(self) -> None:
        """Close from the client's side: its bytes still arrive, then the broker sees the end."""
        if self.is_open:
            self.to_broker.close()

    def shut(self) -> None:
        """Close from the broker's side: its bytes still arrive, then the client sees the end."""
        self.to_broker.lose_all()
        self.to_client.close()

    def _broker_sees_end(self) -> None:
        self.to_client.lose_all()
        self._broker.lost(self)
        self._end()

    def _client_sees_end(self) -> None:
        if self.is_open:
            self._end()
            self._ended()

    def _end(self) -> None:
        if self.is_open:  # both sides may close before the end of the other arrives
            self.is_open = False
            self._broker.lines.remove(self)

    def _broker_reads(self, chunk: bytes) -> None:
        self._broker.arrived(self, chunk)


class SimulatedHost(FrontendHost):
    """What a simulated broker offers to its front end: a disk, and no wall clock."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker

    def disk_work_due(self) -> None:
        self._broker.begin_disk_work()

    def gateway_identity(self) -> str:
        return self._broker.gateway_identity


class SimulatedBroker:
    """A front end and its lines: does on virtual time what `edgebroker.runtime` does with sockets.

    All that arrives at one instant is one turn: it is fed piece by piece, then every dirty connection is flushed once.
    """

    def __init__(
        self,
        simulation: Simulation,
        options: FrontendOptions | None = None,
        log: DeliveryLog | None = None,
        access: AccessPolicy = OPEN,
        quota: Quota = QUOTA,
        store: SimulatedStore | None = None,
    ) -> None:
        """Without a *store* nothing survives a crash."""
        self.simulation = simulation
        self.gateway_identity = ""
        """The name by which bridges recognise it; empty: it is not told."""
        self.store = store
        self.unix_s = WALL // SECOND  # the wall clock, which does not advance
        self.entrance = LOCAL_LISTENER
        """The listener of new lines."""
        self.verification_takes: Duration = 0
        self.verifications = 0
        """The number of verifications that were run."""
        self.lines: list[ClientLine] = []
        """Every line that is open for its client, oldest first."""
        self.runs = 0
        """The number of starts of the broker."""
        self.is_off = False
        """The broker is off until `power_on`; connections are refused."""
        self.watch: Watch | None = None
        self.options = options or FrontendOptions()
        self._log = log
        self.quota = quota
        self._access = access
        self._secret = simulation.random.randbytes(32) if access is not OPEN else b""
        self._digest = sha256()
        self._turn_planned = False
        self._wake: Instant | None = None
        self._timer_changes = -1  # of the front end, when its next deadline was asked for
        self._start()

    def _start(self) -> None:
        now = self.simulation.now
        self.runs += 1
        self.ledger = Ledger(self._log)
        journal, stored = (None, None) if self.store is None else self.store.boot()
        self.frontend = Frontend(
            Node(self.ledger),
            self.options,
            self._new_client_id,
            self._access,
            self._secret,
            journal,
            self.quota,
            SimulatedHost(self),
        )
        if self.store is not None and stored is not None:
            self.store.serve(self.frontend, stored)
        self._join(stored)
        if stored is not None:
            self.frontend.recovery.restore(stored, now)
        self.frontend.start(now)

    def _join(self, stored: JournalState | None) -> None: ...

    def begin_disk_work(self) -> None:
        """Let the simulated disk begin what the front end has for it."""
        if self.store is not None:
            self.store.begin_work(self.frontend, self._plan_turn)

    def crash(self, is_power_cut: bool = True) -> None:
        """Cut the power, or kill the process, and start it again at once."""
        self.power_off(is_power_cut)
        self.power_on()

    def power_off(self, is_power_cut: bool = True) -> None:
        """Cut the power, or kill the process, until `power_on`. Bytes written to the lines still arrive."""
        self.is_off = True
        for line in list(self.lines):
            if line.is_accepted:
                line.is_accepted = False
                line.shut()
        if self.store is not None:
            self.store.crash(is_power_cut)
        self._wake = None
        self._timer_changes = -1

    def power_on(self) -> None:
        """Start a new run with the content of the disk."""
        self.is_off = False
        self._start()
        self._plan_turn()

    @property
    def digest(self) -> str:
        """Return a hash of every byte that was read and written, with its time and client, and of the ledger."""
        ledger = self.ledger
        totals = (ledger.published, ledger.filtered, ledger.matched, ledger.delivered, ledger.expired, ledger.dropped)
        digest = self._digest.copy()
        digest.update(repr(totals).encode())
        return digest.hexdigest()

    @property
    def is_busy(self) -> bool:
        """Return whether bytes are in transit or wait to be flushed; future timers do not count."""
        if (
            self._turn_planned
            or (self.store is not None and self.store.is_writing)
            or self._has_barriers
            or self.frontend.input_scheduler
        ):
            return True
        return any(line.is_moving for line in self.lines)

    @property
    def _has_barriers(self) -> bool:
        return any(connection.barriers for connection in self.frontend.connections.values())

    def connect(
        self, peer: str, read: Callable[[bytes], None], ended: Callable[[], None], conditions: LineConditions = FAIR
    ) -> ClientLine:
        """Open a line for a client: *read* is called with the broker's bytes, *ended* when the line is closed."""
        line = ClientLine(self, peer, conditions, read, ended)
        self.lines.append(line)
        self._plan_turn()
        return line

    def stop(self) -> None:
        """Disconnect all clients, then close the ledger."""
        self.frontend.stop(self.simulation.now)
        self._flush()
        self.frontend.close_books(self.simulation.now)

    def arrived(self, line: ClientLine, chunk: bytes) -> None:
        """Feed bytes to the broker."""
        if line.is_accepted:
            self._trace(b"<", line, chunk)
            self.frontend.feed(line.connection, chunk, self.simulation.now)
            for verification in self.frontend.verifications():
                self.verifications += 1
                if self.verification_takes:
                    self.simulation.after(self.verification_takes, partial(self._verify, verification))
                else:
                    self._verify(verification)
            self._plan_turn()

    def replace_access(self, access: AccessPolicy) -> int:
        """Replace the access policy; returns the number of disconnected clients."""
        self._access = access
        self._plan_turn()
        return self.frontend.replace_access(access, self.simulation.now)

    def operate(self, order: Callable[[Frontend], object]) -> None:
        """Execute an operator's order."""
        order(self.frontend)
        self._plan_turn()

    def _verify(self, verification: Verification) -> None:
        if self.is_off:
            return
        verdict = verification.run(self.unix_s)
        self.frontend.verified(verification.connection, verdict, self.simulation.now)
        self.frontend.readable.clear()
        self._plan_turn()

    def lost(self, line: ClientLine) -> None:
        """Notify the broker of the end of a line."""
        if line.is_accepted:
            line.is_accepted = False
            self.frontend.closed(line.connection, self.simulation.now)
            self._plan_turn()

    def drained(self, line: ClientLine) -> None:
        """Resume output to a slow reader that has read."""
        if line.connection.paused and line.is_accepted:
            line.connection.paused = False
            self._flush_one(line)
            self._plan_turn()

    def _trace(self, direction: bytes, line: ClientLine, chunk: bytes) -> None:
        self._digest.update(b"%d %d %s %d " % (self.simulation.now, line.connection.number, direction, len(chunk)))
        self._digest.update(chunk)

    def _new_client_id(self) -> str:
        return f"assigned-{self.simulation.random.randrange(1 << 32):08x}"

    def _plan_turn(self) -> None:
        if not self._turn_planned:
            self._turn_planned = True
            self.simulation.after(0, self._turn)

    def _turn(self) -> None:
        self._turn_planned = False
        if self.is_off:
            return
        self._flush()
        timers = self.frontend.node.timers
        is_over = self._wake is not None and self._wake <= self.simulation.now
        if timers.changes == self._timer_changes and not is_over:
            return
        self._timer_changes, due = timers.changes, timers.next_due()
        if due is not None and (self._wake is None or due < self._wake or self._wake <= self.simulation.now):
            self._wake = max(due, self.simulation.now)
            self.simulation.at(due, self._fire)

    def _fire(self) -> None:
        if self.is_off or self._wake != self.simulation.now:  # an earlier deadline replaced this one
            return
        self.frontend.fire(self.simulation.now)
        self.frontend.readable.clear()  # simulated lines never stop reading
        self._plan_turn()

    def _flush(self) -> None:
        dirty = self.frontend.dirty
        paused: list[Connection] = []
        while dirty:  # taking output frees space, which may allow more output
            connection = dirty.pop(0)
            line: ClientLine = connection.transport
            if line.is_accepted:
                self._flush_one(line)
                if connection.paused:
                    paused.append(connection)
        # A paused connection stays dirty: the broker may close it meanwhile.
        dirty.extend(paused)

    def _flush_one(self, line: ClientLine) -> None:
        connection, now = line.connection, self.simulation.now
        if not connection.paused:
            written = b"".join(self.frontend.take_output(connection, now))
            self._trace(b">", line, written)
            if self.watch is not None:
                self.watch(line, written)
            line.to_client.write(written)
            connection.paused = line.to_client.stalled and line.to_client.bytes >= line.conditions.buffer_bytes
        if connection.closing:
            connection.paused = False
            self.lost(line)
            line.shut()
