"""The checkers of the simulated world find what they are for: each is shown a broker with one thing broken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from edgebridge.frontend.delivery import Delivery
from edgebridge.session.outbox import Outbox
from edgebridge.session.session import Session
from edgebroker.node.ledger import Ledger
from edgebroker.node.routes import Route
from edgebroker.node.subscriptions import copies_of
from edgebroker.simworld.workload import Workload

Breaker = Callable[[pytest.MonkeyPatch], None]


def every(times: int, original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
    """*original*, but each so many calls *instead*."""
    calls = count(1)
    return lambda *args: (instead if next(calls) % times == 0 else original)(*args)


def loses_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Delivery, "send", every(20, Delivery.send, lambda *args: None))


def sends_copies_twice(patch: pytest.MonkeyPatch) -> None:
    send = Delivery.send

    def twice(*args: Any) -> None:
        send(*args)
        send(*args)

    patch.setattr(Delivery, "send", every(20, send, twice))


def forgets_qos_2(patch: pytest.MonkeyPatch) -> None:
    class Forgetful(set[int]):
        def __contains__(self, item: object) -> bool:
            return False

    def make(self: Session, *args: Any) -> None:
        original(self, *args)
        self.received = Forgetful()

    original = Session.__init__
    patch.setattr(Session, "__init__", make)


def ignores_filters(patch: pytest.MonkeyPatch) -> None:
    def all_copies(self: Route, _: Any) -> Any:
        numbers = sorted(self.resolution.content_numbers())
        return copies_of(self.plain + [self._by_number[number] for number in numbers])

    patch.setattr(Route, "copies_for", every(5, Route.copies_for, all_copies))


def queues_backwards(patch: pytest.MonkeyPatch) -> None:
    def take_newest(self: Outbox) -> Any:
        self._entries.rotate(1)
        return original(self)

    original = Outbox.take
    patch.setattr(Outbox, "take", take_newest)


def forgets_a_fate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "deliver", every(20, Ledger.deliver, lambda *args: None))


@pytest.mark.parametrize(
    ("breaks", "complaint"),
    [
        (loses_copies, "missed"),
        (sends_copies_twice, "times"),
        (forgets_qos_2, "times"),
        (ignores_filters, "never asked for"),
        (queues_backwards, "after"),
        (forgets_a_fate, "open in the ledger"),
    ],
)
def test_a_broken_broker_is_found_out(
    monkeypatch: pytest.MonkeyPatch, seed: int, breaks: Breaker, complaint: str
) -> None:
    breaks(monkeypatch)
    broken = [line for number in range(20) for line in Workload(seed + number).run(100).broken]
    assert any(complaint in line for line in broken), f"{complaint!r} in none of {broken[:5]}"
