"""The devices of a scenario, built from a seed: same file, same seed and number, same devices to the last byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from edgebroker.instants import SECOND, Duration
from edgedevices.audit import DeliveryAudit
from edgedevices.battery import Battery
from edgedevices.device import FleetPlan, SimulatedDevice, deal
from edgedevices.ledger import MessageLedger
from edgedevices.message import DeviceMessage, PayloadForm
from edgedevices.mischief import Mischief, Prank
from edgedevices.modem import Modem
from edgedevices.radio import RadioKind
from edgedevices.run import DeviceRun
from edgedevices.scenario.scenario import DeviceScenario
from edgedevices.scenario.sections import MAINS, WIRED, FleetSection
from edgedevices.session import DeviceDialect, DeviceIdentity, DeviceSession, QueueDropPolicy
from edgedevices.station import Station, StationParts, image

LEVELS: Final = "/+/+/+"
"""Levels below a fleet's name in the topics of its measurements; a status is one level deeper."""

FIRST_UPDATE: Final = 2
"""The version of the first [[update]] of a file; devices begin with 1."""

CONTROL_PAUSE: Final = SECOND
"""The control room reconnects quickly: messages for it fill its queue in the broker meanwhile."""


class UpdateSource:
    """The messages of the control room: each firmware image at its time."""

    patient = False

    def __init__(self, due: Sequence[tuple[Duration, DeviceMessage]]) -> None:
        self._due = sorted(due, key=lambda item: item[0])

    @property
    def due_us(self) -> Duration | None:
        """See `MessageSource`."""
        return self._due[0][0] if self._due else None

    def emit(self) -> DeviceMessage:
        """See `MessageSource`."""
        return self._due.pop(0)[1]


@dataclass(frozen=True, slots=True)
class FleetPopulation:
    """A run of a scenario before its begin."""

    run: DeviceRun
    fleets: dict[str, list[Station]]


def populate(scenario: DeviceScenario, seed: int, ledger: MessageLedger, limit: int | None = None) -> FleetPopulation:
    """Builds all stations. *limit*: the number of devices of all fleets together, in proportion; None: as in
    the file.
    """
    section = scenario.terms
    audit = DeliveryAudit() if section.audit else None
    counts = _counts(scenario, limit)
    random_source = Random(f"{seed}/{section.name}/boots")
    fleets = {
        fleet.name: _FleetBuilder(scenario, fleet, seed, ledger, audit, random_source).build(counts[fleet.name])
        for fleet in scenario.fleets
    }
    stations = [station for fleet in fleets.values() for station in fleet]
    control = _control(scenario, seed, audit) if audit is not None or scenario.updates else None
    return FleetPopulation(DeviceRun(stations, ledger, section.drain, section.ramp, control, audit), fleets)


def _counts(scenario: DeviceScenario, limit: int | None) -> Counter[str]:
    if limit is None:
        return Counter({fleet.name: fleet.devices for fleet in scenario.fleets})
    shares = [float(fleet.devices) for fleet in scenario.fleets]
    return Counter(deal(limit, [fleet.name for fleet in scenario.fleets], shares, Random(0)))


