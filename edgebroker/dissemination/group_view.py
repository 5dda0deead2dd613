"""Members of a dissemination group, and the numbered views of who they are [LBDD 1].

All nodes must agree on the members, for each computes the tree from them by itself. One broker is the authority of a
group: it numbers the views. A view also has an id, a hash of all that the tree depends on.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.digests import blake2b, md5

GROUP_MEMBERS_MIN: Final = 6
"""With fewer members one sender is as quick as a tree [LBDD 2.8, T7]."""
GROUP_MEMBERS_MAX: Final = 4_096
"""Members of one view. A view of so many takes about 200 KB."""
FAN_OUT: Final = 4
"""The usual cap on how many members of its range a node serves; 0: none. Without a cap the most children of a node in
200 random groups of each size averaged 4.6 and reached 20, and a node's rate is its uplink divided by it.
"""
LEAF_CAPACITY: Final = 0
"""Members of this capacity class, on batteries for example, receive and never relay."""
CAPACITY_MAX: Final = 255


def digest_of(node: str) -> int:
    """Return the first 32 bits of the MD5 hash of *node*, a stable node id [LBDD 1 and T10]."""
    return int.from_bytes(md5(node.encode(), usedforsecurity=False).digest()[:4])


@dataclass(frozen=True, slots=True)
class ViewMember:
    """A node that receives what is sent to the group."""

    node: str
    digest: int
    address: str = ""
    """Where other members reach it, for the transport alone."""
    capacity: int = 1
    """A capacity class: those with a larger number are asked first to relay, those of LEAF_CAPACITY never."""
    segment: str = ""
    """The LAN segment that the member announced; empty: the network of its address."""


def view_member(node: str, address: str = "", capacity: int = 1, segment: str = "") -> ViewMember:
    """Return a member with the digest of its node id."""
    return ViewMember(node, digest_of(node), address, capacity, segment)


def segment_of(member: ViewMember) -> str:
    """Return the LAN segment of *member*: the announced one, else the /24 or /64 network of its address, else empty."""
    if member.segment:
        return member.segment
    try:
        address = ip_address(member.address)
    except ValueError:
        return ""
    if address.version == 4:
        return f"{address}".rpartition(".")[0] + ".0/24"
    return ":".join(address.exploded.split(":")[:4]) + "::/64"


def by_segment(members: Iterable[ViewMember]) -> dict[str, tuple[ViewMember, ...]]:
    """Return the members of each LAN segment. Those without one are left out: nobody is known to reach them."""
    found: dict[str, list[ViewMember]] = {}
    for member in members:
        if segment := segment_of(member):
            found.setdefault(segment, []).append(member)
    return {segment: tuple(each) for segment, each in found.items()}


@dataclass(frozen=True, slots=True)
class GroupView:
    """Who is in a group, from its `number` on until the next view."""

    group: str
    number: int
    """Counts the views of the group's authority, from 1."""
    members: tuple[ViewMember, ...]
    """In the order of their node ids, without doubles."""
    fan_out: int
    """The cap on how many members of its range a node serves; 0: none."""
    view_id: int
    """64 bits: a hash of the group, its members with their capacities, and the cap."""

    @property
    def nodes(self) -> frozenset[str]:
        """Return the node ids of all members."""
        return frozenset([member.node for member in self.members])


def group_view(group: str, number: int, members: Iterable[ViewMember], fan_out: int = FAN_OUT) -> GroupView:
    """Return a view with its id. Raises ValueError: a node is there twice, or there are too many."""
    ordered = tuple(sorted(members, key=lambda member: member.node))
    nodes = {member.node for member in ordered}
    if len(nodes) < len(ordered):
        raise ValueError(f"a node is twice in a view of group {group}")
    if len(ordered) > GROUP_MEMBERS_MAX:
        raise ValueError(f"group {group} has more than {GROUP_MEMBERS_MAX:,} members")
    lines = [f"{group}\n{fan_out}", *[f"{member.node}\t{member.capacity}" for member in ordered]]
    found = blake2b("\n".join(lines).encode(), digest_size=8).digest()
    return GroupView(group, number, ordered, fan_out, int.from_bytes(found))


def next_view(
    view: GroupView, joined: Iterable[ViewMember] = (), left: Iterable[str] = (), changed: Iterable[ViewMember] = ()
) -> GroupView:
    """Return the view after *view*: without the nodes *left*, with those *joined*, and with *changed* instead of the
    members of the same node ids.
    """
    members = {member.node: member for member in view.members}
    for node in left:
        members.pop(node, None)
    members.update((member.node, member) for member in changed if member.node in members)
    members.update((member.node, member) for member in joined)
    return group_view(view.group, view.number + 1, members.values(), view.fan_out)
