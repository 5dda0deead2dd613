"""The worked examples of dissemination trees, and what the traps of the source mean for ours [LBDD 3]."""

from __future__ import annotations

import pytest

from edgebroker.dissemination.group_view import (
    FAN_OUT,
    ViewMember,
    by_segment,
    digest_of,
    group_view,
    next_view,
    segment_of,
    view_member,
)
from edgebroker.dissemination.tree import (
    DisseminationTree,
    bucket_of,
    served_range,
    serving_rank,
    view_tree,
)

SMALL = "192.168.1."
BED = "10.3.17."
LISTED = (98, 64, 184, 61, 68, 234, 90, 72, 44, 88, 97)
"""The subscribers of the published test bed, whose publisher is 74."""


def tree_of(prefix: str, source: int, subscribers: tuple[int, ...], fan_out: int = 0) -> DisseminationTree:
    return DisseminationTree(f"{prefix}{source}", [view_member(f"{prefix}{each}") for each in subscribers], fan_out)


def edges_of(tree: DisseminationTree) -> dict[int, list[int]]:
    """Last parts of addresses: parent -> children."""
    found: dict[int, list[int]] = {}
    for parent, child in tree.edges():
        found.setdefault(int(parent.rpartition(".")[2]), []).append(int(child.rpartition(".")[2]))
    return found


# -- 3.1: a small group ------------------------------------------------------------------------------------------------


def test_the_digest_is_the_first_32_bits_of_md5() -> None:
    digests = {1: 0x66EFFF4C, 8: 0x67A8A2E1, 6: 0x428E9960, 7: 0x28B9A02D, 5: 0x2E9E9F7C, 2: 0x8A120FF3, 3: 0xCC9D4028}
    assert {each: digest_of(f"{SMALL}{each}") for each in digests} == digests


def test_buckets_and_ranks_of_the_small_group() -> None:
    tree = tree_of(SMALL, 1, (2, 3, 4, 5, 6, 7, 8))
    places = {each: (tree.bucket(f"{SMALL}{each}"), tree.rank(f"{SMALL}{each}")) for each in range(1, 9)}
    assert places == {1: (0, 1), 8: (25, 1), 6: (30, 1), 7: (31, 1), 5: (31, 2), 2: (32, 1), 3: (32, 2), 4: (32, 3)}
    assert tree.buckets == [25, 30, 31, 32]


SMALL_TREES = [
    ((), {1: [8], 8: [6], 6: [7, 5], 7: [2], 5: [3, 4]}),
    ((7,), {1: [8], 8: [6], 6: [5], 5: [2, 3, 4]}),
    ((8,), {1: [6], 6: [7, 5], 7: [2], 5: [3, 4]}),
    ((7, 5), {1: [8], 8: [6], 6: [2, 3, 4]}),
]


@pytest.mark.parametrize(("failed", "expected"), SMALL_TREES)
def test_the_small_tree_and_its_failures(failed: tuple[int, ...], expected: dict[int, list[int]]) -> None:
    tree = tree_of(SMALL, 1, (2, 3, 4, 5, 6, 7, 8))
    assert tree.depth(f"{SMALL}4") == 4
    for each in failed:
        tree = tree.left(f"{SMALL}{each}")
    assert edges_of(tree) == expected
    for each in failed:
        tree = tree.joined(view_member(f"{SMALL}{each}"))
    assert edges_of(tree) == SMALL_TREES[0][1]


# -- 3.2 and 3.5: the published test bed -------------------------------------------------------------------------------


def test_distances_in_the_published_test_bed() -> None:
    digests = {98: 0x42663FBB, 64: 0x4637D260, 184: 0x1ACF7116, 61: 0x24A98CAC, 68: 0x997CE13F, 234: 0x9F3924B2}
    digests |= {90: 0xA5EE1866, 72: 0xB8282BE6, 44: 0xBF1C095B, 88: 0xBF5EB609, 97: 0xEC40CEA5, 74: 0x6A55A1AE}
    assert {each: digest_of(f"{BED}{each}") for each in digests} == digests
    assert digest_of(f"{BED}98") ^ digest_of(f"{BED}74") == 0x28339E15
    tree = tree_of(BED, 74, LISTED)
    buckets = {each: tree.bucket(f"{BED}{each}") for each in LISTED}
    assert buckets == {98: 30, 64: 30, 184: 31, 61: 31} | dict.fromkeys(LISTED[4:], 32)


