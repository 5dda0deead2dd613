"""What a device's processor does: it boots, sleeps, measures and is updated, and one day it has no power any more.

The table is all there is to its states; what is absent from it cannot happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edgebroker.instants import MILLISECOND, Duration, Instant


class FirmwareState(Enum):
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


class FirmwareEvent(Enum):
    """What makes it do something else."""

    POWER = "power"
    DUE = "due"
    """A measurement is due."""
    ORDER = "order"
    """Another firmware is to be had."""
    DONE = "done"
    """What it was doing is finished."""
    EMPTIED = "emptied"


NEXT: Final[dict[tuple[FirmwareState, FirmwareEvent], FirmwareState]] = {
    (FirmwareState.OFF, FirmwareEvent.POWER): FirmwareState.BOOT,
    (FirmwareState.BOOT, FirmwareEvent.DONE): FirmwareState.SLEEP,
    (FirmwareState.SLEEP, FirmwareEvent.DUE): FirmwareState.SENSE,
    (FirmwareState.SENSE, FirmwareEvent.DONE): FirmwareState.SLEEP,
    (FirmwareState.SLEEP, FirmwareEvent.ORDER): FirmwareState.UPDATE,
    (FirmwareState.UPDATE, FirmwareEvent.DONE): FirmwareState.BOOT,
    **{
        (state, FirmwareEvent.EMPTIED): FirmwareState.EMPTY
        for state in FirmwareState
        if state not in (FirmwareState.OFF, FirmwareState.EMPTY)
    },
}


@dataclass(frozen=True, slots=True)
class FirmwareTimes:
    """How long things take."""

    boot_us: Duration = 500 * MILLISECOND
    sense_us: Duration = 20 * MILLISECOND


INSTANT: Final = FirmwareTimes(0, 0)
"""For what is no device at all: a file that is replayed."""


class Firmware:
    """The processor of one device. `version` counts updates from 1."""

    def __init__(self, pace: FirmwareTimes) -> None:
        self.state = FirmwareState.OFF
        self.version = 1
        self.until: Instant | None = None
        """When what it is doing is finished; None: it waits for something else."""
        self._pace = pace

    @property
    def runs(self) -> bool:
        """Whether it can talk: it has booted, and is not busy with its own flash."""
        return self.state in (FirmwareState.SLEEP, FirmwareState.SENSE)

    def handle(self, cue: FirmwareEvent, now: Instant, length: Duration = 0) -> FirmwareState:
        """Go on as the table says; *length* is how long an update takes. The state that was left.

        Raises KeyError for what the table does not have.
        """
        before = self.state
        self.state = NEXT[before, cue]
        lengths = {
            FirmwareState.BOOT: self._pace.boot_us,
            FirmwareState.SENSE: self._pace.sense_us,
            FirmwareState.UPDATE: length,
        }
        self.until = now + lengths[self.state] if self.state in lengths else None
        return before
