"""What a broker knows when nothing moves is what recovery says of its disk, whatever was said and whenever it crashed.

EDGEBROKER_RECOVERY_WORLDS=400 .venv/bin/pytest tests/laws/test_recovery_laws.py      as many as wanted
"""

from __future__ import annotations

import os
from typing import Any

from edgebridge.frontend.frontend import Frontend
from edgebridge.session.journal.state import JournalState
from edgebroker.instants import MILLISECOND
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.recovery import recover_rows
from edgelab.simworld.disk import Disk

from .journal.conversation import Conversation, known

WORLDS = int(os.environ.get("EDGEBROKER_RECOVERY_WORLDS", "15"))
STEPS = 300
HERE = "tests/laws/test_recovery_laws.py"


def recovered(world: Conversation, disk: Disk) -> dict[tuple[str, str], Any]:
    """What a broker would know that began now with *disk*."""
    stored = JournalState()
    found = recover_rows(disk, stored.apply_row)
    stored.finish()
    assert stored.invalid == 0
    assert found is None or not found.damage
    journal = Journal(b"sixteen bytes..." if found is None else found.store)
    journal.pages.found = disk.page_sizes()
    frontend = Frontend(Node(Ledger()), world.frontend_options, lambda: "", journal=journal)
    frontend.journal.clock_offset = world.broker.frontend.journal.clock_offset
    frontend.recovery.restore(stored, world.simulation.now)
    assert not journal.pages.damage
    return known(frontend, world.simulation.now, disk)


def differing(world: Conversation) -> list[tuple[Any, Any, Any]]:
    """What recovery gets wrong, with what is right and what it says."""
    chance, now = world.chance, world.simulation.now
    before = known(world.broker.frontend, now, world.store.disk)
    disk = world.store.disk.killed() if chance.random() < 0.5 else world.store.disk.crash()
    after = recovered(world, disk)
    for key, said in before.items():
        if key[0] == "session" and said["gone at"] is None and key in after:  # who was there is gone since now
            after[key]["gone at"] = None
    return [(key, before.get(key), after.get(key)) for key in {**before, **after} if before.get(key) != after.get(key)]


def check(world: Conversation, what: str) -> None:
    """Nothing is said for a while. What happens by itself meanwhile may be a tenth of a second ahead of the disk."""
    for _ in range(4):
        world.wait(230 * MILLISECOND)
        wrong = differing(world)
        if not wrong:
            return
    lines = [f"{key}\n  before {before}\n  after  {after}" for key, before, after in wrong]
    raise AssertionError("\n".join([what, *lines]))


def test_recovery_says_what_the_broker_knew(seed: int) -> None:
    snapshots = pages = 0
    for number in range(seed, seed + WORLDS):
        world = Conversation(number)
        chance = world.chance
        for step in range(STEPS):
            world.wait(chance.choice((0, 0, 100, 1_000, 20_000, 300_000)))
            world.act()
            lot = chance.random()
            if lot < 0.02:
                check(world, f"EDGEBROKER_TEST_SEED={number} .venv/bin/pytest {HERE}: step {step}")
            elif lot < 0.04:
                world.state_again()
                snapshots += 1
            elif lot < 0.045:
                world.broker.crash(is_power_cut=chance.random() < 0.5)
                check(world, f"EDGEBROKER_TEST_SEED={number} .venv/bin/pytest {HERE}: step {step}, after a crash")
            elif lot < 0.065:
                world.operate()
        pages += world.broker.frontend.pager.last_page
    assert snapshots > WORLDS
    assert pages > WORLDS
