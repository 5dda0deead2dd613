"""P1 to P4 and P7 over a federation: roads break, gateways lose their power, and what was acknowledged comes once."""

from __future__ import annotations

import pytest

from edgebroker.simworld.scattered import Scattered

ACTIONS = 120
RUNS = 12
SHAPES = (("a", 2), ("a", 3), ("a-b", 2))


def repeat(seed: int, path: str, clusters: int) -> str:
    return (
        "from edgebroker.simworld.scattered import Scattered; "
        f"print(*Scattered({seed}, {path!r}, {clusters}).run({ACTIONS}), sep='\\n')"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("path", "clusters"), SHAPES)
def test_what_was_acknowledged_comes_once_and_in_order(seed: int, path: str, clusters: int) -> None:
    crashes = cuts = heard = 0
    for number in range(RUNS):
        scattered = Scattered(seed + number, path, clusters)
        broken = scattered.run(ACTIONS)
        assert not broken, "\n".join([repeat(seed + number, path, clusters), *broken[:20]])
        crashes += scattered.crashes
        cuts += scattered.cuts
        heard += sum(len(one.heard) for one in scattered.readers)
    assert crashes > RUNS
    assert cuts > RUNS
    assert heard > 100 * RUNS, "hardly anything was heard"
