"""The sections of a scenario file, and the kinds of value that settings do not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from edgebroker.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration
from edgebroker.limits import KIB, MIB
from edgebroker.runtime.settings.kinds import (
    Boolean,
    Choice,
    Integer,
    InvalidValue,
    ListOf,
    Text,
    ValueKind,
    string,
    toml_name,
)
from edgebroker.runtime.settings.schema import Conflict, Section, key, missing_keys
from edgedevices.battery import BatteryKind
from edgedevices.firmware import FirmwareTimes
from edgedevices.message import PayloadForm
from edgedevices.mischief import Mischief, Prank
from edgedevices.profiles import PROFILES
from edgedevices.radio import RadioKind
from edgedevices.session import WAITING_MAX, DeviceDialect, QueueDropPolicy

UNITS: Final = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DurationRange:
    """A duration, in microseconds; `least` is 0 where a duration of 0 is allowed."""

    least: Duration = 1
    most: Duration = 366 * DAY

    def read(self, value: object, folder: Path) -> Duration:
        text = string(value, f"write {self}, in quotes")
        found = _SPAN.fullmatch(text)
        length = round(float(found[1]) * UNITS[found[2]]) if found else -1
        if not self.least <= length <= self.most:
            raise InvalidValue(f"is {text!r}", f"write {self}")
        return length

    def __str__(self) -> str:
        return f'a length of {shown(self.least)} to {shown(self.most)}, like "500ms", "10s", "5m", "2h" or "1d"'


@dataclass(frozen=True, slots=True)
class NumberRange:
    """An integer or decimal number, from `least` to `most`, both included."""

    least: float
    most: float

    def read(self, value: object, folder: Path) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidValue(f"is {toml_name(value)}", f"write a number, {self}, without quotes")
        if not self.least <= value <= self.most:
            raise InvalidValue(f"is {value:g}", f"write a number, {self}")
        return float(value)

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class ValueRange:
    """[least, most] of one kind, or one value that is both; a pair in any case."""

    kind: ValueKind

    def read(self, value: object, folder: Path) -> tuple[object, object]:
        ends = value if isinstance(value, list) else [value, value]
        if len(ends) != 2:
            raise InvalidValue(f"has {len(ends)} entries", f"write {self}")
        least, most = (self.kind.read(end, folder) for end in ends)
        if least > most:  # type: ignore[operator]  # both are of one kind
            raise InvalidValue("begins above its end", "write the least first")
        return least, most

    def __str__(self) -> str:
        return f"one value or [least, most], each {self.kind}"


def shown(length: Duration) -> str:
    """Returns a duration in the largest unit of which it is a multiple."""
    for unit, worth in reversed(UNITS.items()):
        if length >= worth and length % worth == 0:
            return f"{length // worth}{unit}"
    return f"{length / MILLISECOND:g}ms"


NAME: Final = Text(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", "1 to 32 letters, digits, '_' or '-'")
DEVICES_MAX: Final = 20_000
"""Of a fleet: beyond, one process on one core is no fleet any more."""
CURRENT: Final = NumberRange(0, 10_000)
PERCENT: Final = NumberRange(0, 100)
WIRED: Final = "wired"
MAINS: Final = "mains"


@dataclass(frozen=True, slots=True)
class ScenarioSection:
    """The run as a whole."""

    name: str = key("", NAME)
    seconds: Duration = key(0, DurationRange(100 * MILLISECOND))
    seed: int = key(1, Integer(0, 2**63 - 1))
    ramp: Duration = key(0, DurationRange(0, 24 * HOUR))
    drain: Duration = key(30 * SECOND, DurationRange(0, HOUR))
    world_speed: float = key(60.0, NumberRange(0.001, 1e6))
    audit: bool = key(True, Boolean())

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return missing_keys(
            given, name="give the scenario a name", seconds='say how long each device lives, like seconds = "60s"'
        )


@dataclass(frozen=True, slots=True)
class FleetSection:
    """Devices of one kind."""

    name: str = key("", NAME)
    devices: int = key(0, Integer(1, DEVICES_MAX))
    profile: str = key("cold-chain", Choice(tuple(PROFILES)))
    every: Duration = key(10 * SECOND, DurationRange(MILLISECOND))
    qos: tuple[int, ...] = key((1,), ListOf(Integer(0, 2), 3))
    mqtt: tuple[str, ...] = key(("3.1.1", "5"), ListOf(Choice(tuple(one.value for one in DeviceDialect)), 2))
    payload: tuple[str, ...] = key(("json",), ListOf(Choice(tuple(one.value for one in PayloadForm)), 2))
    retain: bool = key(False, Boolean())
    will: bool = key(True, Boolean())
    session: str = key("kept", Choice(("kept", "clean")))
    keep_alive: Duration = key(MINUTE, DurationRange(5 * SECOND, 18 * HOUR))
    radio: str = key(WIRED, NAME)
    battery: str = key(MAINS, NAME)
    batch: int = key(1, Integer(1, WAITING_MAX))
    buffer: int = key(WAITING_MAX, Integer(1, 100_000))
    buffer_full: str = key(QueueDropPolicy.NEWEST.value, Choice(tuple(one.value for one in QueueDropPolicy)))
    boot: Duration = key(500 * MILLISECOND, DurationRange(0, HOUR))
    sense: Duration = key(20 * MILLISECOND, DurationRange(0, HOUR))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        yield from missing_keys(given, name="give the fleet a name", devices="say how many there are")
        for name in ("qos", "mqtt", "payload"):
            if not getattr(self, name):
                yield name, "is empty", "name one, or leave the line out"
        if self.batch > self.buffer:
            yield "batch", f"is {self.batch}", f"the buffer holds {self.buffer}: the radio would never be switched on"

    @property
    def pace(self) -> FirmwareTimes:
        return FirmwareTimes(self.boot, self.sense)


@dataclass(frozen=True, slots=True)
class RadioSection:
    """A kind of radio."""

    name: str = key("", NAME)
    always_on: bool = key(True, Boolean())
    latency: tuple[Duration, Duration] = key((0, 0), ValueRange(DurationRange(0, MINUTE)))
    bits_per_s: int | None = key(None, Integer(50, 10**10))
    duty_percent: float = key(100.0, NumberRange(0.1, 100))
    lost_every: Duration | None = key(None, DurationRange(100 * MILLISECOND))
    outage: tuple[Duration, Duration] = key((SECOND, 10 * SECOND), ValueRange(DurationRange(0, 24 * HOUR)))
    listen: Duration = key(SECOND, DurationRange(0, HOUR))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        yield from missing_keys(given, name="give the radio a name")
        if self.name == WIRED:
            yield "name", f'is "{WIRED}"', "this is what a fleet without a radio has; choose another"
        if "outage" in given and self.lost_every is None:
            yield "outage", "does nothing without lost_every", "set lost_every, or leave the line out"
        if "listen" in given and self.always_on:
            yield "listen", "does nothing while always_on", "set always_on = false, or leave the line out"
        if "duty_percent" in given and self.bits_per_s is None:
            yield "duty_percent", "does nothing without bits_per_s", "set bits_per_s: it makes airtime of bytes"

    @property
    def kind(self) -> RadioKind:
        return RadioKind(
            self.always_on,
            self.latency,
            self.bits_per_s,
            self.duty_percent / 100,
            self.lost_every,
            self.outage,
            self.listen,
        )


@dataclass(frozen=True, slots=True)
class BatterySection:
    """A kind of battery, and the currents of the device."""

    name: str = key("", NAME)
    capacity_mah: float = key(0.0, NumberRange(0.0001, 1e6))
    charge_percent: tuple[float, float] = key((100.0, 100.0), ValueRange(PERCENT))
    sleep_ma: float = key(0.01, CURRENT)
    boot_ma: float = key(30.0, CURRENT)
    sense_ma: float = key(5.0, CURRENT)
    listen_ma: float = key(10.0, CURRENT)
    send_ma: float = key(100.0, CURRENT)
    update_ma: float = key(40.0, CURRENT)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        yield from missing_keys(given, name="give the battery a name", capacity_mah="say what it holds when it is new")
        if self.name == MAINS:
            yield "name", f'is "{MAINS}"', "this is what a fleet without a battery has; choose another"

    def kind(self, speed: float) -> BatteryKind:
        """Returns the kind of battery. *speed*: simulated seconds per second."""
        return BatteryKind(
            self.capacity_mah,
            self.sleep_ma,
            self.boot_ma,
            self.sense_ma,
            self.listen_ma,
            self.send_ma,
            self.update_ma,
            speed,
        )


@dataclass(frozen=True, slots=True)
class UpdateSection:
    """A firmware update of a fleet."""

    fleet: str = key("", NAME)
    at: Duration = key(0, DurationRange(0))
    image_bytes: int = key(32 * KIB, Integer(1, MIB - KIB))
    fails_percent: float = key(0.0, PERCENT)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        return missing_keys(given, fleet="name the [[fleet]] that gets it", at='say when, like at = "20s"')


@dataclass(frozen=True, slots=True)
class MischiefSection:
    """A misbehaviour of some devices of a fleet."""

    fleet: str = key("", NAME)
    kind: str = key("", Choice(tuple(one.value for one in Prank)))
    percent: float = key(10.0, PERCENT)
    at: Duration | None = key(None, DurationRange(0))
    every: Duration | None = key(None, DurationRange(MILLISECOND))
    times: int = key(1, Integer(1, 1_000))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        yield from missing_keys(given, fleet="name the [[fleet]] whose habit it is", kind="say what they do")
        if not self.kind:
            return
        timeless = Prank(self.kind) is Prank.DUPLICATE_ID
        if timeless and (moment := given & {"at", "every"}):
            yield min(moment), "does nothing here", "the identifier is wrong all the time; leave the line out"
        if not timeless and len(given & {"at", "every"}) != 1:
            yield "at", "stands together with every, or neither does", 'write at = "20s" (once) or every = "20s"'
        if "times" in given and Prank(self.kind) is not Prank.RECONNECT_STORM:
            yield "times", "does nothing here", f'only "{Prank.RECONNECT_STORM.value}" has a number; leave the line out'

    @property
    def mischief(self) -> Mischief:
        return Mischief(Prank(self.kind), self.at, self.every, self.times)


@dataclass(frozen=True, slots=True)
class _ScenarioFile:
    """The sections that a file may have."""

    scenario: ScenarioSection = field(default_factory=ScenarioSection)
    fleets: tuple[FleetSection, ...] = field(default_factory=lambda: (FleetSection(),), metadata={"section": "fleet"})
    radios: tuple[RadioSection, ...] = field(default_factory=lambda: (RadioSection(),), metadata={"section": "radio"})
    batteries: tuple[BatterySection, ...] = field(
        default_factory=lambda: (BatterySection(),), metadata={"section": "battery"}
    )
    updates: tuple[UpdateSection, ...] = field(
        default_factory=lambda: (UpdateSection(),), metadata={"section": "update"}
    )
    mischiefs: tuple[MischiefSection, ...] = field(
        default_factory=lambda: (MischiefSection(),), metadata={"section": "mischief"}
    )


SECTIONS: Final[Mapping[str, Section]] = {section.name: section for section in map(Section.of, fields(_ScenarioFile))}
"""By the name that a file gives them."""
