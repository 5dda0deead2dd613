"""The loop of the devices' real sockets: whoever is due again at once, the others have their turn."""

from __future__ import annotations

from typing import Any

import pytest

from edgebroker.instants import Instant
from edgedevices.run import RunStage
from edgedevices.sockets import SocketWorld

PATIENCE = 100  # turns of one station while nobody looks at the sockets


class Restless:
    """A station that is due at once, always."""

    name = "restless"

    def __init__(self) -> None:
        self.due: Instant = 0
        self.turns = 0

    def wake(self, now: Instant) -> None:
        self.turns += 1
        assert self.turns < PATIENCE, "nobody looked at sockets or signals between the turns"

    def take_orders(self) -> list[Any]:
        return []


class Course:
    """A run that is over at its third tick."""

    def __init__(self) -> None:
        self.stations = [Restless()]
        self.stage = RunStage.RUN
        self.ticks = 0

    def begin(self, now: Instant) -> None:
        """It has begun."""

    due = None

    def interrupt(self) -> None:
        """Nobody does."""

    def tick(self, now: Instant) -> bool:
        self.ticks += 1
        self.stage = RunStage.OVER if self.ticks == 3 else RunStage.RUN
        return False


def test_who_is_due_again_at_once_waits_for_the_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedevices.sockets.TICK", 0)
    course: Any = Course()
    SocketWorld(course, lambda station: course, lambda seconds: None).live()
    assert course.ticks == 3
    assert course.stations[0].turns == 1 + 3
