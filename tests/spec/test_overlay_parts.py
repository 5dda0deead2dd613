"""The parts of routing: topics that meet, digests, what was seen, how loaded links are."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from edgebroker.errors import TopicInvalid
from edgebroker.interest import Interest
from edgebroker.overlay.congestion import LinkStatus, QueueSample
from edgebroker.overlay.duplicate_filter import DuplicateFilter
from edgebroker.overlay.messages import StateKind
from edgebroker.overlay.state_digest import PARTS_MAX, differ, digest_of, of_part, restated
from edgebroker.topicindex import TopicIndex
from edgebroker.topics import TopicFilter


def filters() -> list[TopicFilter]:
    found = []
    for levels in range(1, 4):
        for names in product(("a", "b", "", "$s", "+", "#"), repeat=levels):
            try:
                found.append(TopicFilter.parse("/".join(names)))
            except TopicInvalid:
                continue
    return found


def test_the_index_finds_the_filters_that_overlap(chance: Random) -> None:
    every = filters()
    index: TopicIndex[str] = TopicIndex()
    inside: list[TopicFilter] = []
    for _ in range(400):
        if inside and chance.random() < 0.4:
            gone = inside.pop(chance.randrange(len(inside)))
            index.discard(gone, gone.text)
        new = chance.choice(every)
        if new not in inside:
            index.add(new, new.text)
            inside.append(new)
        asked = chance.choice(every)
        found = list(index.overlapping(asked))
        assert sorted(found) == sorted(one.text for one in inside if one.overlaps(asked)), asked.text
        assert index.overlaps(asked) is bool(found)
    while inside:
        gone = inside.pop()
        index.discard(gone, gone.text)
    assert not index._root.below


def some_interests(chance: Random, count: int) -> list[Interest]:
    return [Interest(TopicFilter.parse(f"t/{number}"), ()) for number in chance.sample(range(100_000), count)]


@pytest.mark.parametrize("count", [0, 1, 7, 100, 10_000])
def test_three_messages_make_two_gateways_agree(count: int, chance: Random) -> None:
    told = some_interests(chance, count)
    held = [one for one in told if chance.random() < 0.99] + some_interests(chance, 3)
    answer = differ(digest_of(StateKind.INTERESTS, 1, told), held)
    assert answer is not None
    assert len(answer.sums) <= PARTS_MAX
    said = list(restated(answer, 1, told))
    assert len(said) <= len(set(told) ^ set(held))
    result = set(held)
    for part in said:
        result -= set(of_part(part, held)) - set(part.interests)
        result |= set(part.interests)
    assert result == set(told)
    assert differ(digest_of(StateKind.INTERESTS, 1, told), list(result)) is None


def test_what_was_seen_is_not_fresh() -> None:
    seen = DuplicateFilter(events=4)
    assert seen.new_clusters(1, 1, 0b011) == 0b011
    assert seen.new_clusters(1, 1, 0b110) == 0b100
    assert seen.new_clusters(1, 1, 0b111) == 0
    assert seen.new_clusters(2, 1, 0b111) == 0b111
    for sequence in range(2, 6):
        assert seen.new_clusters(1, sequence, 1) == 1
    assert seen.new_clusters(1, 1, 0b111) == 0, "at least the last four are remembered"
    for sequence in range(10, 20):
        seen.new_clusters(1, sequence, 1)
    assert seen.new_clusters(1, 1, 0b111) == 0b111, "and no more than twice as many"


@pytest.mark.parametrize(("has_hysteresis", "still"), [(False, False), (True, True)])
def test_a_link_leaves_congestion(has_hysteresis: bool, still: bool) -> None:
    status = LinkStatus(("x", "y"), has_hysteresis=has_hysteresis)
    for link in ("x", "y"):
        status.set_up(link, True)
    congested = []
    for waiting in (10, 11, 6, 5, 6):
        status.measure({"x": QueueSample(0, 0, waiting)})
        congested.append(status.is_congested("x"))
        assert not status.is_congested("y")
    assert congested == [False, True, still, False, False]
    status.set_up("y", False)
    assert status.is_congested("y")
    assert status.load("y") > status.load("x")
    assert status.window == 5
