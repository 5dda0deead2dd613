"""Kinds of fleets: their devices, topics and measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from edgedevices.message import Body
from edgedevices.sensors import DAY_S, HOUR_S, MINUTE_S, Episodes, RandomWalk, RoundTrip, Streams, ThermalLag, day_cycle

START_OF_DAY_S = 8 * HOUR_S  # every run starts at eight in the morning of simulated time


class Instrument(Protocol):
    """The sensors of one device."""

    def measure(self, t_s: float) -> Body:
        """Returns the readings at *t_s* seconds of simulated time since the start, which never decreases."""
        ...


class ColdBox:
    """A cooled box in a truck: 4 degrees while the truck's door is shut, up to the outside temperature while it is
    open.
    """

    def __init__(self, group: str, truck: Streams, own: Streams) -> None:
        traits = own.named("traits")
        self._tour = RoundTrip(truck.named("tour"))
        self._door = Episodes(truck.named("door"), gap_s=12 * MINUTE_S, length_s=3 * MINUTE_S)
        self._set_point_c = traits.uniform(3.0, 5.0)
        self._air = ThermalLag(self._set_point_c + traits.uniform(-0.5, 0.5))
        self._humidity = RandomWalk(own.named("humidity"), traits.uniform(45.0, 70.0), 4.0, 20 * MINUTE_S)
        self._damp = ThermalLag(0.0)
        self._phase = traits.uniform(0, 2 * math.pi)
        self._battery_percent = traits.uniform(55.0, 100.0)
        self._noise = own.named("noise")

    def measure(self, t_s: float) -> Body:
        """See `Instrument`."""
        door_open = self._door.at(t_s)
        outside_c = 17.0 + 6.0 * day_cycle(START_OF_DAY_S + t_s)
        compressor_c = 0.4 * math.sin(2 * math.pi * t_s / (8 * MINUTE_S) + self._phase)
        air_c = self._air.towards(outside_c if door_open else self._set_point_c, 5 * MINUTE_S, t_s)
        damp = self._damp.towards(14.0 if door_open else 0.0, 4 * MINUTE_S, t_s)
        latitude, longitude = self._tour.at(t_s)
        return {
            "temperature": round(air_c + compressor_c + self._noise.gauss(0.0, 0.05), 2),
            "humidity": round(_between(0.0, self._humidity.at(t_s) + damp, 100.0), 1),
            "door_open": door_open,
            "battery": round(max(0.0, self._battery_percent - t_s / DAY_S * 1.5), 1),
            "pos": {"lat": round(latitude, 5), "lon": round(longitude, 5)},
        }


class WeatherStation:
    """A weather station. Stations of a site have the same storms."""

    def __init__(self, group: str, site: Streams, own: Streams) -> None:
        self._site = group
        self._storm = Episodes(site.named("storm"), gap_s=5 * HOUR_S, length_s=40 * MINUTE_S)
        self._front_hpa = RandomWalk(site.named("front"), 1013.0, 7.0, 18 * HOUR_S)
        self._strength = ThermalLag(0.0)
        self._local_c = RandomWalk(own.named("air"), 11.0, 1.5, 2 * HOUR_S)
        self._wind = RandomWalk(own.named("wind"), 3.5, 1.5, 10 * MINUTE_S)
        self._noise = own.named("noise")

    def measure(self, t_s: float) -> Body:
        """See `Instrument`."""
        storm = self._strength.towards(1.0 if self._storm.at(t_s) else 0.0, 8 * MINUTE_S, t_s)
        temperature_c = self._local_c.at(t_s) + 6.0 * day_cycle(START_OF_DAY_S + t_s) - 5.0 * storm
        humidity = 68.0 - 2.2 * (temperature_c - 11.0) + 25.0 * storm + self._noise.gauss(0.0, 0.6)
        wind_m_s = max(0.0, self._wind.at(t_s)) + storm * (11.0 + self._noise.gauss(0.0, 2.5))
        rain_mm_h = storm * self._noise.gammavariate(2.0, 4.0) if storm > 0.05 else 0.0
        return {
            "site": self._site,
            "temperature": round(temperature_c + self._noise.gauss(0.0, 0.05), 2),
            "humidity": round(_between(5.0, humidity, 100.0), 1),
            "wind": round(max(0.0, wind_m_s), 1),
            "rain": round(rain_mm_h, 1),
            "pressure": round(self._front_hpa.at(t_s) - 9.0 * storm + self._noise.gauss(0.0, 0.05), 2),
        }


class Motor:
    """A motor of a production line: vibration in mm/s; worn bearings vibrate more and run hotter.

    The line stops now and then. One motor in five is near the end of its life.
    """

    def __init__(self, group: str, line: Streams, own: Streams) -> None:
        traits = own.named("traits")
        self._standstill = Episodes(line.named("standstill"), gap_s=40 * MINUTE_S, length_s=4 * MINUTE_S)
        self._load = RandomWalk(line.named("load"), 0.7, 0.12, 15 * MINUTE_S)
        self._rpm = RandomWalk(own.named("rpm"), 1_480.0, 5.0, MINUTE_S)
        self._wear = traits.uniform(0.6, 0.9) if traits.random() < 0.2 else traits.uniform(0.05, 0.4)
        self._life_s = traits.uniform(4, 10) * DAY_S
        self._bearing = ThermalLag(45.0 + 25.0 * self._wear)
        self._axes = (1.0, traits.uniform(0.6, 0.9), traits.uniform(0.3, 0.6))
        self._noise = own.named("noise")

    def measure(self, t_s: float) -> Body:
        """See `Instrument`."""
        wear = min(1.5, self._wear + t_s / self._life_s)
        load = _between(0.2, self._load.at(t_s), 1.1)
        running = not self._standstill.at(t_s)
        rpm = self._rpm.at(t_s) - 30.0 * load if running else 0.0
        strength = (0.6 + 1.2 * load + 3.5 * wear**2) if running else 0.03
        axes = [strength * share * self._noise.uniform(0.95, 1.05) for share in self._axes]
        rms = math.hypot(*axes) / math.sqrt(3)
        crest = 2.8 + (4.0 * wear * self._noise.betavariate(2, 3) if running else 0.0)  # spalls add short knocks
        bearing_c = self._bearing.towards(22.0 + (20.0 * load + 38.0 * wear if running else 0.0), 12 * MINUTE_S, t_s)
        return {
            "rms": round(rms, 3),
            "peak": round(rms * crest, 3),
            "crest": round(crest, 2),
            "rpm": round(rpm),
            "bearing_c": round(bearing_c + self._noise.gauss(0.0, 0.1), 1),
            "axes": [round(axis, 3) for axis in axes],
        }


def _between(low: float, value: float, high: float) -> float:
    return min(max(low, value), high)


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """The place of the device number `index` of a fleet."""

    group: str
    device: str
    topic: str


@dataclass(frozen=True, slots=True)
class FleetProfile:
    """A kind of fleet. `instrument(group, the group's streams, its own streams)` makes one device's sensors."""

    name: str
    instrument: Callable[[str, Streams, Streams], Instrument]
    place: Callable[[int, int], DevicePlace]
    """Of (index from 0, number of devices)."""


