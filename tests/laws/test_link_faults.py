"""The laws of links notice what they are for: each link with one thing made wrong breaks one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .link.faults import FAULTS
from .link.trial import Broken, Trial

HISTORIES = 60
STEPS = 80


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_link_that(fault: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    for number in range(HISTORIES):
        try:
            Trial(seed + number).live(STEPS)
        except Broken as broken:
            print(f"noticed in history {number}: {broken}")
            return
    pytest.fail(f"{HISTORIES} histories notice nothing where a link {fault.__name__.replace('_', ' ')}")
