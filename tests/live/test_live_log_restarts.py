"""What a report concludes from the logs of a gateway that is stopped and killed while messages wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from edgeanalytics.summary import Summary, summarise
from tests.support import plain_figures as reference

from .conftest import PATIENCE_S, V5, Gateway, Guest

pytestmark = pytest.mark.live
MESSAGES = 101


def concluded(folder: Path) -> Summary:
    return summarise(reference.figures(reference.read(folder)))


@pytest.mark.parametrize("is_killed", [False, True])
def test_messages_that_wait_over_two_restarts_are_counted_once(
    start_gateway: Callable[..., Gateway], tmp_path: Path, is_killed: bool
) -> None:
    options = ("--data", str(tmp_path / "data"), "--log-dir", str(tmp_path / "log"))
    first = start_gateway(*options)
    sleeper = Guest(first.port, V5, "sleeper", keep=True)
    sleeper.connect()
    sleeper.subscribe("t/#", 1)
    sleeper.leave()
    writer = Guest(first.port, V5, "writer")
    writer.connect()
    for number in range(MESSAGES):
        writer.publish("t/1", str(number).encode(), 1)
    writer.leave()
    first.stop()
    second = start_gateway(*options)
    if is_killed:
        second.process.kill()
        second.process.communicate(timeout=PATIENCE_S)
    else:
        second.stop()
    if not is_killed:
        waiting = concluded(tmp_path / "log")
        assert (waiting.published, waiting.copies, waiting.queued) == (MESSAGES, MESSAGES, MESSAGES)
    third = start_gateway(*options)
    sleeper = Guest(third.port, V5, "sleeper", keep=True)
    assert sleeper.connect()
    for _ in range(MESSAGES):
        sleeper.next()
    sleeper.leave()
    third.stop()
    summary = concluded(tmp_path / "log")
    assert (summary.published, summary.copies, summary.delivered) == (MESSAGES, MESSAGES, MESSAGES)
    assert (summary.queued, summary.lost, summary.duplicated, summary.open) == (0, 0, 0, 0)
