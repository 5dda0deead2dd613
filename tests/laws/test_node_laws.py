"""The node is what a list of subscriptions would be: the same readers, the same counts, whatever came and went."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from edgebroker.filters import Filter
from edgebroker.names import ClientId
from edgebroker.node import node as node_module
from edgebroker.node.events import ClientRemoval, SubscribeRequest, UnsubscribeRequest
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import TIDY_AT_ONCE, Node
from edgebroker.node.timers import TIDY
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

STEPS = 1_500
CLIENTS = [ClientId(name) for name in "abc"]
TOPIC_FILTERS = ["t/a", "t/+", "#", "t/#", "u"]
TOPICS = ["t/a", "t/b", "u", "v"]
WHERES = [
    None,
    "x > 2",
    "x BETWEEN 1 AND 3",
    "y = 'k'",
    "x = 1 OR y = 'k'",
    "x IS NULL OR x IS NOT NULL",
    "x > 3 AND x < 2",
]


@dataclass
class Wish:
    """One subscription of the model, with its counts."""

    client: str
    text: str
    topic_filter: TopicFilter
    filter: Filter | None
    qos: int
    no_local: bool
    evaluated: int = 0
    matched: int = 0


class SelectivityLog:
    """Takes the place of a delivery log; adds up what it is told of selectivity, by instant."""

    sample_qos0 = 1

    def __init__(self) -> None:
        self.told: Counter[tuple[int, str, str, str]] = Counter()

    def selectivity(self, now: int, subscriber: str, text: str, evaluated: int, matched: int) -> None:
        self.told[now, subscriber, text, "evaluated"] += evaluated
        self.told[now, subscriber, text, "matched"] += matched

    def published(self, *fields: Any) -> None:
        """Not looked at here."""

    filtered = published


class Pair:
    """A node and the list that it must agree with."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 0
        self.log = SelectivityLog()
        self.node = Node(Ledger(self.log))  # type: ignore[arg-type]
        self.wishes: dict[tuple[str, str], Wish] = {}
        self.counts: Counter[tuple[int, str, str, str]] = Counter()

    def subscribe(self, client: ClientId) -> None:
        where = self.chance.choice(WHERES)
        topic_filter = TopicFilter.parse(self.chance.choice(TOPIC_FILTERS))
        text = f"{where} {self.chance.randrange(40)} {topic_filter.text}"
        wanted = Filter.parse(where) if where else None
        qos, no_local = self.chance.randrange(3), self.chance.random() < 0.2
        self.node.handle(SubscribeRequest(client, text, topic_filter, wanted, qos, no_local, receiver=client), self.now)
        self.end(client, text)
        self.wishes[client, text] = Wish(client, text, topic_filter, wanted, qos, no_local)

    def end(self, client: str, text: str) -> None:
        spec = self.wishes.pop((client, text), None)
        if spec is not None:
            self.count(spec, self.now)

    def count(self, spec: Wish, now: int) -> None:
        self.counts[now, spec.client, spec.text, "evaluated"] += spec.evaluated
        self.counts[now, spec.client, spec.text, "matched"] += spec.matched
        spec.evaluated = spec.matched = 0

    def unsubscribe(self, client: ClientId) -> None:
        own = [text for owner, text in self.wishes if owner == client]
        text = self.chance.choice([*own, "nothing"])
        ended = self.node.handle(UnsubscribeRequest(client, text), self.now)
        assert bool(ended) is (text in own)
        self.end(client, text)

    def part(self, client: ClientId) -> None:
        self.node.handle(ClientRemoval(client), self.now)
        for owner, text in list(self.wishes):
            if owner == client:
                self.end(owner, text)

    def publish(self) -> None:
        topic, publisher = self.chance.choice(TOPICS), self.chance.choice(CLIENTS)
        values: dict[str, Any] = {"x": self.chance.choice([1, 2, 2.5, 3, None, "k"]), "y": self.chance.choice(["k", 1])}
        payload = json.dumps({name: value for name, value in values.items() if self.chance.random() < 0.8})
        publication = Publication(publisher, topic, payload.encode(), 2, False, 0)
        expected: dict[str, list[Wish]] = {}
        attributes = json.loads(payload)
        for spec in self.wishes.values():
            if not spec.topic_filter.matches(topic):
                continue
            spec.evaluated += 1
            if spec.filter is not None and not spec.filter.accepts(attributes):
                continue
            spec.matched += 1
            if not (spec.no_local and spec.client == publisher):
                expected.setdefault(spec.client, []).append(spec)
        copies = self.node.routes.route(topic).accept(publication, self.node.ledger, 0)
        found = {copy.receiver: copy for copy in copies}
        assert len(found) == len(copies)
        assert found.keys() == expected.keys()
        for client, copy in found.items():
            assert {each.text for each in copy.subscriptions} == {spec.text for spec in expected[client]}
            assert copy.qos == max(spec.qos for spec in expected[client])

    def close_minute(self) -> None:
        self.close(self.node.close_minute)

    def close_books(self) -> None:
        self.close(self.node.close_books)

    def close(self, how: Callable[[int], None]) -> None:
        how(self.now)
        for spec in self.wishes.values():
            self.count(spec, self.now)
        self.now += 1

    def tidy(self) -> bool:
        """Let the timer ring, if it is set."""
        is_set = self.node.timers.take_next(self.now + 1) == TIDY
        if is_set:
            self.node.tidy(self.now)
        return is_set


@pytest.mark.parametrize("counts_at_once", [7, node_module.COUNTS_AT_ONCE])
def test_readers_and_counts_are_those_of_a_list(
    chance: random.Random, monkeypatch: pytest.MonkeyPatch, counts_at_once: int
) -> None:
    """The counts are told as of the minute to which they belong, although they are written later."""
    monkeypatch.setattr(node_module, "COUNTS_AT_ONCE", counts_at_once)
    pair = Pair(chance)
    piled = 0
    for _ in range(STEPS):
        client = chance.choice(CLIENTS)
        match chance.choices(["many", "one", "out", "gone", "publish", "tidy", "minute"], [1, 6, 3, 1, 12, 2, 1])[0]:
            case "many":
                for _ in range(TIDY_AT_ONCE):
                    pair.subscribe(client)
            case "one":
                pair.subscribe(client)
            case "out":
                pair.unsubscribe(client)
            case "gone":
                pair.part(client)
            case "publish":
                pair.publish()
            case "tidy":
                pair.tidy()
            case "minute":
                pair.close_minute()
        piled = max(piled, len(pair.node.subscriptions) - len(pair.wishes))
    assert piled > TIDY_AT_ONCE, "clients left more behind than is taken out at once"
    pair.close_books()
    assert +pair.log.told == +pair.counts
    for client in CLIENTS:
        pair.part(client)
    while pair.tidy():
        pass
    assert len(pair.node.tree) == len(pair.node.subscriptions) == 0
    assert +pair.log.told == +pair.counts
