"""What happens to the lines between devices and their gateway."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from edgebroker.instants import SECOND, Duration

from .fault import Fault
from .world import World


@dataclass(frozen=True, slots=True)
class StalledLine(Fault):
    """A device stops reading for a while."""

    KIND: ClassVar[str] = "stalled-line"
    PLACES: ClassVar[str] = "devices"
    LONGEST: ClassVar[Duration] = 5 * SECOND

    def strike(self, world: World) -> None:
        world.stall(self.where, self.lasts)


@dataclass(frozen=True, slots=True)
class BrokenLine(Fault):
    """The line breaks, mid-packet if need be; the gateway notices at once."""

    KIND: ClassVar[str] = "broken-line"
    PLACES: ClassVar[str] = "devices"

    def strike(self, world: World) -> None:
        world.break_line(self.where)


@dataclass(frozen=True, slots=True)
class ChokedLine(Fault):
    """A device stops reading, and then its line breaks: all that is on its way to it by then is lost."""

    KIND: ClassVar[str] = "choked-line"
    PLACES: ClassVar[str] = "devices"

    def strike(self, world: World) -> None:
        world.stall(self.where, self.lasts + 1)
        world.after(self.lasts, partial(world.break_line, self.where))


@dataclass(frozen=True, slots=True)
class AbandonedLine(Fault):
    """A device restarts and connects anew; the gateway may still think that the old line is there."""

    KIND: ClassVar[str] = "abandoned-line"
    PLACES: ClassVar[str] = "devices"

    def strike(self, world: World) -> None:
        device = world.devices[self.where]
        if not device.home.is_off:
            device.connect()
