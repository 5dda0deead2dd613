"""The network of the experiments: its shape, its masks, and what they are for: everybody is reached, and once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from edgelab.experiment.link_matching import (
    ATTRIBUTES,
    CLIENTS_PER_BROKER,
    DECLINE,
    FACTORED,
    PUBLISHERS,
    REGIONS,
    ExperimentNetwork,
    InterestWorkload,
    region_of,
    shortest_paths,
    three_regions,
)
from edgelab.experiment.published_tree import FixedPst, FixedSubscription


@pytest.fixture(scope="module")
def network() -> ExperimentNetwork:
    return three_regions()


def test_there_are_39_brokers_and_390_clients_in_three_regions(network: ExperimentNetwork) -> None:
    assert Counter(map(region_of, range(len(network.neighbours)))) == {0: 13, 1: 13, 2: 13}
    assert network.clients == 390
    # A root has three children and two other roots; three brokers of each region have a parent and three children.
    assert Counter(map(len, network.neighbours)) == {5: 3, 4: 9, 1: 27}


def test_paths_have_up_to_six_brokers(network: ExperimentNetwork) -> None:
    for publisher in PUBLISHERS:
        lengths = Counter(len(path(network, publisher, home)) for home in range(39))
        # itself; its parent; siblings and the root; the other children of the root and the other roots; and so on
        assert lengths == {1: 1, 2: 1, 3: 3, 4: 4, 5: 12, 6: 18}


def path(network: ExperimentNetwork, broker: int, destination: int) -> list[int]:
    """The brokers on the best path, both ends included."""
    brokers = [broker]
    while brokers[-1] != destination:
        brokers.append(network.next_hop(brokers[-1], destination))
    return brokers


def test_the_slowest_line_between_roots_is_faster_than_the_way_round(network: ExperimentNetwork) -> None:
    assert network.neighbours[13][26] == 75
    assert path(network, 17, 30) == [17, 14, 13, 26, 27, 30]


def test_best_paths_and_spanning_trees_agree(network: ExperimentNetwork) -> None:
    # Else events would be lost or come twice.
    for publisher in range(39):
        tree = shortest_paths(network.neighbours, publisher)
        for home in range(39):
            brokers = path(network, publisher, home)
            assert all(tree[child] == parent for parent, child in pairwise(brokers))


def test_masks_lead_away_from_the_publisher(network: ExperimentNetwork) -> None:
    masks = network.masks(PUBLISHERS[0])
    for broker, links in enumerate(network.links):
        back = network.next_hop(broker, PUBLISHERS[0]) if broker != PUBLISHERS[0] else None
        open_ = [link for link in links if masks[broker] & link.bit]
        # All of the broker's clients; and all neighbours but the one towards the publisher, except that no other root
        # lies behind a root of another region.
        assert sum(link.neighbour is None for link in open_) == CLIENTS_PER_BROKER
        roots = {0, 13, 26} if broker in (13, 26) else set()
        assert {link.neighbour for link in open_} - {None} == set(network.neighbours[broker]) - {back} - roots


def test_no_bit_is_used_twice_and_every_client_is_reached_from_everywhere(network: ExperimentNetwork) -> None:
    bits = [link.bit for links in network.links for link in links]
    assert len(set(bits)) == len(bits) == 390 + sum(map(len, network.neighbours))
    for client in (0, 137, 389):
        towards = network.links_to(client)
        assert all((towards & sum(link.bit for link in links)).bit_count() == 1 for links in network.links)


def test_an_event_comes_to_everybody_who_wants_it_and_to_no_broker_twice(
    network: ExperimentNetwork, chance: Random
) -> None:
    interests = InterestWorkload(chance, REGIONS, ATTRIBUTES, DECLINE)
    tree = FixedPst(interests.names, interests.domains, FACTORED)
    clients = {number: chance.randrange(network.clients) for number in range(600)}
    tree.insert_all(
        FixedSubscription(
            number, interests.predicate(region_of(client // CLIENTS_PER_BROKER)), network.links_to(client)
        )
        for number, client in clients.items()
    )
    for publisher in PUBLISHERS:
        masks = network.masks(publisher)
        for _ in range(20):
            event = interests.event(region_of(publisher))
            found, centralised = tree.match(event)
            visited: list[int] = []
            reached = 0
            on_its_way = [publisher]
            while on_its_way:
                broker = on_its_way.pop()
                visited.append(broker)
                decision = tree.decide(event, masks[broker])
                assert decision.steps <= centralised
                reached |= decision.yes & network.own_clients[broker]
                copies = [link for link in network.links[broker] if decision.yes & link.bit]
                on_its_way += [link.neighbour for link in copies if link.neighbour is not None]
            assert len(visited) == len(set(visited))
            wanted = 0
            for number in found:
                home = clients[number] // CLIENTS_PER_BROKER
                wanted |= network.links_to(clients[number]) & network.own_clients[home]
            assert reached == wanted
