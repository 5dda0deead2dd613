"""The course of a run, whatever world it is in: gather, run, drain, audit, leave. It ends by itself.

A world wakes stations when they are due and tells them what happens to their connections; several times a second it
calls `tick`, and wakes everybody when that says so.
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
"""Who is not connected for the first time by then, counted from the last boot, will not come."""
GOODBYE: Final = 15 * SECOND
"""For DISCONNECT and the wiping of 3.1.1 sessions; 5,000 devices need four."""


class RunStage(Enum):
    """How far the run is."""

    GATHER = "gather"
    """The control room subscribes, so that nothing is said before somebody listens."""
    RUN = "run"
    DRAIN = "drain"
    """Nothing more is measured; what was said gets its fate."""
    AUDIT = "audit"
    """The control room waits for what was acknowledged."""
    LEAVE = "leave"
    OVER = "over"


class RunConductor(Protocol):
    """Leads a run whose stations do not know themselves what to say, or when it is enough."""

    @property
    def due(self) -> Instant | None:
        """When `wake` is to be called; None: when something happens to a station."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes from it."""
        ...

    def begin(self, now: Instant) -> None:
        """The run begins."""
        ...

    def wake(self, now: Instant) -> Iterable[Station]:
        """Time has passed. Whom the world is to wake."""
        ...


class DeviceRun:
    """Stations with one ledger. *control*: a station that hears everything, for *audit*.

    *stations* of a *conductor* may become more while the run goes on.
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
        self.deaf = ""
        """Why there is no audit though one was asked for: the run ended before it began. Empty: all is well."""
        self.began_at: Instant = 0
        """When the first device could boot."""
        self.ended_at: Instant = 0
        self._drain = drain
        self._ramp = ramp
        self._until: Instant | None = None  # when this stage ends, whatever is still open
        self._is_hurried = False

    @property
    def stations(self) -> list[Station]:
        """Everybody who has a connection."""
        return [*self.devices, *([self.control] if self.control is not None else [])]

    @property
    def never_connected(self) -> int:
        """Devices that the broker never let in; of a run that was interrupted, those that had tried in vain."""
        never = [station.modem for station in self.devices if not station.session.was_up]
        return sum(modem.last_refusal != NO_ATTEMPT for modem in never) if self.interrupted else len(never)

    @property
    def seconds(self) -> float:
        """How long a run took that is over."""
        return round((self.ended_at - self.began_at) / SECOND, 3)

    def begin(self, now: Instant) -> None:
        """Everything begins."""
        self.began_at = now
        self._until = now + FIRST_CONNECTION
        if self.control is not None:
            self.control.begin(now)

    def interrupt(self) -> None:
        """Stop producing, wait for acknowledgements, leave. Said twice: stop waiting too."""
        self._is_hurried = self.interrupted
        self.interrupted = True

    @property
    def due(self) -> Instant | None:
        """When `wake` is to be called; asked after whatever happens."""
        return self.conductor.due if self.conductor is not None and self.stage is RunStage.RUN else None

    def wake(self, now: Instant) -> Iterable[Station]:
        """It is due. Whom the world is to wake."""
        return () if self.conductor is None else self.conductor.wake(now)

    def tick(self, now: Instant) -> bool:
        """Go on to the next stage if its time has come: then everybody is to be woken."""
        before = self.stage
        _STAGES[self.stage](self, now)
        return self.stage is not before

    def _enter(self, stage: RunStage, until: Instant | None, now: Instant) -> None:
        self.stage, self._until = stage, until
        if stage is RunStage.OVER:
            self.ended_at = now

    def _is_late(self, now: Instant) -> bool:
        return self._until is not None and now >= self._until

    def _gather(self, now: Instant) -> None:
        control = self.control
        if self.interrupted or (self._is_late(now) and control is not None):
            self.deaf = "" if control is None or self.interrupted else control.modem.last_refusal
            self._enter(RunStage.OVER, None, now)
        elif control is None or control.session.is_subscribed:
            self.began_at = now
            self._enter(RunStage.RUN, None, now)
            for station in self.devices:
                station.begin(now)
            if self.conductor is not None:
                self.conductor.begin(now)

    def _run(self, now: Instant) -> None:
        late = now >= self.began_at + self._ramp + FIRST_CONNECTION
        led = self.conductor is not None and not self.conductor.has_ended
        if self.interrupted or not (
            led or any(not (one.has_ended or (late and not one.has_begun)) for one in self.devices)
        ):
            for station in self.devices:
                station.stop()
            self._enter(RunStage.DRAIN, now + self._drain, now)

    def _wait(self, now: Instant) -> None:
        """For acknowledgements."""
        if self._is_hurried or self._is_late(now) or all(station.is_drained for station in self.devices):
            self._enter(RunStage.AUDIT, now + self._drain, now)

    def _listen(self, now: Instant) -> None:
        """For what was acknowledged."""
        if self._is_hurried or self._is_late(now) or self.audit is None or not self.audit.missing:
            for station in self.stations:
                station.give_up("not acknowledged in time")
            self._enter(RunStage.LEAVE, now + GOODBYE, now)

    def _leave(self, now: Instant) -> None:
        if self._is_hurried or self._is_late(now) or all(station.is_over for station in self.stations):
            self._enter(RunStage.OVER, None, now)


_STAGES: Final[dict[RunStage, Callable[[DeviceRun, Instant], None]]] = {
    RunStage.GATHER: DeviceRun._gather,
    RunStage.RUN: DeviceRun._run,
    RunStage.DRAIN: DeviceRun._wait,
    RunStage.AUDIT: DeviceRun._listen,
    RunStage.LEAVE: DeviceRun._leave,
    RunStage.OVER: lambda run, now: None,
}
