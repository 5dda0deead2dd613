"""Laws of every topology: contractions are trees, links are mutual, every two clusters meet in every region, and what
the source says of connectivity holds for gateways too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgebroker.overlay.scot import Broker, Scot
from edgebroker.overlay.topology.draft import TopologyDraft
from edgebroker.overlay.topology.factor import Factor, walk
from edgebroker.overlay.topology.topology import Topology
from tests.laws.overlay.drafts import drafts, factors
from tests.laws.overlay.graph import Graph


@settings(max_examples=50)
@given(drafts())
def test_every_position_of_every_cluster_has_one_holder(draft: TopologyDraft) -> None:
    topology = Topology(draft)
    held = [Broker(position, one.cluster) for one in topology.gateways for position in one.positions]
    assert sorted(held) == sorted(topology.scot.brokers())
    for one in topology.gateways:
        assert one.home in one.positions
        assert all(topology.holder(position, one.cluster) == one.name for position in one.positions)


@settings(max_examples=50)
@given(drafts())
def test_the_gateways_of_a_site_are_a_tree(draft: TopologyDraft) -> None:
    topology = Topology(draft)
    for site in topology.sites:
        around = {one.name: one.neighbours for one in topology.gateways if one.site == site.name}
        first, *_ = around
        assert walk(around, first).keys() == around.keys(), "connected"
        assert sum(map(len, around.values())) == 2 * (len(around) - 1), "without a loop"


@settings(max_examples=50)
@given(drafts())
def test_links_are_mutual_and_have_their_numbers_for_good(draft: TopologyDraft) -> None:
    topology = Topology(draft)
    number = {one.name: one.number for one in topology.gateways}
    for one in topology.gateways:
        assert one.name not in one.peers()
        assert sorted(one.neighbours, key=number.__getitem__) == list(one.neighbours)
        for neighbour in one.neighbours:
            other = topology.gateway(neighbour)
            assert other.cluster == one.cluster
            assert one.name in other.neighbours
        for peer in one.peers():
            assert one.name in topology.gateway(peer).peers()


@settings(max_examples=50)
@given(drafts())
def test_every_two_clusters_are_joined_in_every_region(draft: TopologyDraft) -> None:
    topology = Topology(draft)
    clusters = range(len(topology.sites))
    for position in topology.factor.positions:
        for j, k in combinations(clusters, 2):
            one = topology.gateway(topology.holder(position, j))
            other = topology.gateway(topology.holder(position, k))
            assert one.across[k][position] == other.name
            assert other.across[j][position] == one.name
    for one in topology.gateways:
        assert one.across.keys() == set(clusters) - {one.cluster}
        assert all(region.keys() == set(one.positions) for region in one.across.values())


@settings(max_examples=50)
@given(drafts())
def test_exactly_one_of_two_peers_dials_the_other(draft: TopologyDraft) -> None:
    topology = Topology(draft)
    for one in topology.gateways:
        for peer in one.peers():
            connection = topology.connection(one.name, peer)
            assert connection == topology.connection(peer, one.name)
            called = {one.name, peer} - {connection.dial.dialler}
            assert [address.host for address in connection.dial.addresses] == list(called)


def graph(topology: Topology) -> Graph:
    """The gateways and the connections between them."""
    pairs = [(one.name, peer) for one in topology.gateways for peer in one.peers() if one.name < peer]
    return Graph([one.name for one in topology.gateways], pairs)


@settings(max_examples=50)
@given(drafts())
def test_any_gateways_fewer_than_clusters_may_fail(draft: TopologyDraft) -> None:
    """One cluster is then whole and a tree, and every gateway that is left has a peer in it."""
    topology = Topology(draft)
    assert topology.tolerated_gateways == len(topology.sites) - 1
    assume(len(topology.gateways) <= 16)  # each pair without a connection is a flow
    assert graph(topology).kappa() >= min(len(topology.sites), len(topology.gateways) - 1)


@settings(max_examples=50)
@given(drafts())
def test_as_many_connections_may_fail_unless_every_site_has_one_gateway(draft: TopologyDraft) -> None:
    topology = Topology(draft)
    assume(len(topology.gateways) > 1)
    is_bare = len(topology.gateways) == len(topology.sites)
    assert topology.tolerated_connections == max(len(topology.sites) - (2 if is_bare else 1), 0)
    least = graph(topology).lambda_()
    assert least > topology.tolerated_connections
    assert not is_bare or least == topology.tolerated_connections + 1


@settings(max_examples=50)
@given(drafts())
def test_the_digest_is_of_the_meaning(draft: TopologyDraft) -> None:
    """The order in a file does not matter, nor does how the tree is written; everything else does."""
    topology = Topology(draft)
    shuffled = TopologyDraft(
        draft.federation,
        tuple(reversed(["-".join(reversed(path.split("-"))) for path in draft.tree])),
        tuple(reversed(draft.sites)),
        tuple(reversed(draft.gateways)),
    )
    assert Topology(shuffled).digest == topology.digest
    assert Topology(replace(draft, federation="other")).digest != topology.digest
    first, *others = draft.gateways
    taken = {one.number for one in draft.gateways}
    for change in (
        replace(first, number=next(number for number in range(1_024) if number not in taken)),
        replace(first, name="other"),
        replace(first, positions=(*first.positions[1:], first.positions[0])),
    ):
        other = Topology(replace(draft, gateways=(change, *others)))
        assert (other.digest == topology.digest) == (change == first)


@settings(max_examples=50)
@given(factors(most=5), st.integers(1, 4))
def test_a_gateway_for_every_broker_is_the_product_itself(factor: Factor, clusters: int) -> None:
    scot = Scot(factor, clusters)
    topology = Topology.product(scot)
    named = {Broker(one.home, one.cluster): one for one in topology.gateways}
    assert named.keys() == set(scot.brokers())
    for broker, gateway in named.items():
        peers = (name.split(".") for name in gateway.peers())
        assert {Broker(u, int(j)) for u, j in peers} == set(scot.neighbours(broker))
