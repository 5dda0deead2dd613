"""Laws of the retained store: it finds what a list finds, also while it changes under a walk."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from edgebridge.session.retained import RetainedStore
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

LEVELS = st.sampled_from(["", "a", "b", "c", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=6).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=5),
    st.sampled_from([(), ("#",)]),
).filter(bool) | st.just("#")
CHANGES = st.lists(st.tuples(st.booleans(), TOPICS), max_size=40)


def change(store: RetainedStore, held: set[str], retains: bool, topic: str) -> None:
    store.retain(Publication("p", topic, b"x" if retains else b"", 0, True, 0))
    (held.add if retains else held.discard)(topic)


def matches(topic: str, text: str) -> bool:
    """Whether *text*, a topic filter, matches, level by level [MQTT 5.0 section 4.7]."""
    levels, wanted = topic.split("/"), text.split("/")
    if wanted[0] in ("+", "#") and topic.startswith("$"):
        return False
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at == len(levels) or level not in ("+", levels[at]):
            return False
    return len(levels) == len(wanted)


def found(walk: Iterator[Publication | None]) -> list[str]:
    return [publication.topic for publication in walk if publication is not None]


@given(CHANGES, FILTERS)
@settings(max_examples=400)
def test_a_filter_finds_what_it_matches(changes: list[tuple[bool, str]], text: str) -> None:
    store, held = RetainedStore(10_000, 1 << 30), set[str]()
    for retains, topic in changes:
        change(store, held, retains, topic)
    assert sorted(found(store.walk(TopicFilter.parse(text)))) == sorted(one for one in held if matches(one, text))
    assert sorted(store.topics()) == sorted(held)
    assert [topic for topic in held if store.find(topic) is None] == []


@given(CHANGES, FILTERS, st.lists(st.tuples(st.integers(0, 3), st.booleans(), TOPICS), max_size=40))
@settings(max_examples=400)
def test_what_is_there_all_the_time_comes_once_whatever_changes_meanwhile(
    changes: list[tuple[bool, str]], text: str, meanwhile: list[tuple[int, bool, str]]
) -> None:
    store, held = RetainedStore(10_000, 1 << 30), set[str]()
    for retains, topic in changes:
        change(store, held, retains, topic)
    always, ever = set(held), set(held)
    walk, got = store.walk(TopicFilter.parse(text)), list[str]()
    for steps, retains, topic in meanwhile:
        got += found(islice(walk, steps))
        change(store, held, retains, topic)
        always &= held
        ever |= held
    got += found(walk)
    wanted = {topic for topic in always if matches(topic, text)}
    assert [topic for topic in wanted if got.count(topic) != 1] == []
    assert [topic for topic in got if topic not in ever or not matches(topic, text)] == []


@given(st.lists(TOPICS, unique=True, max_size=30), st.randoms(use_true_random=False))
def test_a_cleared_store_is_as_a_new_one(topics: list[str], chance: st.random.Random) -> None:
    store, held = RetainedStore(10_000, 1 << 30), set[str]()
    for topic in topics:
        change(store, held, True, topic)
    chance.shuffle(topics)
    for topic in topics:
        change(store, held, False, topic)
    assert (len(store), store.held_bytes, found(store.walk(TopicFilter.parse("#")))) == (0, 0, [])


def test_a_message_of_many_levels_takes_little_more_than_its_bytes() -> None:
    """With a dictionary for each level, 7,551 such messages of 2 MB ended a gateway of 256 MiB."""
    count = 1_000
    store = RetainedStore(10_000, 1 << 30)
    publications = [Publication("p", f"{number:04}" + "/a" * 125, b"x", 0, True, 0) for number in range(count)]
    tracemalloc.start()
    for publication in publications:
        store.retain(publication)
    octets, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert octets / count <= 3 * len(publications[0].topic)
    shared = [Publication("p", "a/" * 120 + f"{number:04}", b"x", 0, True, 0) for number in range(count)]
    tracemalloc.start()
    for publication in shared:
        store.retain(publication)
    octets, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert octets / count <= 600
