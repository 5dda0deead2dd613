"""Laws of dissemination trees on random groups: one parent each, no cycle, all members reached [LBDD 3.4].

EDGEBROKER_LBDD_GROUPS=100000 runs as many groups; a failure prints the command that repeats one.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from edgebroker.dissemination.group_view import ViewMember, view_member
from edgebroker.dissemination.tree import DisseminationTree, bucket_of

GROUPS = int(os.environ.get("EDGEBROKER_LBDD_GROUPS", "100"))
FIRST = int(os.environ.get("EDGEBROKER_LBDD_FIRST", "0"))
"""The first group, so that one can be run alone."""


def random_member(chance: Random) -> ViewMember:
    return view_member(".".join(str(chance.randrange(256)) for _ in range(4)))


def close_member(chance: Random) -> ViewMember:
    """Digests that collide, with the source's too."""
    return ViewMember(f"node {chance.randrange(10_000)}", chance.choice((0, 1, 2, 3, 1 << 31)))


def check_group(number: int) -> None:
    chance = Random(f"lbdd {number}")
    size = min(chance.randrange(1, 501) for _ in range(4))
    make = close_member if chance.random() < 0.1 else random_member
    members = {member.node: member for member in (make(chance) for _ in range(size))}
    leaves = chance.random() if chance.random() < 0.3 else 0.0
    members = {
        node: ViewMember(node, member.digest, capacity=0 if chance.random() < leaves else 1)
        for node, member in members.items()
    }
    source = random_member(chance).node if chance.random() < 0.8 else chance.choice([*members])
    fan_out = chance.choice((0, 2, 3, 4, 8))
    tree = DisseminationTree(source, members.values(), fan_out)
    if size > 1 and chance.random() < 0.5:  # an update gives the same tree
        changed = chance.choice([*members])
        tree = tree.left(changed).joined(members[changed])
    receivers = members.keys() - {source}
    edges = [*tree.edges()]
    parents = {child: parent for parent, child in edges}
    assert parents.keys() == receivers
    assert len(edges) == len(receivers), "copies = n: the contribution rates add up to 1"
    source_digest = view_member(source).digest
    order = {node: (bucket_of(members[node].digest, source_digest), members[node]) for node in receivers}
    degrees = dict.fromkeys((source, *receivers), 0)
    for parent, child in edges:
        degrees[parent] += 1
        assert tree.parent(child) == parent
        assert parent == source or members[parent].capacity
        if parent != source and not leaves:
            before, after = order[parent], order[child]
            key = (before[0], before[1].digest, parent) < (after[0], after[1].digest, child)
            assert key if fan_out else before[0] < after[0], "edges lead to higher buckets or later positions"
    if fan_out and not leaves:
        assert max(degrees.values()) <= 2 * fan_out
    assert max((tree.depth(node) for node in [*receivers][:20]), default=0) <= len(receivers)


def test_random_groups_form_one_tree() -> None:
    for number in range(FIRST, FIRST + GROUPS):
        try:
            check_group(number)
        except Exception as error:
            repeat = f"EDGEBROKER_LBDD_FIRST={number} EDGEBROKER_LBDD_GROUPS=1 pytest {__file__}"
            pytest.fail(f"group {number}: {error!r}\n{repeat}")
