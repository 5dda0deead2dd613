"""How many matching steps an event costs on its way, against one centralised match [LM, chart "matching steps"]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from edgebroker.event import Attributes
from edgebroker.matching.published.fixed import FixedPst, Optimisations, Subscription, fewest_stars_first
from edgebroker.simworld.experiments.interests import Interests
from edgebroker.simworld.experiments.network import (
    CLIENTS_PER_BROKER,
    PUBLISHERS,
    REGIONS,
    Network,
    region_of,
    three_regions,
)

EVENTS: Final = 300
HOPS_MAX: Final = 6
"""From a broker at the edge of one region to one at the edge of another."""
ATTRIBUTES: Final = 10
DECLINE: Final = 0.82
FACTORED: Final = Optimisations(index_attributes=3)


class Steps(NamedTuple):
    """Mean matching steps per event."""

    centralised: float
    """To find all subscriptions that match."""
    hops: tuple[float, ...]
    """To reach a broker whose clients want the event, as the 1st to the HOPS_MAX-th broker on the way: all together."""


REFERENCE: Final[Mapping[int, Steps]] = {
    2_000: Steps(67, (15, 32, 46, 64, 78, 87)),
    6_000: Steps(98, (20, 41, 64, 85, 106, 121)),
    10_000: Steps(113, (24, 47, 72, 96, 120, 137)),
}
"""By the number of subscriptions: what is to be reproduced. The source has a chart without figures; these are from one
seed of a model that shows its shape."""
TOLERANCE: Final = 0.15
"""How far the mean of five seeds may be from a figure of REFERENCE, as a part of it."""
CROSSING: Final = 10_000
"""At this many subscriptions 4 hops cost no more than a centralised match, and 5 hops cost more, as published."""
GROWTH: Final = (2_000, 10_000)
"""From the first to the second number of subscriptions, 5 times as many, no figure becomes twice as large."""


class Arrival(NamedTuple):
    """An event at a broker that has clients for it."""

    hops: int
    """Brokers on the way, the first and this one included."""
    steps: int
    """Of all of them together."""


def measure(chance: Random, subscriptions: int, events: int = EVENTS, optimisations: Optimisations = FACTORED) -> Steps:
    """One run: *subscriptions* dealt out to all clients in turn, *events* published by the three publishers in turn.

    Raises ValueError if some distance has no arrival at all: too few subscriptions or events for a mean.
    """
    network = three_regions()
    interests = Interests(chance, REGIONS, ATTRIBUTES, DECLINE)
    clients = [number % network.clients for number in range(subscriptions)]
    predicates = [interests.predicate(region_of(client // CLIENTS_PER_BROKER)) for client in clients]
    towards = [network.links_to(client) for client in range(network.clients)]
    tree = FixedPst(fewest_stars_first(interests.names, predicates), interests.domains, optimisations)
    tree.insert_all(
        Subscription(number, predicate, towards[client])
        for number, (client, predicate) in enumerate(zip(clients, predicates, strict=True))
    )
    masks = {publisher: network.masks(publisher) for publisher in PUBLISHERS}
    centralised: list[int] = []
    on_the_way: list[list[int]] = [[] for _ in range(HOPS_MAX)]
    for number in range(events):
        publisher = PUBLISHERS[number % len(PUBLISHERS)]
        event = interests.event(region_of(publisher))
        centralised.append(tree.match(event)[1])
        for arrival in journey(network, tree, masks[publisher], publisher, event):
            on_the_way[arrival.hops - 1].append(arrival.steps)
    if not all(on_the_way):
        raise ValueError(f"{events} events for {subscriptions} subscriptions leave a distance without any arrival")
    return Steps(fmean(centralised), tuple(map(fmean, on_the_way)))


def journey(
    network: Network, tree: FixedPst, masks: Sequence[int], publisher: int, event: Attributes
) -> Iterator[Arrival]:
    """Follow *event* from broker to broker, each matching it with its mask of *masks*, to all who want it."""
    on_its_way = [(publisher, 1, 0)]
    while on_its_way:
        broker, hops, steps = on_its_way.pop()
        decision = tree.decide(event, masks[broker])
        steps += decision.steps
        if decision.yes & network.own_clients[broker]:
            yield Arrival(hops, steps)
        for link in network.links[broker]:
            if link.neighbour is not None and decision.yes & link.bit:
                on_its_way.append((link.neighbour, hops + 1, steps))


def mean_of(runs: Sequence[Steps]) -> Steps:
    """The mean of several runs, one per seed."""
    hops = tuple(fmean(run.hops[place] for run in runs) for place in range(HOPS_MAX))
    return Steps(fmean(run.centralised for run in runs), hops)


def deviations(measured: Steps, reference: Steps) -> Steps:
    """How far each figure is from its reference, as a part of it."""
    hops = tuple(here / there - 1 for here, there in zip(measured.hops, reference.hops, strict=True))
    return Steps(measured.centralised / reference.centralised - 1, hops)


def complaints(rows: Mapping[int, Steps]) -> list[str]:
    """What in *rows* (subscriptions -> means) is not as published; what they do not cover is not judged."""
    return [*_complaints_about_cells(rows), *_complaints_about_crossing(rows), *_complaints_about_growth(rows)]


def _complaints_about_cells(rows: Mapping[int, Steps]) -> Iterator[str]:
    for subscriptions, reference in REFERENCE.items():
        if subscriptions in rows:
            measured = rows[subscriptions]
            away = deviations(measured, reference)
            for name, part, here, there in zip(CELLS, cells(away), cells(measured), cells(reference), strict=True):
                if abs(part) > TOLERANCE:
                    yield f"{subscriptions:,} subscriptions, {name}: {here:.1f} steps, {part:+.0%} from {there:.0f}"


def _complaints_about_crossing(rows: Mapping[int, Steps]) -> Iterator[str]:
    if CROSSING in rows:
        row = rows[CROSSING]
        if not row.hops[3] <= row.centralised < row.hops[4]:
            yield f"{CROSSING:,} subscriptions: a centralised match does not lie between 4 and 5 hops"


def _complaints_about_growth(rows: Mapping[int, Steps]) -> Iterator[str]:
    few, many = GROWTH
    if few in rows and many in rows:
        for name, before, after in zip(CELLS, cells(rows[few]), cells(rows[many]), strict=True):
            if after >= 2 * before:
                yield f"{name}: {after / before:.2f} times the steps for 5 times the subscriptions, not less than 2"


CELLS: Final = ("centralised", *(f"{hops} hop{'s' * (hops > 1)}" for hops in range(1, HOPS_MAX + 1)))


def cells(steps: Steps) -> tuple[float, ...]:
    """The figures in the order of CELLS."""
    return (steps.centralised, *steps.hops)
