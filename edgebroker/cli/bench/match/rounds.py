"""The timed rounds: every event once per round and question, each call by itself.

As in the broker, what a topic means is looked up in a table and resolved when the topic is seen for the first time. The
table is empty at the beginning of each round, and starts anew when it holds ROUTES_MAX topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TypeAlias

from edgebroker.event import Attributes
from edgebroker.filters import Extractor
from edgebroker.limits import ROUTES_MAX
from edgebroker.matching.ends import Resolution
from edgebroker.matching.pst import Pst

from .durations import Durations

PreparedEvent: TypeAlias = tuple[str, bytes, Attributes]
"""Topic, payload, and the attributes that filters under this topic ask for."""

PUBLISHER = "bench"


@dataclass(slots=True)
class Timings:
    """The durations of all rounds together."""

    resolving: Durations = field(default_factory=Durations)
    """Of every different topic, without the table."""
    matching: Durations = field(default_factory=Durations)
    """Topic and attributes -> list of all matching subscriptions, those without content filter included."""
    deciding: Durations = field(default_factory=Durations)
    """Topic and attributes -> links."""
    end_to_end: Durations = field(default_factory=Durations)
    """Topic and payload -> list of all matching subscriptions."""


def play(tree: Pst, events: Sequence[PreparedEvent], mask: int, rounds: int, tell: Callable[[str], None]) -> Timings:
    """Put every question about every event, *rounds* times. *tell* hears which round it is."""
    timings = Timings()
    topics = list(dict.fromkeys(topic for topic, _, _ in events))
    for number in range(1, rounds + 1):
        tell(f"round {number} of {rounds}")
        resolve_all(tree, topics, timings.resolving)
        match_all(tree, events, timings.matching)
        decide_all(tree, events, mask, timings.deciding)
        extract_and_match_all(tree, events, timings.end_to_end)
    return timings


def resolve_all(tree: Pst, topics: Sequence[str], spent: Durations) -> None:
    """Resolve each of *topics* as if it had never been seen."""
    keep, clock, resolve = spent.ns.append, perf_counter_ns, tree.resolve
    for topic in topics:
        began = clock()
        resolve(topic)
        keep(clock() - began)


def match_all(tree: Pst, events: Sequence[PreparedEvent], spent: Durations) -> None:
    """Match every event, topics remembered as the broker does. The loop is written out: all it calls is timed."""
    keep, clock, resolve, match = spent.ns.append, perf_counter_ns, tree.resolve, tree.match
    known: dict[str, Resolution] = {}
    for topic, _, attributes in events:
        began = clock()
        route = known.get(topic)
        if route is None:
            if len(known) >= ROUTES_MAX:
                known.clear()
            route = known[topic] = resolve(topic)
        numbers = match(route, attributes) if route.contents else []
        numbers += route.plain
        keep(clock() - began)


def decide_all(tree: Pst, events: Sequence[PreparedEvent], mask: int, spent: Durations) -> None:
    """The same for the links of *mask*."""
    keep, clock, resolve, decide = spent.ns.append, perf_counter_ns, tree.resolve, tree.decide
    known: dict[str, Resolution] = {}
    for topic, _, attributes in events:
        began = clock()
        route = known.get(topic)
        if route is None:
            if len(known) >= ROUTES_MAX:
                known.clear()
            route = known[topic] = resolve(topic)
        decide(route, attributes, mask)
        keep(clock() - began)


def extract_and_match_all(tree: Pst, events: Sequence[PreparedEvent], spent: Durations) -> None:
    """The same from the payload's bytes on."""
    keep, clock, resolve, match = spent.ns.append, perf_counter_ns, tree.resolve, tree.match
    known: dict[str, tuple[Resolution, Extractor | None]] = {}
    for topic, payload, _ in events:
        began = clock()
        seen = known.get(topic)
        if seen is None:
            if len(known) >= ROUTES_MAX:
                known.clear()
            route = resolve(topic)
            seen = known[topic] = (route, Extractor(route.wanted) if route.contents else None)
        route, extractor = seen
        if extractor is None:
            numbers = []
        else:
            attributes = extractor.extract(payload, topic=topic, qos=0, retain=False, client=PUBLISHER)
            numbers = match(route, attributes)
        numbers += route.plain
        keep(clock() - began)
