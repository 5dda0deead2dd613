"""The timed rounds of the matching engine, each call by itself, and the digest of its answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TypeAlias

from edgebroker.cli.call_durations import Durations
from edgebroker.cli.subscription_file import FileEvent, Installation
from edgebroker.filters import Extractor
from edgebroker.limits import ROUTES_MAX
from edgebroker.matching.ends import Resolution
from edgebroker.matching.pst import Pst
from edgebroker.predicate import Attributes

PreparedEvent: TypeAlias = tuple[str, bytes, Attributes]
"""Topic, payload, and the attributes that filters under this topic ask for."""

PUBLISHER = "bench"


@dataclass(slots=True)
class RoundDurations:
    """The durations of all rounds together."""

    resolving: Durations = field(default_factory=Durations)
    """Of every different topic, without the table."""
    matching: Durations = field(default_factory=Durations)
    """Topic and attributes -> list of all matching subscriptions, those without content filter included."""
    deciding: Durations = field(default_factory=Durations)
    """Topic and attributes -> links."""
    end_to_end: Durations = field(default_factory=Durations)
    """Topic and payload -> list of all matching subscriptions."""


def play(
    tree: Pst, events: Sequence[PreparedEvent], mask: int, rounds: int, tell: Callable[[str], None]
) -> RoundDurations:
    """Put every question about every event, *rounds* times. *tell* hears which round it is."""
    timings = RoundDurations()
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


@dataclass(frozen=True, slots=True)
class MatchAnswers:
    """The outcome of asking once about every event."""

    events: list[PreparedEvent]
    digest: str
    """SHA-256 over one line `index:id,id,...` per event: events counted from 0, ids ascending."""
    matches: int
    """Pairs of event and matching subscription."""
    match_steps: float
    """Mean of the nodes and buckets that `match` visits for an event."""
    decide_steps: float
    """Mean of the nodes that `decide` visits for an event."""
    disagreements: int
    """Events for which `decide` names other links than those of the subscriptions that match."""


def ask(installed: Installation, events: Iterable[FileEvent]) -> MatchAnswers:
    """Ask about *events*, without a clock. It also warms the processor's caches for the timed rounds."""
    tree, ids, links = installed.tree, installed.ids, installed.links
    digest = hashlib.sha256()
    prepared: list[PreparedEvent] = []
    extractors: dict[frozenset[str], Extractor] = {}
    matches = match_steps = decide_steps = disagreements = 0
    for index, event in enumerate(events):
        route = tree.resolve(event.topic)
        extractor = extractors.get(route.wanted) or extractors.setdefault(route.wanted, Extractor(route.wanted))
        attributes = extractor.extract(event.payload, topic=event.topic, qos=0, retain=False, client=PUBLISHER)
        prepared.append((event.topic, event.payload, attributes))
        before = tree.steps
        numbers = [*tree.match(route, attributes), *route.plain]
        match_steps += tree.steps - before
        matches += len(numbers)
        digest.update(line(index, [ids[number - 1] for number in numbers]))
        wanted = 0
        for number in numbers:
            wanted |= 1 << links[number - 1]
        decision = tree.decide(route, attributes, installed.mask)
        decide_steps += decision.steps
        disagreements += decision.yes != wanted
    count = max(1, len(prepared))
    return MatchAnswers(prepared, digest.hexdigest(), matches, match_steps / count, decide_steps / count, disagreements)


def line(index: int, ids: Iterable[int]) -> bytes:
    """The line of the digest for event number *index*, which the subscriptions *ids* want."""
    return f"{index}:{','.join(map(str, sorted(ids)))}\n".encode()