PUBLISHED = {74: [98, 64], 98: [184], 64: [61], 184: [68, 234, 90], 61: [72, 44, 88, 97]}


def test_the_published_tree() -> None:
    tree = tree_of(BED, 74, LISTED)
    assert edges_of(tree) == PUBLISHED
    assert max(tree.depth(node) for node in tree.nodes) == 3
    assert all(child in tree.children(tree.parent(child)) for child in tree.nodes)


@pytest.mark.parametrize(
    ("publisher", "expected"),
    [
        (97, (2, 6, 6)), (234, (4, 1, 5)), (90, (4, 3, 5)), (98, (4, 1, 4)), (64, (4, 1, 4)), (61, (3, 1, 3)),
        (184, (3, 1, 3)), (72, (5, 2, 5)), (88, (6, 1, 5)), (44, (6, 1, 5)), (68, (4, 1, 5)), (74, (3, 2, 4)),
    ],
)  # fmt: skip
def test_other_publishers_of_the_test_bed(publisher: int, expected: tuple[int, int, int]) -> None:
    tree = tree_of(BED, publisher, tuple({74, *LISTED} - {publisher}))
    children = edges_of(tree)
    depth = max(tree.depth(node) for node in tree.nodes)
    assert (depth, len(children[publisher]), max(map(len, children.values()))) == expected


def test_the_largest_degree_as_subscribers_are_added_in_the_order_of_the_list() -> None:
    """Any order in which three of bucket 32 come first, then 98 and 64, then 184 and 61, gives the published row."""
    order = (68, 234, 90, 98, 64, 184, 61, 72, 44, 88, 97)
    children = [edges_of(tree_of(BED, 74, order[:count])) for count in range(1, 12)]
    assert [max(map(len, each.values())) for each in children] == [1, 2, 3, 3, 2, 3, 2, 2, 3, 3, 4]
    loads = [round(100 * len(each[74]) / max(map(len, each.values()))) for each in children]
    assert loads == [100, 100, 100, 33, 100, 67, 100, 100, 67, 67, 50]


def test_the_published_tree_with_a_cap() -> None:
    capped = PUBLISHED | {184: [68, 234], 68: [90], 61: [72, 44], 72: [88, 97]}
    assert edges_of(tree_of(BED, 74, LISTED, fan_out=2)) == capped
    assert max(tree_of(BED, 74, LISTED, fan_out=2).depth(f"{BED}{each}") for each in LISTED) == 4
    assert edges_of(tree_of(BED, 74, LISTED, fan_out=3)) == PUBLISHED | {61: [72, 44, 88], 72: [97]}


# -- 3.3: ranges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "served", "expected"),
    [
        (2, 7, [[1, 2, 3], [4, 5, 6, 7]]),
        (3, 7, [[1, 2], [3, 4], [5, 6, 7]]),
        (5, 3, [[], [1], [], [2], [3]]),
        (2, 3, [[1], [2, 3]]),
    ],
)
def test_ranges_and_their_inverse(servers: int, served: int, expected: list[list[int]]) -> None:
    ranges = [served_range(rank, servers, served) for rank in range(1, servers + 1)]
    assert [[position + 1 for position in each] for each in ranges] == expected
    for rank, positions in enumerate(ranges, 1):
        assert all(serving_rank(position, servers, served) == rank for position in positions)


# -- traps -------------------------------------------------------------------------------------------------------------


def test_a_member_with_the_digest_of_the_source_is_served() -> None:
    assert bucket_of(7, 7) == 1
    twin = ViewMember("twin", digest_of("source"))
    tree = DisseminationTree("source", [twin, view_member("b")])
    assert tree.children("source") == ("twin",)
    assert tree.bucket("twin") == 1


def test_members_of_equal_digests_are_ordered_by_node_id() -> None:
    members = [ViewMember(node, 1 ^ digest_of("s")) for node in ("c", "a", "b")]
    assert DisseminationTree("s", members).children("s") == ("a", "b", "c")


def test_the_source_is_no_receiver_and_nobody_serves_for_strangers() -> None:
    tree = DisseminationTree("s", [view_member("s"), view_member("a")])
    assert [*tree.edges()] == [("s", "a")]
    assert tree.joined(view_member("s")) is tree
    assert tree.left("stranger") is tree
    assert tree.children("stranger") == ()
    assert DisseminationTree("s", []).children("s") == ()


