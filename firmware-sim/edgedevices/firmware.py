"""What a device's processor does: it boots, sleeps, measures and is updated, and one day it has no power any more.

The table is all there is to its states; what is absent from it cannot happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edgebroker.instants import MILLISECOND, Duration, Instant


class State(Enum):
    """What the processor is doing."""

    OFF = "off"
    """Not switched on yet."""
    BOOT = "boot"
    SLEEP = "sleep"
    SENSE = "sense"
    UPDATE = "update"
    """It writes another firmware to its flash."""
    EMPTY = "empty"
    """The battery is: the device is gone."""


class Cue(Enum):
    """What makes it do something else."""

    POWER = "power"
    DUE = "due"
    """A measurement is due."""
    ORDER = "order"
    """Another firmware is to be had."""
    DONE = "done"
    """What it was doing is finished."""
    EMPTIED = "emptied"


NEXT: Final[dict[tuple[State, Cue], State]] = {
    (State.OFF, Cue.POWER): State.BOOT,
    (State.BOOT, Cue.DONE): State.SLEEP,
    (State.SLEEP, Cue.DUE): State.SENSE,
    (State.SENSE, Cue.DONE): State.SLEEP,
    (State.SLEEP, Cue.ORDER): State.UPDATE,
    (State.UPDATE, Cue.DONE): State.BOOT,
    **{(state, Cue.EMPTIED): State.EMPTY for state in State if state not in (State.OFF, State.EMPTY)},
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take."""

    boot_us: Duration = 500 * MILLISECOND
    sense_us: Duration = 20 * MILLISECOND


INSTANT: Final = Pace(0, 0)
"""For what is no device at all: a file that is replayed."""


class Firmware:
    """The processor of one device. `version` counts updates from 1."""

    def __init__(self, pace: Pace) -> None:
        self.state = State.OFF
        self.version = 1
        self.until: Instant | None = None
        """When what it is doing is finished; None: it waits for something else."""
        self._pace = pace

    @property
    def runs(self) -> bool:
        """Whether it can talk: it has booted, and is not busy with its own flash."""
        return self.state in (State.SLEEP, State.SENSE)

    def feed(self, cue: Cue, now: Instant, length: Duration = 0) -> State:
        """Go on as the table says; *length* is how long an update takes. The state that was left.

        Raises KeyError for what the table does not have.
        """
        before = self.state
        self.state = NEXT[before, cue]
        lengths = {State.BOOT: self._pace.boot_us, State.SENSE: self._pace.sense_us, State.UPDATE: length}
        self.until = now + lengths[self.state] if self.state in lengths else None
        return before
