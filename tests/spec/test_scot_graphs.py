"""The graph facts of SCOT, and the published overlays, counted on the graphs themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from edgebroker.overlay.scot import Broker, Scot
from edgebroker.overlay.topology.draft import TopologyInvalid
from edgebroker.overlay.topology.factor import Factor
from tests.laws.overlay.graph import Graph

PATH_2, PATH_3, PATH_6 = Factor.parse("a-b"), Factor.parse("a-b-c"), Factor.parse("a-b-c-d-e-f")
STAR_5 = Factor.parse("a-b", "a-c", "a-d", "a-e")
PUBLISHED = Factor.parse(
    *("F-G-H-I", "F-f1", "F-f2", "F-f3", "G-g1", "G-g2", "H-h1", "H-h2", "I-i1", "I-i2", "I-i3"),
)
"""The factor of the source's experiments: 4 inner positions with 3, 2, 2 and 3 leaves."""

# factor, clusters, brokers, aLinks, iLinks, kappa = lambda, diameter
OVERLAYS = {
    "path 2 x K2": (PATH_2, 2, 4, 2, 2, 2, 2),
    "path 3 x K3": (PATH_3, 3, 9, 6, 9, 3, 3),
    "path 6 x K3": (PATH_6, 3, 18, 15, 18, 3, 6),
    "star 5 x K4": (STAR_5, 4, 20, 16, 30, 4, 3),
    "published x K5": (PUBLISHED, 5, 70, 65, 140, 5, 6),
    "one position x K4": (Factor.parse("a"), 4, 4, 0, 6, 3, 1),
    "one cluster": (PATH_3, 1, 3, 2, 0, 1, 2),
    "one broker": (Factor.parse("a"), 1, 1, 0, 0, 0, 0),
}
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS.values(), ids=OVERLAYS)
Row = tuple[Factor, int, int, int, int, int, int]


def graph(scot: Scot) -> Graph:
    """The product by its definition [SCOT, (1) and (2)], not by what Scot says of its links."""
    vertices = [(u, j) for u in scot.factor.positions for j in range(scot.clusters)]
    tree = {frozenset(edge) for edge in scot.factor.edges}
    edges = [
        (one, other)
        for one, other in combinations(vertices, 2)
        if (one[0] == other[0]) or (one[1] == other[1] and frozenset((one[0], other[0])) in tree)
    ]
    return Graph(vertices, edges)


@each_overlay
def test_an_overlay_has_the_published_counts(overlay: Row) -> None:
    factor, clusters, brokers, a_links, i_links, connectivity, diameter = overlay
    scot = Scot(factor, clusters)
    assert len(scot) == brokers == len(set(scot.brokers()))
    assert len(set(scot.a_links())) == len(list(scot.a_links())) == a_links
    assert len(set(scot.i_links())) == len(list(scot.i_links())) == i_links
    assert (clusters - (len(factor) == 1), scot.diameter) == (connectivity, diameter), "(3) and (4) of the paper"


@each_overlay
def test_links_are_those_of_the_product(overlay: Row) -> None:
    scot = Scot(*overlay[:2])
    links = {frozenset(link) for link in (*scot.a_links(), *scot.i_links())}
    around = graph(scot).around
    assert links == {frozenset((one, other)) for one, others in around.items() for other in others}
    for broker in scot.brokers():
        found = scot.neighbours(broker)
        assert len(found) == len(set(found)) == len(scot.factor.neighbours(broker.position)) + scot.clusters - 1
        assert set(found) == around[broker], "degrees add"


@each_overlay
def test_connectivity_and_diameter_are_those_of_the_graph(overlay: Row) -> None:
    factor, clusters, brokers, _, _, connectivity, diameter = overlay
    overlay_graph = graph(Scot(factor, clusters))
    assert overlay_graph.diameter() == diameter
    assert overlay_graph.lambda_() == connectivity
    if brokers <= 20:  # each pair that is not joined is a flow
        assert overlay_graph.kappa() == connectivity
    else:
        first, *others = overlay_graph.around
        cuts = [overlay_graph.vertex_cut(first, other) for other in others if other not in overlay_graph.around[first]]
        assert min(cuts) == connectivity


