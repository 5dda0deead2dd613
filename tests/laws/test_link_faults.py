"""The laws of links notice what they are for: each link with one thing made wrong breaks one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .link.faults import FAULTS
from .link.trial import Broken, Trial

HISTORIES = 60
STEPS = 80
NOTED = {
    "goes_on_with_half_a_frame_of_an_older_connection": 24,
    "mistakes_another_store_for_the_one_it_knew": 16,
    "believes_what_was_heard_of_another_store": 16,
}
"""Faults that show late: in the history with this number. It comes first, the others after it."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_link_that(fault: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    first = NOTED.get(fault.__name__, 0)
    for number in (*range(first, HISTORIES), *range(first)):
        try:
            Trial(seed + number).live(STEPS)
        except Broken as broken:
            print(f"noticed in history {number}: {broken}")
            return
    pytest.fail(f"{HISTORIES} histories notice nothing where a link {fault.__name__.replace('_', ' ')}")
