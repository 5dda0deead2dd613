"""The state machine of a device's processor: it boots, sleeps, measures, is updated, and in the end has no power.

The transition table is complete: what is absent from it cannot happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edgebroker.instants import MILLISECOND, Duration, Instant


class FirmwareState(Enum):
    """States of the processor."""

    OFF = "off"
    """Not switched on yet."""
    BOOT = "boot"
    SLEEP = "sleep"
    SENSE = "sense"
    UPDATE = "update"
    """Writes another firmware to the flash."""
    EMPTY = "empty"
    """The battery is empty: the device is off for ever."""


class FirmwareEvent(Enum):
    """Events of the processor."""

    POWER = "power"
    DUE = "due"
    """A measurement is due."""
    ORDER = "order"
    """A new firmware image has arrived."""
    DONE = "done"
    """The present activity is complete."""
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
    """Durations of the states."""

    boot_us: Duration = 500 * MILLISECOND
    sense_us: Duration = 20 * MILLISECOND


INSTANT: Final = FirmwareTimes(0, 0)
"""For a file that is replayed, without boot and measurement."""


class Firmware:
    """The processor of one device. `version` counts updates from 1."""

    def __init__(self, times: FirmwareTimes) -> None:
        self.state = FirmwareState.OFF
        self.version = 1
        self.until: Instant | None = None
        """When the present activity ends; None: it waits for an event."""
        self._pace = times

    @property
    def runs(self) -> bool:
        """Whether it can use its radio: it has booted and does not write its flash."""
        return self.state in (FirmwareState.SLEEP, FirmwareState.SENSE)

    def handle(self, event: FirmwareEvent, now: Instant, length: Duration = 0) -> FirmwareState:
        """Makes the transition of the table. *length*: duration of an update. Returns the state before.

        Raises KeyError for transitions that the table does not have.
        """
        before = self.state
        self.state = NEXT[before, event]
        lengths = {
            FirmwareState.BOOT: self._pace.boot_us,
            FirmwareState.SENSE: self._pace.sense_us,
            FirmwareState.UPDATE: length,
        }
        self.until = now + lengths[self.state] if self.state in lengths else None
        return before
