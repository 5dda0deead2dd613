"""The overlay is exact: an event comes to every gateway with a client that wants it, to none twice, and goes no way for
nothing. Any tree, any contraction of it at each site, any subscriptions, any order of messages, any congestion.

EDGEBROKER_OVERLAY_EVENTS=1000000 .venv/bin/pytest -n 2 tests/laws/test_overlay_exact.py     as many events as wanted
EDGEBROKER_OVERLAY_CASE=17 .venv/bin/pytest tests/laws/test_overlay_exact.py -k one_case     one case again
"""

from __future__ import annotations

import os
from random import Random

import pytest

from edgebroker.instants import SECOND

from .overlay.trials import Trial

EVENTS = int(os.environ.get("EDGEBROKER_OVERLAY_EVENTS", "6_000"))
SHARDS = 6
EVENTS_PER_CASE = 20


def played(number: int) -> int:
    """Play the case *number*; return its events. Fails with the command that repeats it."""
    chance = Random(number)
    trial = Trial(chance)
    try:
        for _ in range(chance.randrange(8)):
            trial.subscribe()
        for _ in range(EVENTS_PER_CASE):
            for _ in range(chance.choice((0, 1, 1, 2, 6))):
                trial.churn()
                if chance.random() < 0.5:
                    trial.settle()
            trial.settle()
            if chance.random() < 0.1:
                trial.federation.restart(chance.choice(trial.names))
                again(trial)
                trial.settle()
            if trial.federation.options.is_dynamic:
                trial.crowd()
            is_calm = chance.random() < 0.3
            if is_calm:
                trial.federation.advance(2 * SECOND)
            trial.check(is_calm)
    except Exception as error:
        raise AssertionError(
            f"{type(error).__name__}: {error}\nonce more:\n"
            f"EDGEBROKER_OVERLAY_CASE={number} .venv/bin/pytest tests/laws/test_overlay_exact.py -k one_case"
        ) from error
    return EVENTS_PER_CASE


def again(trial: Trial) -> None:
    """Clients of a gateway that forgot everything subscribe anew."""
    for number, (gateway, topic_filter, predicates) in trial.asked.items():
        trial.federation.unsubscribe(gateway, number)
        trial.federation.subscribe(gateway, number, topic_filter.text, predicates)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_event_comes_to_all_who_want_it_and_to_nobody_twice(shard: int, seed: int) -> None:
    number, left = seed * 1_000_000 + shard * 100_000, EVENTS // SHARDS
    assert left > 0
    while left > 0:
        left -= played(number)
        number += 1


if "EDGEBROKER_OVERLAY_CASE" in os.environ:  # what a failure prints, to play it once more

    def test_one_case() -> None:
        played(int(os.environ["EDGEBROKER_OVERLAY_CASE"]))


@pytest.mark.parametrize("number", range(40))
def test_whoever_subscribed_long_ago_gets_events_while_others_come_and_go(number: int, seed: int) -> None:
    print(f"EDGEBROKER_TEST_SEED={seed} .venv/bin/pytest '{__file__}' -k 'long_ago and {number}'")
    chance = Random(seed * 1_000 + number)
    trial = Trial(chance)
    for _ in range(6):
        trial.subscribe()
    trial.settle()
    old = dict(trial.asked)
    for _ in range(10):
        host, topic, value = trial.publish()
        for _ in range(chance.randrange(6)):
            trial.subscribe()
            busy = [pair for pair, messages in trial.federation.links.items() if messages]
            if busy:
                trial.federation.deliver(chance.choice(busy))
        handed = trial.arrive()
        asked, trial.asked = trial.asked, old
        wanting = trial.wanting(topic, value) - {host}
        trial.asked = asked
        assert wanting <= handed.keys()
        assert max(handed.values(), default=1) == 1
