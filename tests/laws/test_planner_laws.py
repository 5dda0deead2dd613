"""Laws of planned topologies: valid, balanced, with short paths and no more connections than necessary."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebroker.cli.topology.toml_text import toml_text
from edgebroker.overlay.topology.draft import UPLINKS
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.planner import DEGREE_MAX, contractions, paths_of, plan, shapes
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.topology_file import parse_topology
from tests.laws.overlay.drafts import factors

small_sites = st.lists(st.integers(1, 9), min_size=1, max_size=6)
any_sites = st.one_of(small_sites, st.lists(st.integers(1, 30), min_size=1, max_size=16))


def planned(sizes: list[int]) -> Topology:
    sites = {f"s{at}": size for at, size in enumerate(sizes)}
    return Topology(plan("plant", sites, UPLINKS["wan"], 8884))


@settings(max_examples=30)
@given(any_sites)
def test_a_plan_is_a_topology_of_the_sites_that_were_asked_for(sizes: list[int]) -> None:
    topology = planned(sizes)
    assert [sum(one.cluster == j for one in topology.gateways) for j in range(len(sizes))] == sizes
    assert len(topology.factor) == max(sizes), "a position more would be iLinks more"
    assert max(len(topology.factor.neighbours(one)) for one in topology.factor.positions) <= DEGREE_MAX


@settings(max_examples=30)
@given(small_sites)
def test_a_plan_is_written_as_it_is_read(sizes: list[int]) -> None:
    topology = planned(sizes)
    assert parse_topology(toml_text(topology.draft), "t.toml").meaning == topology.meaning


@settings(max_examples=30)
@given(any_sites)
def test_gateways_of_two_sites_have_as_few_connections_as_can_be(sizes: list[int]) -> None:
    """Every gateway of the larger site meets one: so contractions are nested."""
    topology = planned(sizes)
    for j, k in combinations(range(len(sizes)), 2):
        pairs = {(topology.holder(position, j), topology.holder(position, k)) for position in topology.factor.positions}
        assert len(pairs) == max(sizes[j], sizes[k])


@settings(max_examples=20)
@given(st.integers(1, 64))
def test_ways_stay_short(size: int) -> None:
    """With up to four edges at each position, 17 positions are within two steps of one, and 64 within four."""
    diameter = planned([size]).factor.diameter
    assert diameter <= (2 if size <= 5 else 4 if size <= 17 else 6 if size <= 53 else 8)


@given(factors(most=7), st.data())
def test_no_other_contraction_has_a_smaller_largest_part(factor: Factor, data: st.DataObject) -> None:
    """Against all choices of edges to cut."""
    count = data.draw(st.integers(1, len(factor)))
    found = contractions(factor, [count])[count]
    assert len(found) == count
    assert sorted(position for part in found for position in part) == sorted(factor.positions)
    assert all(len(factor.pieces(part)) == 1 for part in found)
    largest = []
    for cut in combinations(factor.edges, count - 1):
        left = Pieces(factor, [edge for edge in factor.edges if edge not in cut])
        largest.append(left.largest)
    assert max(map(len, found)) == min(largest)


class Pieces:
    """The parts of a factor's positions that some of its edges join."""

    def __init__(self, factor: Factor, edges: list[tuple[str, str]]) -> None:
        group = {one: {one} for one in factor.positions}
        for one, other in edges:
            group[one] |= group[other]
            for member in group[one]:
                group[member] = group[one]
        self.largest = max(map(len, group.values()))


def test_publishers_of_small_sites_are_spread_over_regions() -> None:
    homes = [one.home for one in planned([3, 1, 1, 1]).gateways if len(one.positions) == 3]
    assert len(set(homes)) == 3


@given(factors())
def test_paths_make_the_tree_again(factor: Factor) -> None:
    again = Factor.parse(*paths_of(factor))
    assert {frozenset(edge) for edge in again.edges} == {frozenset(edge) for edge in factor.edges}
    assert set(again.positions) == set(factor.positions)


@pytest.mark.parametrize(("count", "trees"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 5), (7, 9), (8, 18)])
def test_every_small_tree_of_few_edges_at_each_position_is_tried(count: int, trees: int) -> None:
    """The alkanes: as many as there are carbon skeletons with so many atoms (OEIS A000602)."""
    found = list(shapes(count))
    assert len(found) == trees
    assert all(len(factor) == count for factor in found)


def test_the_largest_federation_is_planned() -> None:
    topology = planned([*range(64, 48, -1)])
    assert len(topology.gateways) == sum(range(49, 65))


@pytest.mark.parametrize("count", [9, 20, 64])
def test_large_trees_are_compact_or_paths(count: int) -> None:
    diameters = [factor.diameter for factor in shapes(count)]
    assert max(diameters) == count - 1
    assert len(diameters) == DEGREE_MAX - 1