def removals(scot: Scot) -> Iterator[Graph]:
    """What is left of the overlay without any m-1 brokers."""
    whole = graph(scot).around
    for gone in combinations(whole, scot.clusters - 1):
        left = whole.keys() - set(gone)
        edges = {frozenset((one, other)) for one in left for other in whole[one] & left}
        yield Graph(left, [(one, other) for one, other in map(tuple, edges)])


@pytest.mark.parametrize("factor", [PATH_2, PATH_3, Factor.parse("a-b", "a-c", "a-d")])
def test_any_two_brokers_of_three_clusters_may_fail(factor: Factor) -> None:
    count = 0
    for left in removals(Scot(factor, 3)):
        count += 1
        assert len(left.distances(next(iter(left.around)))) == len(left.around)
    assert count == len(factor) * 3 * (len(factor) * 3 - 1) / 2


def inner_brokers(scot: Scot) -> int:
    """The number of brokers with two or more primary neighbours."""
    return scot.clusters * sum(len(scot.factor.neighbours(one)) >= 2 for one in scot.factor.positions)


def test_inner_brokers_are_those_of_the_factor_in_each_cluster() -> None:
    assert inner_brokers(Scot(PUBLISHED, 5)) == 20
    assert len(Scot(PUBLISHED, 5)) - inner_brokers(Scot(PUBLISHED, 5)) == 50


def test_a_scot_is_the_union_of_its_regions_and_clusters() -> None:
    """[SCOT, (5) to (9)]."""
    scot = Scot(PATH_3, 3)
    assert all(one.cluster == other.cluster and one.position != other.position for one, other in scot.a_links())
    assert all(one.position == other.position and one.cluster != other.cluster for one, other in scot.i_links())
    clusters = [{Broker(u, j) for u in PATH_3.positions} for j in range(3)]
    regions = [{Broker(u, j) for j in range(3)} for u in PATH_3.positions]
    assert set().union(*clusters) == set().union(*regions) == set(scot.brokers())


def test_paths_make_a_tree() -> None:
    factor = Factor.parse("a-b-c", "d-b", "d-e")
    assert factor.positions == ("a", "b", "c", "d", "e")
    assert factor.neighbours("b") == ("a", "c", "d")
    assert factor.path("a", "e") == ("a", "b", "d", "e")
    assert factor.trunk in (("a", "b", "d", "e"), ("c", "b", "d", "e"))
    assert factor.diameter == 3
    assert factor.pieces(["a", "c", "d", "e"]) == (("a",), ("c",), ("d", "e"))
    holders = {"a": 1, "b": 1, "c": 2, "d": 3, "e": 3}
    assert {frozenset(edge) for edge in factor.contracted(holders)} == {frozenset((1, 2)), frozenset((1, 3))}


NO_TREES = {
    (): 'factor.tree: has no position; write at least one, like "a"',
    ("a--b",): 'factor.tree: \'a--b\' is no path; write positions with "-" between, like "a-b-c"',
    ("a-a",): "factor.tree: a-a joins a with itself; leave it out",
    ("a-b", "b-a"): "factor.tree: b-a stands there twice; leave one out",
    ("a-b-c", "c-d-a"): "factor.tree: d-a closes the loop d-c-b-a-d; leave out an edge",
    ("a-b", "c-d"): 'factor.tree: nothing joins a with c, d; add an edge, like "a-c"',
    ("-".join(f"p{n}" for n in range(65)),): "factor.tree: has 65 positions; at most 64 are allowed",
}


@pytest.mark.parametrize(("paths", "told"), NO_TREES.items(), ids=map(str, range(len(NO_TREES))))
def test_what_is_no_tree_is_named(paths: tuple[str, ...], told: str) -> None:
    with pytest.raises(TopologyInvalid) as refused:
        Factor.parse(*paths)
    assert str(refused.value) == told


def test_all_that_is_wrong_with_a_tree_is_told_at_once() -> None:
    with pytest.raises(TopologyInvalid) as refused:
        Factor.parse("a-b-a", "a b", "c-c", "d")
    assert len(refused.value.mistakes) == 3
