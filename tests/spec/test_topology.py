"""Topologies: who stands where, who dials whom, and every mistake in a draft."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.limits import COVERING_BYTES
from edgebroker.names import Address
from edgebroker.overlay.topology.dialling import DialPlan
from edgebroker.overlay.topology.draft import (
    UPLINKS,
    DialPreference,
    DraftGateway,
    DraftLink,
    Site,
    TopologyDraft,
    TopologyInvalid,
    Uplink,
)
from edgebroker.overlay.topology.topology import Topology


def at(host: str) -> tuple[Address, ...]:
    return (Address(host, 8884),)


def gateway(name: str, number: int, positions: str = "", dials: DialPreference = DialPreference.AUTO) -> DraftGateway:
    """Of the site that its name begins with."""
    site = {"n": "north", "s": "south", "e": "east"}[name[0]]
    return DraftGateway(name, number, site, tuple(positions.split()), at(name), (), dials)


NORTH, SOUTH, EAST = Site("north", 0), Site("south", 1, UPLINKS["metered"]), Site("east", 2)
GATEWAYS = (
    gateway("n1", 0, "b"),
    gateway("n2", 1, "a"),
    gateway("n3", 2, "d"),
    gateway("n4", 3, "c"),
    gateway("s1", 4, "b a"),
    gateway("s2", 5, "c d"),
    gateway("e1", 6),
)
DRAFT = TopologyDraft("plant", ("a-b-c-d",), (NORTH, SOUTH, EAST), GATEWAYS)


def test_a_gateway_knows_its_place() -> None:
    topology = Topology(DRAFT)
    s1 = topology.gateway("s1")
    assert (s1.number, s1.site, s1.cluster, s1.positions, s1.home) == (4, "south", 1, ("b", "a"), "b")
    assert s1.neighbours == ("s2",)
    assert s1.across == {0: {"a": "n2", "b": "n1"}, 2: {"a": "e1", "b": "e1"}}
    assert s1.peers() == ("s2", "n1", "n2", "e1")
    n4 = topology.gateway("n4")
    assert n4.neighbours == ("n1", "n3"), "by number, not by position"
    assert n4.across == {1: {"c": "s2"}, 2: {"c": "e1"}}


def test_the_only_gateway_of_a_site_holds_every_position() -> None:
    e1 = Topology(DRAFT).gateway("e1")
    assert (e1.positions, e1.home, e1.neighbours) == (("a", "b", "c", "d"), "a", ())
    assert e1.across[0] == {"a": "n2", "b": "n1", "c": "n4", "d": "n3"}


def test_sites_stand_by_index_and_gateways_by_number() -> None:
    topology = Topology(replace(DRAFT, sites=(EAST, NORTH, SOUTH), gateways=GATEWAYS[::-1]))
    assert topology.sites == (NORTH, SOUTH, EAST)
    assert [one.name for one in topology.gateways] == ["n1", "n2", "n3", "n4", "s1", "s2", "e1"]
    assert topology.digest == Topology(DRAFT).digest


def test_what_all_must_agree_on_is_text() -> None:
    assert Topology(DRAFT).meaning.splitlines() == [
        "federation plant",
        "positions a b c d",
        "tree a-b b-c c-d",
        "site 0 north",
        "site 1 south",
        "site 2 east",
        "gateway 0 n1 of north: b",
        "gateway 1 n2 of north: a",
        "gateway 2 n3 of north: d",
        "gateway 3 n4 of north: c",
        "gateway 4 s1 of south: b a",
        "gateway 5 s2 of south: c d",
        "gateway 6 e1 of east: a b c d",
    ]
    assert Topology(DRAFT).digest == "97c900786d611e4f"


def test_addresses_and_uplinks_are_no_part_of_the_digest() -> None:
    moved = replace(GATEWAYS[0], address=at("elsewhere"), lan=at("here"), dials=DialPreference.NEVER)
    other = replace(DRAFT, sites=(NORTH, replace(SOUTH, uplink=UPLINKS["lan"]), EAST), gateways=(moved, *GATEWAYS[1:]))
    assert Topology(other).digest == Topology(DRAFT).digest


def test_a_gateway_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(TopologyInvalid, match=r"none is called 'n11'; did you mean n1\?"):
        Topology(DRAFT).gateway("n11")


# -- connections -----------------------------------------------------------------------------------------------------


def dial(one: DraftGateway, other: DraftGateway, *links: DraftLink) -> DialPlan:
    """How *one* and *other*, in the places of n1 and s1, come together."""
    gateways = (one, *GATEWAYS[1:4], other, *GATEWAYS[5:])
    return Topology(replace(DRAFT, gateways=gateways, links=links)).connection("n1", "s1").dial


N1, S1 = GATEWAYS[0], GATEWAYS[4]


def test_the_lower_number_dials() -> None:
    assert dial(N1, S1) == DialPlan("n1", at("s1"))
    assert dial(replace(N1, number=9), S1) == DialPlan("s1", at("n1"))


def test_a_gateway_without_address_dials() -> None:
    assert dial(N1, replace(S1, address=(), lan=at("local"))) == DialPlan("s1", at("n1"))


@pytest.mark.parametrize(
    ("n1", "s1", "dialler"),
    [
        (DialPreference.NEVER, DialPreference.AUTO, "s1"),
        (DialPreference.AUTO, DialPreference.ALWAYS, "s1"),
        (DialPreference.AUTO, DialPreference.NEVER, "n1"),
        (DialPreference.ALWAYS, DialPreference.ALWAYS, "n1"),
    ],
)
def test_the_more_eager_dials(n1: DialPreference, s1: DialPreference, dialler: str) -> None:
    assert dial(replace(N1, dials=n1), replace(S1, dials=s1)).dialler == dialler


def test_inside_a_site_the_lan_comes_first() -> None:
    s2 = replace(GATEWAYS[5], lan=at("10.0.0.2"))
    topology = Topology(replace(DRAFT, gateways=(*GATEWAYS[:5], s2, *GATEWAYS[6:])))
    assert topology.connection("s1", "s2").dial == DialPlan("s1", (*at("10.0.0.2"), *at("s2")))
    assert topology.connection("n4", "s2").dial == DialPlan("n4", at("s2"))


def test_a_link_may_be_an_exception() -> None:
    assert dial(N1, S1, DraftLink(("s1", "n1"), "s1", at("vpn"))) == DialPlan("s1", at("vpn"))
    assert dial(N1, S1, DraftLink(("s1", "n1"), "s1")) == DialPlan("s1", at("n1"))


def test_a_connection_is_as_sparing_as_the_more_sparing_end() -> None:
    uplink = Uplink("wan", batch_ms=5, bytes_per_s=1_000, bytes_per_day=7)
    topology = Topology(replace(DRAFT, sites=(replace(NORTH, uplink=uplink), SOUTH, EAST)))
    assert topology.connection("n1", "s1").uplink == Uplink("metered", 1_000, 1_000, 7, cost=1)
    assert topology.connection("n1", "e1").uplink == Uplink("wan", 5, 1_000, 7)
    assert topology.connection("n1", "n2").uplink == UPLINKS["lan"]


def test_a_site_tells_another_what_it_wants_in_the_fewer_bytes_of_both() -> None:
    uplink = replace(UPLINKS["wan"], covering_bytes=1_000)
    topology = Topology(replace(DRAFT, sites=(replace(NORTH, uplink=uplink), SOUTH, EAST)))
    assert topology.covering_bytes(0) == {1: 1_000, 2: 1_000}
    assert topology.covering_bytes(1) == {0: 1_000, 2: COVERING_BYTES}
    assert str(uplink) == "wan, 2 ms, coverings of 1,000 bytes"


@pytest.mark.parametrize("text", ["gw:1", "10.0.0.1:65535", "[2001:db8::1]:8884", "a.example.org:8884"])
def test_addresses_are_read_and_written(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["", "gw", "gw:", ":1", "gw:0", "gw:65536", "::1:80", "[gw]:1", "a b:1", "a/b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Address.parse(text)


# -- mistakes --------------------------------------------------------------------------------------------------------


def change(*changed: tuple[int, dict[str, object]]) -> TopologyDraft:
    """DRAFT with other values of some gateways."""
    gateways = list(GATEWAYS)
    for at, values in changed:
        gateways[at] = replace(gateways[at], **values)  # type: ignore[arg-type]
    return replace(DRAFT, gateways=tuple(gateways))


MISTAKES = {
    "no tree": (replace(DRAFT, tree=("a-b-c-d-a",)), ["factor.tree: d-a closes the loop d-c-b-a-d; leave out an edge"]),
    "no site": (
        replace(DRAFT, sites=(), gateways=()),
        ["site: there is none; write a [[site]] for each", "gateway: there is none; write a [[gateway]] for each"],
    ),
    "a site twice": (
        replace(DRAFT, sites=(NORTH, SOUTH, EAST, replace(NORTH, index=3))),
        ["site[3].name: is north a second time; give every site one of its own"],
    ),
    "an index twice": (
        replace(DRAFT, sites=(NORTH, SOUTH, replace(EAST, index=1))),
        ["site[2].index: is 1 a second time; give every site one of its own"],
    ),
    "an index beyond": (
        replace(DRAFT, sites=(NORTH, SOUTH, replace(EAST, index=16))),
        ["site[2].index: is 16; 16 sites have 0 to 15"],
    ),
    "a site without gateways": (
        replace(DRAFT, sites=(NORTH, SOUTH, EAST, Site("west", 3))),
        ["site[3].name: west has no gateway; write a [[gateway]] of this site"],
    ),
    "an unknown site": (
        replace(DRAFT, gateways=(*GATEWAYS, replace(S1, name="x", number=7, site="soth"))),
        ["gateway[7].site: 'soth' is no site; did you mean south?"],
    ),
    "a name twice": (
        change((1, {"name": "n1"})),
        ["gateway[1].name: is n1 a second time; give every gateway one of its own"],
    ),
    "a number twice": (
        change((1, {"number": 0})),
        ["gateway[1].number: is 0 a second time; give every gateway one of its own"],
    ),
    "a number beyond": (
        change((1, {"number": 1_024})),
        ["gateway[1].number: is 1024; at most 1023: ten bits of every message's number"],
    ),
    "an unknown position": (
        change((0, {"positions": ("b", "e")})),
        ["gateway[0].positions: 'e' is no position; there are a, b, c, d"],
    ),
    "a position twice in a gateway": (
        change((0, {"positions": ("b", "b")})),
        ["gateway[0].positions: b stands there twice; leave one out"],
    ),
    "no position beside others": (
        change((5, {"positions": ()})),
        ["gateway[5].positions: s2 holds none, and is not alone at south; name some of a, b, c, d"],
    ),
    "a position held twice": (
        change((5, {"positions": ("c", "d", "b")})),
        ["gateway[5].positions: b of south is held by s1 too; take it from one of them"],
    ),
    "vacant": (
        change((5, {"positions": ("d",)})),
        ["site[1].name: nobody at south holds c; give c to s1, which holds a neighbour"],
    ),
    "vacant, two in a row": (
        replace(DRAFT, gateways=(*GATEWAYS[:4], gateway("s1", 4, "d"), GATEWAYS[6])),
        ["site[1].name: nobody at south holds a, b, c; give c to s1, which holds a neighbour"],
    ),
    "not joined": (
        replace(DRAFT, gateways=(*GATEWAYS[:4], gateway("s1", 4, "a d"), gateway("s2", 5, "b c"), GATEWAYS[6])),
        ["gateway[4].positions: a and d are not joined; give s1 b, c too, or less"],
    ),
    "an address twice": (
        change((1, {"address": at("n1")})),
        ["gateway[1].address: n1:8884 is that of n1 too; correct one of them"],
    ),
    "a LAN address twice at one site": (
        change((1, {"lan": at("10.0.0.1")}), (2, {"lan": at("10.0.0.1")}), (4, {"lan": at("10.0.0.1")})),
        ["gateway[2].lan: 10.0.0.1:8884 is that of n2 too; correct one of them"],
    ),
    "nobody can be dialled": (
        change((4, {"address": ()}), (6, {"address": ()})),
        ["gateway[6].name: neither e1 nor s1 is reached by the other; give one of them an address"],
    ),
    "nobody can be dialled in a site": (
        change((1, {"address": ()}), (0, {"address": ()})),
        ["gateway[1].name: neither n2 nor n1 is reached by the other; give one of them a lan or another address"],
    ),
    "nobody dials": (
        change((0, {"dials": DialPreference.NEVER}), (4, {"dials": DialPreference.NEVER})),
        ['gateway[4].name: neither s1 nor n1 ever dials; give one of them dials = "auto"'],
    ),
    "whom nobody dials does not dial": (
        change((0, {"dials": DialPreference.NEVER, "address": ()})),
        [
            "gateway[0].name: n1 never dials, and n2 does not reach it; "
            'give it a lan or another address or dials = "auto"'
        ],
    ),
    "a link of a stranger": (
        replace(DRAFT, links=(DraftLink(("n1", "s3"), "n1"),)),
        ["link[0].between: 's3' is no gateway; there are n1, n2, n3, n4, s1, s2, e1"],
    ),
    "a link that is none": (
        replace(DRAFT, links=(DraftLink(("n1", "s2"), "n1"),)),
        ["link[0].between: n1 and s2 have no link; n1 has links with e1, n2, n4, s1"],
    ),
    "a link that a third dials": (
        replace(DRAFT, links=(DraftLink(("n1", "s1"), "s2"),)),
        ["link[0].dials: 's2' is none of the two; write n1 or s1"],
    ),
    "a link twice": (
        replace(DRAFT, links=(DraftLink(("n1", "s1"), "n1"), DraftLink(("s1", "n1"), "n1"))),
        ["link[1].between: s1 and n1 have a [[link]] above; keep one of the two"],
    ),
    "a link without an address": (
        replace(change((4, {"address": ()})), links=(DraftLink(("n1", "s1"), "n1"),)),
        ["gateway[4].name: n1 dials it, but s1 has no address there; give one, or give the link one"],
    ),
    "a site of many names": (
        replace(DRAFT, sites=tuple(Site(f"site{at}", at) for at in range(14)), gateways=(replace(S1, site="q"),)),
        [
            "gateway[0].site: 'q' is no site; there are site0, site1, site2, site3, site4, site5, site6, site7, site8, "
            "site9, site10, site11 and 2 more"
        ],
    ),
    "several": (
        replace(change((3, {"site": "nort", "positions": ("x",)})), sites=(NORTH, SOUTH, replace(EAST, index=17))),
        [
            "site[2].index: is 17; 16 sites have 0 to 15",
            "gateway[3].site: 'nort' is no site; did you mean north?",
            "gateway[3].positions: 'x' is no position; there are a, b, c, d",
        ],
    ),
}


@pytest.mark.parametrize(("draft", "told"), MISTAKES.values(), ids=MISTAKES)
def test_every_mistake_is_told_with_how_to_mend_it(draft: TopologyDraft, told: list[str]) -> None:
    with pytest.raises(TopologyInvalid) as refused:
        Topology(draft)
    assert str(refused.value).splitlines() == told
