"""What the engine answers, apart from how fast: the digest, the counts, and whether its two answers agree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from edgebroker.filters import Extractor

from .installation import Installation
from .lines import Event
from .rounds import PUBLISHER, PreparedEvent


@dataclass(frozen=True, slots=True)
class Answers:
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


def ask(installed: Installation, events: Iterable[Event]) -> Answers:
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
    return Answers(prepared, digest.hexdigest(), matches, match_steps / count, decide_steps / count, disagreements)


def line(index: int, ids: Iterable[int]) -> bytes:
    """The line of the digest for event number *index*, which the subscriptions *ids* want."""
    return f"{index}:{','.join(map(str, sorted(ids)))}\n".encode()
