"""The stages of a run in any world: gather, run, drain, audit, leave. It ends by itself.

A world wakes stations when they are due and reports the events of their connections; several times a second it calls
`tick`, and wakes all stations when that returns True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, Protocol

from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgedevices.audit import DeliveryAudit
from edgedevices.ledger import MessageLedger
from edgedevices.modem import NO_ATTEMPT
from edgedevices.station import Station

TICK: Final = 200 * MILLISECOND
FIRST_CONNECTION: Final = 30 * SECOND
"""Time for the first connection, counted from the last boot; who has none by then never gets one."""
GOODBYE: Final = 15 * SECOND
"""For DISCONNECT and the deletion of 3.1.1 sessions; 5,000 devices need four."""


class RunStage(Enum):
    """Stages of a run."""

    GATHER = "gather"
    """The control room subscribes, before any device publishes."""
    RUN = "run"
    DRAIN = "drain"
    """No more measurements; messages get their fates."""
    AUDIT = "audit"
    """The control room waits for acknowledged messages."""
    LEAVE = "leave"
    OVER = "over"


class RunConductor(Protocol):
    """Controls a run whose stations decide neither what to publish nor when to stop."""

    @property
    def due(self) -> Instant | None:
        """When to call `wake`; None: only after an event of a station."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it has nothing more to publish."""
        ...

    def begin(self, now: Instant) -> None:
        """Begins the run."""
        ...

    def wake(self, now: Instant) -> Iterable[Station]:
        """Handles its timer. Returns the stations that the world must wake."""
        ...


class DeviceRun:
    """Stations with one ledger. *control*: a station that receives all messages for *audit*.

    The *stations* of a *conductor* may increase during the run.
    """

    def __init__(
        self,
        stations: Sequence[Station],
        ledger: MessageLedger,
        drain: Duration,
        ramp: Duration = 0,
        control: Station | None = None,
        audit: DeliveryAudit | None = None,
        conductor: RunConductor | None = None,
    ) -> None:
        self.devices = stations
        self.ledger = ledger
        self.control = control
        self.audit = audit
        self.conductor = conductor
        self.stage = RunStage.GATHER
        self.interrupted = False
        self.audit_error = ""
        """Why there was no audit although one was configured: the run ended before it began. Empty: there was."""
        self.began_at: Instant = 0
        """When the first device could boot."""
        self.ended_at: Instant = 0
        self._drain = drain
        self._ramp = ramp
        self._deadline: Instant | None = None  # end of this stage, whatever is open then
        self._is_hurried = False

    @property
    def stations(self) -> list[Station]:
        """All stations with a connection."""
        return [*self.devices, *([self.control] if self.control is not None else [])]

    @property
    def never_connected(self) -> int:
        """Devices that the broker never accepted; after an interruption, only those that had tried."""
        modems = [station.modem for station in self.devices if not station.session.was_up]
        return sum(modem.last_refusal != NO_ATTEMPT for modem in modems) if self.interrupted else len(modems)

    @property
    def seconds(self) -> float:
        """Duration of a run that is over."""
        return round((self.ended_at - self.began_at) / SECOND, 3)

    def begin(self, now: Instant) -> None:
        """Begins the run."""
        self.began_at = now
        self._deadline = now + FIRST_CONNECTION
        if self.control is not None:
            self.control.begin(now)

    def interrupt(self) -> None:
        """Stops the devices, waits for acknowledgements, and disconnects. The second call ends the wait, too."""
        self._is_hurried = self.interrupted
        self.interrupted = True

    @property
    def due(self) -> Instant | None:
        """When to call `wake`; to be read after every event."""
        return self.conductor.due if self.conductor is not None and self.stage is RunStage.RUN else None

    def wake(self, now: Instant) -> Iterable[Station]:
        """Handles the conductor's timer. Returns the stations that the world must wake."""
        return () if self.conductor is None else self.conductor.wake(now)

    def tick(self, now: Instant) -> bool:
        """Enters the next stage if its time has come. Returns True then: all stations must be woken."""
        before = self.stage
        _STAGES[self.stage](self, now)
        return self.stage is not before

    def _enter(self, stage: RunStage, deadline: Instant | None, now: Instant) -> None:
        self.stage, self._deadline = stage, deadline
        if stage is RunStage.OVER:
            self.ended_at = now

    def _is_overdue(self, now: Instant) -> bool:
        return self._deadline is not None and now >= self._deadline

    def _gather(self, now: Instant) -> None:
        control = self.control
        if self.interrupted or (self._is_overdue(now) and control is not None):
            self.audit_error = "" if control is None or self.interrupted else control.modem.last_refusal
            self._enter(RunStage.OVER, None, now)
        elif control is None or control.session.is_subscribed:
            self.began_at = now
            self._enter(RunStage.RUN, None, now)
            for station in self.devices:
                station.begin(now)
            if self.conductor is not None:
                self.conductor.begin(now)

    def _run(self, now: Instant) -> None:
        is_late = now >= self.began_at + self._ramp + FIRST_CONNECTION
        is_conducted = self.conductor is not None and not self.conductor.has_ended
        if self.interrupted or not (
            is_conducted
            or any(not (station.has_ended or (is_late and not station.has_begun)) for station in self.devices)
        ):
            for station in self.devices:
                station.stop()
            self._enter(RunStage.DRAIN, now + self._drain, now)

    def _drain_stations(self, now: Instant) -> None:
        """Waits for acknowledgements."""
        if self._is_hurried or self._is_overdue(now) or all(station.is_drained for station in self.devices):
            self._enter(RunStage.AUDIT, now + self._drain, now)

    def _await_audit(self, now: Instant) -> None:
        """Waits until the control room has received everything acknowledged."""
        if self._is_hurried or self._is_overdue(now) or self.audit is None or not self.audit.missing:
            for station in self.stations:
                station.give_up("not acknowledged in time")
            self._enter(RunStage.LEAVE, now + GOODBYE, now)

    def _leave(self, now: Instant) -> None:
        if self._is_hurried or self._is_overdue(now) or all(station.is_over for station in self.stations):
            self._enter(RunStage.OVER, None, now)


_STAGES: Final[dict[RunStage, Callable[[DeviceRun, Instant], None]]] = {
    RunStage.GATHER: DeviceRun._gather,
    RunStage.RUN: DeviceRun._run,
    RunStage.DRAIN: DeviceRun._drain_stations,
    RunStage.AUDIT: DeviceRun._await_audit,
    RunStage.LEAVE: DeviceRun._leave,
    RunStage.OVER: lambda run, now: None,
}
