"""P1, P2, P3, P8: a broker that loses its power again and again, on a disk that tears, keeps what it promised."""

from __future__ import annotations

import pytest

from edgebroker.limits import KIB, MIB
from edgebroker.storage.journal.options import JournalOptions
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer
from edgelab.simworld.workload import Workload

ACTIONS = 150
RUNS = 160
PARTS = 4


def repeat(seed: int, disk_fails: float) -> str:
    return (
        "from edgelab.simworld.workload import Workload; "
        f"Workload({seed}, is_stored=True, disk_fails={disk_fails}).run({ACTIONS}).broken"
    )


@pytest.mark.slow
@pytest.mark.parametrize("disk_fails", [0.0, 0.03], ids=["power", "power-and-disk"])
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_acknowledged_survives(seed: int, part: int, disk_fails: float) -> None:
    starts = failures = snapshots = 0
    for number in range(part, RUNS, PARTS):
        workload = Workload(seed + number, is_stored=True, disk_fails=disk_fails)
        outcome = workload.run(ACTIONS)
        assert not outcome.broken, "\n".join([repeat(outcome.seed, disk_fails), *outcome.broken[:20]])
        journal = workload.broker.frontend.journal.storage
        assert journal is not None
        starts += workload.broker.runs
        failures += journal.failures
        snapshots += journal.replay_from > 1
    assert starts > 3 * RUNS // PARTS, "hardly anything crashed"
    assert snapshots, "no snapshot was ever made"
    assert bool(failures) == bool(disk_fails)


def test_the_same_seed_is_the_same_run(seed: int) -> None:
    first = Workload(seed, is_stored=True, disk_fails=0.03).run(ACTIONS)
    assert first == Workload(seed, is_stored=True, disk_fails=0.03).run(ACTIONS)


def test_many_starts_do_not_fill_the_journal() -> None:
    """Each begins a segment, and hardly anything is written into it."""
    simulation = Simulation()
    options = JournalOptions(segment_bytes=16 * KIB, snapshot_min_bytes=64 * MIB, bytes_max=40 * 16 * KIB)
    player = TranscriptPlayer(SimulatedBroker(simulation, store=SimulatedStore(simulation, options)))
    player.play("alice > CONNECT clean=0 session=3600    alice < CONNACK present=0")
    for _ in range(60):
        player.play("""
        broker crashes                          alice < CLOSED
        alice > CONNECT clean=0 session=3600    alice < CONNACK present=1
        alice > SUBSCRIBE one                   alice < SUBACK granted=0
        alice > SUBSCRIBE two                   alice < SUBACK granted=0
        alice > UNSUBSCRIBE one two             alice < UNSUBACK
        """)
    journal = player.broker.frontend.journal.storage
    assert journal is not None
    assert len(journal.segments.live) <= 14
