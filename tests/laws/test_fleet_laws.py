"""Whatever a fleet is made of, and whatever it and its broker suffer: what was acknowledged arrives.

EDGEBROKER_FLEETS=500 pytest -n 0 tests/laws/test_fleet_laws.py
"""

from __future__ import annotations

import os
from random import Random

import pytest

from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgedevices.ledger import MessageLedger
from edgedevices.mischief import Prank
from edgedevices.population import populate
from edgedevices.scenario.scenario import parse_scenario
from edgedevices.simulated import SimulatedWorld
from edgedevices.station import Station
from edgedevices.summary import FAULTS, is_kept, summary_of

FLEETS = int(os.environ.get("EDGEBROKER_FLEETS", "8"))
IDLED = 15
"""Its devices were updated while their radio listened, and asked for turns without end."""
LATEST = 400 * SECOND
"""Lives of 20 s, a minute of radio for the slowest, and the two drains of 60 s: a run that is not over then hangs."""


def drawn(chance: Random, calm: bool = False) -> str:
    """A scenario of one or two fleets, as a file.

    *calm*: nothing in it need fail. No battery, no bad habits, no radio too slow for what is said, and all the time
    there is: where a packet takes 2 s and the connection lives as long, QoS 2 in sessions that do not last has four
    packets to bring through in one of them, and does so in one of ten.
    """
    drain = "1h" if calm else "60s"
    lines = ["[scenario]", 'name = "drawn"', 'seconds = "20s"', f'drain = "{drain}"', "world_speed = 600"]
    lines.append(f'ramp = "{chance.randrange(5_000)}ms"')
    names = ["one", "two"][: chance.randint(1, 2)]
    for name in names:
        lines += ["[[fleet]]", f'name = "{name}"', f"devices = {chance.randint(2, 7)}"]
        lines.append(f'profile = "{chance.choice(["cold-chain", "weather", "vibration"])}"')
        lines.append(f'every = "{chance.choice([200, 1_000, 3_000])}ms"')
        lines.append(f"qos = {chance.choice([[0, 1, 2], [1], [2], [1, 2]])}")
        lines.append(f"mqtt = {chance.choice([['3.1.1'], ['5'], ['3.1.1', '5']])}".replace("'", '"'))
        lines.append(f'session = "{chance.choice(["kept", "kept", "clean"])}"')
        lines.append(f"will = {str(chance.random() < 0.7).lower()}")
        lines.append(f"buffer = {chance.choice([10, 50, 1_000])}")
        lines.append(f'buffer_full = "{chance.choice(["drop-newest", "drop-oldest"])}"')
        lines += [f'radio = "r-{name}"', f"batch = {chance.choice([1, 1, 4])}"]
        if chance.random() < 0.4 and not calm:
            lines.append(f'battery = "b-{name}"')
            lines += ["[[battery]]", f'name = "b-{name}"', "capacity_mah = 100", "charge_percent = [5, 100]"]
        lines += ["[[radio]]", f'name = "r-{name}"', f"always_on = {str(chance.random() < 0.6).lower()}"]
        lines.append(f'latency = ["{chance.randrange(20)}ms", "{chance.choice([20, 300, 2_000])}ms"]')
        if chance.random() < 0.4 and not calm:
            lines += [
                f"bits_per_s = {chance.choice([20_000, 1_000_000])}",
                f"duty_percent = {chance.choice([20, 100])}",
            ]
        if chance.random() < 0.5:
            lines += [
                f'lost_every = "{chance.choice([2, 8])}s"',
                f'outage = ["0s", "{chance.choice([1, 5])}s"]',
            ]
        if chance.random() < 0.3:
            lines += ["[[update]]", f'fleet = "{name}"', f'at = "{chance.randint(3, 15)}s"', "image_bytes = 4000"]
        for prank in [] if calm else chance.sample(list(Prank), chance.randrange(3)):
            lines += ["[[mischief]]", f'fleet = "{name}"', f'kind = "{prank.value}"', "percent = 50"]
            if prank is not Prank.DUPLICATE_ID:
                lines.append(chance.choice(['at = "8s"', 'every = "4s"']))
    return "\n".join(lines) + "\n"


class Watched(SimulatedWorld):
    """A world in which nobody asks for a turn at an instant that has come: it would never let time pass."""

    def _fire(self, station: Station, planned: Instant) -> None:
        super()._fire(station, planned)
        due = station.due
        assert due is None or due > self.simulation.now, f"{station.name} is due at {due}, at {self.simulation.now}"


@pytest.mark.parametrize("seed", sorted({*range(FLEETS), IDLED}))
def test_what_was_acknowledged_arrives_whatever_happens(seed: int) -> None:
    chance = Random(f"fleet/{seed}")
    text = drawn(chance)
    cuts = sorted(chance.randrange(2_000, 22_000) * MILLISECOND for _ in range(chance.randrange(3)))
    ledger = MessageLedger()
    population = populate(parse_scenario(text, f"drawn {seed}"), seed, ledger)
    sky = Watched(population.run, seed, cuts)
    sky.live()
    summary = summary_of(population)
    command = f"EDGEBROKER_FLEETS={seed + 1} pytest -n 0 tests/laws/test_fleet_laws.py -k '[{seed}]'"
    again = f"{command}\n{text}cuts {cuts}\n{summary}"
    assert not any(summary["audit"][fault] for fault in (*FAULTS, "foreign")), again
    assert ledger.open == 0, again
    assert sky.simulation.now < LATEST, again
    assert all(station.is_over and station.is_drained for station in population.run.devices), again


@pytest.mark.parametrize("seed", range(FLEETS // 2))
def test_where_nothing_is_made_to_fail_every_promise_is_kept(seed: int) -> None:
    text = drawn(Random(f"calm/{seed}"), calm=True)
    population = populate(parse_scenario(text, f"drawn {seed}"), seed, MessageLedger())
    Watched(population.run, seed).live()
    summary = summary_of(population)
    command = f"EDGEBROKER_FLEETS={2 * seed + 2} pytest -n 0 tests/laws/test_fleet_laws.py -k 'nothing and [{seed}]'"
    again = f"{command}\n{text}{summary}"
    assert is_kept(summary), again
    audit = summary["audit"]  # of readings; what a device says of its own status is not in it
    assert audit["heard"] >= audit["acknowledged"], again
    assert audit["acknowledged"] or "qos = [0," in text, again