# -- capacity classes --------------------------------------------------------------------------------------------------


def with_leaves(*leaves: int, fan_out: int = 0) -> DisseminationTree:
    members = [view_member(f"{BED}{each}", capacity=int(each not in leaves)) for each in LISTED]
    return DisseminationTree(f"{BED}74", members, fan_out)


def test_members_of_class_0_never_relay() -> None:
    """61 is at the end of its bucket, and the last rank never has an empty range: ranks alone would not spare it."""
    assert served_range(5, 5, 3)
    tree = with_leaves(61)
    assert edges_of(tree) == {74: [98, 64], 64: [184, 61], 184: [68, 234, 90, 72, 44, 88, 97]}
    assert not tree.may_relay(f"{BED}61")


def test_a_bucket_of_leaves_alone_is_served_with_the_next_one() -> None:
    assert edges_of(with_leaves(184, 61)) == {74: [98, 64], 98: [68, 234, 90, 184], 64: [72, 44, 88, 97, 61]}
    assert edges_of(with_leaves(*LISTED)) == {74: sorted(LISTED, key=lambda each: digest_of(f"{BED}{each}"))}


def test_leaves_are_shared_evenly_and_come_last_under_a_cap() -> None:
    tree = with_leaves(68, 234, 90, fan_out=2)
    children = edges_of(tree)
    assert children[184] == [72, 44]
    assert children[72] == [68]
    assert children[61] == [88, 97]
    assert children[88] == [234, 90]
    assert not {68, 234, 90} & children.keys()


def test_a_cap_gives_way_where_relays_are_too_few() -> None:
    children = edges_of(with_leaves(68, 234, 90, 72, 44, 88, fan_out=2))
    assert {each: len(found) for each, found in children.items()} == {74: 2, 98: 1, 64: 1, 184: 3, 61: 2, 97: 2}


def test_stronger_members_relay_first_under_a_cap() -> None:
    members = [view_member(f"{BED}{each}", capacity=2 if each == 97 else 1) for each in LISTED]
    children = edges_of(DisseminationTree(f"{BED}74", members, 2))
    assert children[184][0] == 97
    assert 97 in children


# -- views -------------------------------------------------------------------------------------------------------------


def test_the_id_of_a_view_covers_all_that_a_tree_depends_on() -> None:
    members = [view_member(node) for node in "abc"]
    view = group_view("g", 1, members)
    assert view.fan_out == FAN_OUT
    assert view.view_id == group_view("g", 2, members[::-1]).view_id
    others = [
        group_view("h", 1, members),
        group_view("g", 1, members[1:]),
        group_view("g", 1, members, fan_out=3),
        group_view("g", 1, [*members[1:], view_member("a", capacity=0)]),
    ]
    assert len({view.view_id, *(other.view_id for other in others)}) == 5


def test_the_next_view_has_who_joined_and_not_who_left() -> None:
    view = group_view("g", 3, [view_member(node) for node in "abc"], 2)
    following = next_view(view, [view_member("d")], "a", [view_member("c", capacity=0), view_member("x")])
    assert (following.number, following.fan_out, following.nodes) == (4, 2, frozenset("bcd"))
    assert [member.capacity for member in following.members] == [1, 0, 1]
    assert view_tree(following, "s").may_relay("d")
    assert not view_tree(following, "s").may_relay("c")


def test_a_view_has_no_node_twice_and_not_too_many() -> None:
    with pytest.raises(ValueError, match="twice"):
        group_view("g", 1, [view_member("a"), view_member("a", "elsewhere")])
    with pytest.raises(ValueError, match="more than"):
        group_view("g", 1, [ViewMember(f"{number}", number) for number in range(4_097)])


def test_members_of_one_lan_segment_are_a_group() -> None:
    members = [
        view_member("a", "10.1.2.3"),
        view_member("b", "10.1.2.200"),
        view_member("c", "10.1.3.4"),
        view_member("d", "10.1.3.5", segment="hall"),
        view_member("e", "fe80::1:2"),
        view_member("f", "host.example"),
    ]
    found = {segment: [member.node for member in each] for segment, each in by_segment(members).items()}
    assert found == {"10.1.2.0/24": ["a", "b"], "10.1.3.0/24": ["c"], "hall": ["d"], segment_of(members[4]): ["e"]}
    assert segment_of(members[4]) == "fe80:0000:0000:0000::/64"