class _FleetBuilder:
    """Builds the devices of one fleet."""

    def __init__(
        self,
        scenario: DeviceScenario,
        fleet: FleetSection,
        seed: int,
        ledger: MessageLedger,
        audit: DeliveryAudit | None,
        random_source: Random,
    ) -> None:
        self._scenario = scenario
        self._fleet = fleet
        self._seed = f"{seed}/{fleet.name}"
        self._ledger = ledger
        self._audit = audit
        self._random = random_source
        self._update_fails = {
            FIRST_UPDATE + number: update.fails_percent / 100
            for number, update in enumerate(scenario.updates)
            if update.fleet == fleet.name
        }

    def build(self, count: int) -> list[Station]:
        fleet, section = self._fleet, self._scenario.terms
        plan = FleetPlan(
            fleet.profile,
            count,
            self._seed,
            rate=SECOND / fleet.every,
            forms=tuple(map(PayloadForm, fleet.payload)),
            qos=fleet.qos,
            dialects=tuple(map(DeviceDialect, fleet.mqtt)),
            retain=fleet.retain,
            duration_us=section.seconds,
            world_speed=section.world_speed,
            prefix=fleet.name,
        )
        devices = plan.build()
        habits = self._habits(count)
        twins = [any(habit.prank is Prank.DUPLICATE_ID for habit in device_habits) for device_habits in habits]
        return [
            self._station(device, habits[index], devices[index - 1].name if twins[index] else None)
            for index, device in enumerate(devices)
        ]

    def _habits(self, count: int) -> list[list[Mischief]]:
        habits: list[list[Mischief]] = [[] for _ in range(count)]
        for number, section in enumerate(self._scenario.mischiefs):
            if section.fleet == self._fleet.name:
                random_source = Random(f"{self._seed}/mischief/{number}")
                for index in random_source.sample(range(count), round(count * section.percent / 100)):
                    habits[index].append(section.mischief)
        return habits

    def _station(self, device: SimulatedDevice, mischief: list[Mischief], twin: str | None) -> Station:
        fleet, section = self._fleet, self._scenario.terms
        radio = RadioKind() if fleet.radio == WIRED else self._scenario.radios[fleet.radio].kind
        identity = DeviceIdentity(
            device.name,
            device.habits.dialect,
            f"{device.topic}/status" if fleet.will else None,
            client_id=twin,
            lasts=fleet.session == "kept" and twin is None,
            keep_alive_us=fleet.keep_alive,
            subscriptions=((f"{fleet.name}/firmware", 1),) if self._update_fails else (),
        )
        session = DeviceSession(identity, self._ledger, self._audit, fleet.buffer, QueueDropPolicy(fleet.buffer_full))
        parts = StationParts(
            fleet.pace, radio, fleet.batch, starts_online=False, tells=True, update_fails=self._update_fails
        )
        return Station(
            device,
            Modem(session, self._ledger, Random(f"{self._seed}/radio/{device.name}"), radio),
            parts,
            Random(f"{self._seed}/station/{device.name}"),
            self._random.randint(0, section.ramp),
            self._battery(),
            mischief,
        )

    def _battery(self) -> Battery | None:
        if self._fleet.battery == MAINS:
            return None
        section = self._scenario.batteries[self._fleet.battery]
        percent = self._random.uniform(*section.charge_percent)
        return Battery(section.kind(self._scenario.terms.world_speed), section.capacity_mah * percent / 100)


def _control(scenario: DeviceScenario, seed: int, audit: DeliveryAudit | None) -> Station:
    """Returns the control room: it subscribes to all measurements and publishes the images. It has a ledger of
    its own.
    """
    name = f"{scenario.terms.name}-control"
    random_source = Random(f"{seed}/{name}")
    images = [
        (
            update.at,
            replace(
                _image_message(name, update.fleet, number),
                raw=image(FIRST_UPDATE + number, update.image_bytes, random_source),
            ),
        )
        for number, update in enumerate(scenario.updates)
    ]
    subscriptions = tuple((f"{fleet.name}{LEVELS}", 2) for fleet in scenario.fleets) if audit is not None else ()
    ledger = MessageLedger()
    session = DeviceSession(DeviceIdentity(name, DeviceDialect.V5, subscriptions=subscriptions), ledger)
    station = Station(
        UpdateSource(images),
        Modem(session, ledger, random_source, pause_max=CONTROL_PAUSE),
        StationParts(),
        random_source,
    )
    if audit is not None:
        session.publish_handler = audit.record_received
    return station


def _image_message(control: str, fleet: str, number: int) -> DeviceMessage:
    return DeviceMessage(control, number + 1, f"{fleet}/firmware", {}, PayloadForm.JSON, qos=1)
