"""A battery: what each thing a device does takes out of it, and when it is empty."""

from __future__ import annotations

from dataclasses import dataclass

from edgebroker.instants import HOUR, Duration, Instant


@dataclass(frozen=True, slots=True)
class BatteryKind:
    """What the data sheets say. Currents in mA, on average while the device does that; capacity in mAh.

    speed: simulated seconds per second, so that a run of minutes sees the end of a charge of weeks.
    """

    capacity_mah: float
    sleep_ma: float = 0.01
    boot_ma: float = 30.0
    sense_ma: float = 5.0
    listen_ma: float = 10.0
    """While the radio is on, whatever else happens."""
    send_ma: float = 100.0
    """While bytes leave the antenna."""
    update_ma: float = 40.0
    speed: float = 1.0


class Battery:
    """The charge that is left. Say `draw` whenever the current changes; between two calls it is constant."""

    def __init__(self, kind: BatteryKind, left_mah: float) -> None:
        self.kind = kind
        self._left_mah = left_mah
        self._current_ma = 0.0
        self._since: Instant = 0

    def draw(self, current_ma: float, now: Instant) -> None:
        """From *now* on this much flows."""
        self._left_mah = self.left_mah(now)
        self._current_ma = current_ma
        self._since = now

    def consume(self, current_ma: float, length: Duration) -> None:
        """So much flows besides, for *length*: a transmission."""
        self._left_mah -= self._charge(current_ma, length)

    def left_mah(self, now: Instant) -> float:
        """What is left at *now*; nothing is less than nothing."""
        return max(0.0, self._left_mah - self._charge(self._current_ma, now - self._since))

    @property
    def empty_at(self) -> Instant | None:
        """When it will be empty if nothing changes; None: never."""
        if self._left_mah <= 0.0:
            return self._since
        if self._current_ma <= 0.0:
            return None
        return self._since + 1 + int(self._left_mah * HOUR / (self._current_ma * self.kind.speed))

    def _charge(self, current_ma: float, length: Duration) -> float:
        return current_ma * self.kind.speed * length / HOUR
