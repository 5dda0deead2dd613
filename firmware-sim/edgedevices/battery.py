"""A battery: the charge that each activity of a device takes, and when the battery is empty."""

from __future__ import annotations

from dataclasses import dataclass

from edgebroker.instants import HOUR, Duration, Instant


@dataclass(frozen=True, slots=True)
class BatteryKind:
    """Figures of data sheets. Currents in mA, averaged over the activity; capacity in mAh.

    speed: simulated seconds per second, so that a run of minutes covers a charge of weeks.
    """

    capacity_mah: float
    sleep_ma: float = 0.01
    boot_ma: float = 30.0
    sense_ma: float = 5.0
    listen_ma: float = 10.0
    """While the radio is on, in addition to the others."""
    send_ma: float = 100.0
    """While bytes are transmitted."""
    update_ma: float = 40.0
    speed: float = 1.0


class Battery:
    """The charge that is left. Call `draw` whenever the current changes; between two calls it is constant."""

    def __init__(self, kind: BatteryKind, left_mah: float) -> None:
        self.kind = kind
        self._left_mah = left_mah
        self._current_ma = 0.0
        self._since: Instant = 0

    def draw(self, current_ma: float, now: Instant) -> None:
        """Sets the current from *now* on."""
        self._left_mah = self.left_mah(now)
        self._current_ma = current_ma
        self._since = now

    def consume(self, current_ma: float, length: Duration) -> None:
        """Takes the charge of an additional current for *length*: a transmission."""
        self._left_mah -= self._charge(current_ma, length)

    def left_mah(self, now: Instant) -> float:
        """Returns the charge left at *now*, at least 0."""
        return max(0.0, self._left_mah - self._charge(self._current_ma, now - self._since))

    @property
    def empty_at(self) -> Instant | None:
        """When the battery is empty at the present current; None: never."""
        if self._left_mah <= 0.0:
            return self._since
        if self._current_ma <= 0.0:
            return None
        return self._since + 1 + int(self._left_mah * HOUR / (self._current_ma * self.kind.speed))

    def _charge(self, current_ma: float, length: Duration) -> float:
        return current_ma * self.kind.speed * length / HOUR
