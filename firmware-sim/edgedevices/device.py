"""A simulated device: a deterministic state machine that decides what to publish next, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from edgebroker.instants import SECOND, Duration
from edgedevices.message import DeviceMessage, PayloadForm
from edgedevices.profiles import PROFILES, DevicePlace, FleetProfile
from edgedevices.sensors import Streams
from edgedevices.session import DeviceDialect

WORLD_SPEED = 60.0
"""Simulated seconds per second: doors open and bearings warm up within a run of seconds, a day passes in 24 minutes."""


@dataclass(frozen=True, slots=True)
class DeviceHabits:
    """How a device publishes. rate: messages per second. messages_max, duration_us: when it stops (None: never)."""

    rate: float = 1.0
    form: PayloadForm = PayloadForm.JSON
    qos: int = 0
    dialect: DeviceDialect = DeviceDialect.V5
    retain: bool = False
    messages_max: int | None = None
    duration_us: Duration | None = None
    world_speed: float = WORLD_SPEED
    prefix: str = ""
    """Prefix of the device's name and topic, if it is not empty."""


class SimulatedDevice:
    """One device. The same place, habits and seed give the same messages at the same times, byte for byte."""

    patient = False

    def __init__(self, profile: FleetProfile, place: DevicePlace, habits: DeviceHabits, seed: int | str) -> None:
        self.place = place
        self.habits = habits
        own = Streams(f"{seed}/{profile.name}/device/{place.device}")
        shared = Streams(f"{seed}/{profile.name}/group/{place.group}")
        self._timing = own.named("timing")
        self._instrument = profile.instrument(place.group, shared, own)
        self._period_us = SECOND / habits.rate
        # otherwise all devices would publish at the same moments
        self._next_us: Duration = int(self._timing.random() * self._period_us)
        self._seq = 0

    @property
    def name(self) -> str:
        """The device's name, also its MQTT client identifier."""
        prefix = self.habits.prefix
        return f"{prefix}-{self.place.device}" if prefix else self.place.device

    @property
    def topic(self) -> str:
        """The topic that it publishes to."""
        prefix = self.habits.prefix
        return f"{prefix}/{self.place.topic}" if prefix else self.place.topic

    @property
    def due_us(self) -> Duration | None:
        """When the next message is due, from the device's start; None after the last one."""
        if self.habits.messages_max is not None and self._seq >= self.habits.messages_max:
            return None
        if self.habits.duration_us is not None and self._next_us >= self.habits.duration_us:
            return None
        return self._next_us

    def emit(self) -> DeviceMessage:
        """Returns the message that is due, measured at its due time."""
        due_us = self._next_us
        self._next_us += max(1, round(self._period_us * self._timing.uniform(0.9, 1.1)))
        self._seq += 1
        readings = self._instrument.measure(due_us / SECOND * self.habits.world_speed)
        return DeviceMessage(
            device=self.name,
            seq=self._seq,
            topic=self.topic,
            body={"device": self.name, "seq": self._seq, "uptime_s": due_us // 1_000 / 1_000, **readings},
            form=self.habits.form,
            qos=self.habits.qos,
            retain=self.habits.retain,
        )


QOS_MIX = (0.6, 0.3, 0.1)
"""Shares of the devices that publish with QoS 0, 1 and 2 under `mix`."""

T = TypeVar("T")


def deal(count: int, kinds: Sequence[T], shares: Sequence[float], random: Random) -> list[T]:
    """Returns one kind per device: as many of each as its share (largest remainder), in random order.

    Not drawn independently, so that a fleet of ten has a device of every kind whatever the seed.
    """
    exact = [count * share / sum(shares) for share in shares]
    whole = [int(number) for number in exact]
    by_remainder = sorted(range(len(kinds)), key=lambda kind: whole[kind] - exact[kind])
    for kind in by_remainder[: count - sum(whole)]:
        whole[kind] += 1
    hand = [kind for kind, number in zip(kinds, whole, strict=True) for _ in range(number)]
    random.shuffle(hand)
    return hand


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The options of a fleet; several payload forms, QoS levels or dialects are distributed over the devices."""

    profile: str
    devices: int
    seed: int | str
    rate: float = 1.0
    forms: tuple[PayloadForm, ...] = (PayloadForm.JSON,)
    qos: tuple[int, ...] = (0, 1, 2)
    dialects: tuple[DeviceDialect, ...] = (DeviceDialect.V311, DeviceDialect.V5)
    retain: bool = False
    messages_max: int | None = None
    duration_us: Duration | None = None
    world_speed: float = WORLD_SPEED
    prefix: str = ""

    def build(self) -> list[SimulatedDevice]:
        """Returns the devices, in order of their number."""
        profile = PROFILES[self.profile]
        count = self.devices
        streams = Streams(f"{self.seed}/{self.profile}/deal")
        forms = deal(count, self.forms, [1.0] * len(self.forms), streams.named("forms"))
        qos = deal(count, self.qos, [QOS_MIX[level] for level in self.qos], streams.named("qos"))
        dialects = deal(count, self.dialects, [1.0] * len(self.dialects), streams.named("dialects"))
        return [
            SimulatedDevice(
                profile,
                profile.place(index, count),
                DeviceHabits(
                    rate=self.rate,
                    form=forms[index],
                    qos=qos[index],
                    dialect=dialects[index],
                    retain=self.retain,
                    messages_max=self.messages_max,
                    duration_us=self.duration_us,
                    world_speed=self.world_speed,
                    prefix=self.prefix,
                ),
                self.seed,
            )
            for index in range(count)
        ]