GROUPS_MIN = 4  # a small fleet, too, has four trucks or lines, so that filters on level 2 have a choice
GROUP_SIZE = 10


def _groups(count: int) -> int:
    return min(count, max(GROUPS_MIN, -(-count // GROUP_SIZE)))


def _cold_chain_place(index: int, count: int) -> DevicePlace:
    unit, truck = divmod(index, _groups(count))
    group, member = f"truck-{truck + 1}", f"unit-{unit + 1:02d}"
    return DevicePlace(group, f"{group}-{member}", f"cold-chain/{group}/{member}")


SITES = ("north", "east", "south", "west")


def _weather_place(index: int, count: int) -> DevicePlace:
    station = f"station-{index + 1}"
    return DevicePlace(SITES[index % len(SITES)], station, f"weather/{station}/observation")


def _vibration_place(index: int, count: int) -> DevicePlace:
    motor, line = divmod(index, _groups(count))
    group, member = f"line-{line + 1}", f"motor-{motor + 1}"
    return DevicePlace(group, f"{group}-{member}", f"vibration/{group}/{member}")


PROFILES: Final[dict[str, FleetProfile]] = {
    profile.name: profile
    for profile in (
        FleetProfile("cold-chain", ColdBox, _cold_chain_place),
        FleetProfile("weather", WeatherStation, _weather_place),
        FleetProfile("vibration", Motor, _vibration_place),
    )
}
