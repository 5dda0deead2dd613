"""The dissemination tree of a source and a group: buckets, and who serves whom [LBDD 2.1, 2.2, 2.7].

The distance of two nodes is the XOR of their digests. Members whose distance to the source has m bits are in bucket m.
Half of the members are in bucket 32, a quarter in 31, and so on. The source serves the lowest bucket that is not empty,
the members of each bucket share those of the next one, and nobody serves lower ones: no cycle can arise. Each node
computes its children and its parent from the view alone, without a message.

With a cap F, a node that would have more than F children in its range serves the first F, and child i serves the
children F*i + 1 to F*i + F of the same range. So nobody serves more than 2F.

Members of the class LEAF_CAPACITY never relay. Of each bucket the relays share the relays of the next one, and
separately its leaves. A bucket without any relay becomes part of the next one that has some.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from edgebroker.dissemination.group_view import FAN_OUT, LEAF_CAPACITY, GroupView, ViewMember, digest_of

DIGEST_BITS: Final = 32

MemberKey = tuple[int, int, str]
"""The order inside a bucket: the larger capacity class first, then by digest, then by node id (T5)."""


def bucket_of(digest: int, source_digest: int) -> int:
    """Return the bucket of a member. Bucket 0 is the source alone: a member with its digest is in bucket 1 (T4)."""
    return max(1, (digest ^ source_digest).bit_length())


def served_range(rank: int, servers: int, served: int) -> range:
    """Return the positions, from 0, that the member *rank* (from 1) of *servers* serves in a list of *served*.

    The ranges of all ranks are disjoint, in order, cover the list, and differ by one position at most [LBDD 2.2].
    """
    return range((rank - 1) * served // servers, rank * served // servers)


def serving_rank(position: int, servers: int, served: int) -> int:
    """Return the rank, from 1, of the member that serves *position*, from 0: the inverse of `served_range`."""
    return -(-(position + 1) * servers // served)


class TreeLayer:
    """A bucket, with the leaves of those below it that have no relay."""

    __slots__ = ("leaves", "relays")

    def __init__(self, relays: list[MemberKey], leaves: list[MemberKey]) -> None:
        self.relays = relays
        self.leaves = leaves

    def range_of(self, rank: int, servers: int) -> list[str]:
        """Return the nodes that the relay *rank* of the layer below, which has *servers*, is to serve: relays first."""
        relays, leaves = self.relays, self.leaves
        first = served_range(rank, servers, len(relays))
        last = served_range(rank, servers, len(leaves))
        return [key[2] for key in (*relays[first.start : first.stop], *leaves[last.start : last.stop])]


class DisseminationTree:
    """Who serves whom in one group, seen from one source. It does not change: an update makes another one."""

    __slots__ = ("_buckets", "_keys", "_layers", "_places", "_source_digest", "fan_out", "source")

    def __init__(self, source: str, members: Iterable[ViewMember], fan_out: int = FAN_OUT) -> None:
        """*source* is the node that sends; as a member it is left out. fan_out: the cap F; 0: none, as published."""
        self.source = source
        self.fan_out = fan_out
        self._source_digest = digest = digest_of(source)
        buckets: dict[int, list[MemberKey]] = {}
        keys: dict[str, MemberKey] = {}
        for member in members:
            node = member.node
            if node != source:
                keys[node] = key = (-member.capacity, member.digest, node)
                buckets.setdefault(bucket_of(member.digest, digest), []).append(key)
        for bucket in buckets.values():
            bucket.sort()
        self._keys = keys
        self._buckets = buckets
        self._arrange()

    # -- updates ------------------------------------------------------------------------------------------------------

    def joined(self, member: ViewMember) -> DisseminationTree:
        """Return the tree with *member*, which takes the place of one with the same node id."""
        if member.node == self.source:
            return self
        tree = self.left(member.node)._copy()
        key = (-member.capacity, member.digest, member.node)
        number = bucket_of(member.digest, self._source_digest)
        bucket = [*tree._buckets.get(number, ())]
        insort(bucket, key)
        tree._keys[member.node] = key
        tree._buckets[number] = bucket
        tree._arrange()
        return tree

    def left(self, node: str) -> DisseminationTree:
        """Return the tree without *node*, which need not be a member."""
        if node not in self._keys:
            return self
        tree = self._copy()
        key = tree._keys.pop(node)
        number = bucket_of(key[1], self._source_digest)
        tree._buckets[number] = [each for each in tree._buckets[number] if each is not key]
        tree._arrange()
        return tree

    def _copy(self) -> DisseminationTree:
        tree = DisseminationTree(self.source, (), self.fan_out)
        tree._keys = {**self._keys}
        tree._buckets = {**self._buckets}
        return tree

    def _arrange(self) -> None:
        """Make layers of the buckets: all but the last one have a relay."""
        layers: list[TreeLayer] = []
        places: dict[int, int] = {}
        waiting: list[MemberKey] = []
        for number in sorted(number for number, bucket in self._buckets.items() if bucket):
            bucket = self._buckets[number]
            relays = bisect_left(bucket, (-LEAF_CAPACITY, -1, ""))
            places[number] = len(layers)
            if relays:
                layers.append(TreeLayer(bucket[:relays], sorted([*waiting, *bucket[relays:]])))
                waiting = []
            else:
                waiting += bucket
        if waiting:
            layers.append(TreeLayer([], sorted(waiting)))
        self._layers = layers
        self._places = places

    # -- members ------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Iterable[str]:
        """Return all members but the source."""
        return self._keys.keys()

    def __contains__(self, node: str) -> bool:
        return node in self._keys

    def bucket(self, node: str) -> int:
        """Return the bucket of a member, or 0 for the source."""
        return 0 if node == self.source else bucket_of(self._keys[node][1], self._source_digest)

    def rank(self, node: str) -> int:
        """Return the position of a member in its bucket, from 1; the source has rank 1."""
        if node == self.source:
            return 1
        return bisect_left(self._buckets[self.bucket(node)], self._keys[node]) + 1

    @property
    def buckets(self) -> list[int]:
        """Return the numbers of the buckets that are not empty, in their order."""
        return sorted(self._places)

    # -- edges --------------------------------------------------------------------------------------------------------

    def may_relay(self, node: str) -> bool:
        """Return whether *node* may have children: it is the source, or a member that is not of LEAF_CAPACITY."""
        return node == self.source or (node in self._keys and self._keys[node][0] < -LEAF_CAPACITY)

    def children(self, node: str) -> tuple[str, ...]:
        """Return the nodes that *node* serves: those of its own range after those of its parent's. Unknown nodes serve
        nobody.
        """
        if node == self.source:
            return tuple(self._first(self._layers[0].range_of(1, 1), 0)) if self._layers else ()
        if not self.may_relay(node):
            return ()
        place, position, shared = self._range(node)
        cap = self._cap(shared, place)
        found = shared[cap * (position + 1) : cap * (position + 2)]
        if place + 1 < len(self._layers):
            relays = self._layers[place].relays
            rank = bisect_left(relays, self._keys[node]) + 1
            found += self._first(self._layers[place + 1].range_of(rank, len(relays)), place + 1)
        return tuple(found)

    def parent(self, node: str) -> str:
        """Return the node that serves the member *node*. Raises KeyError: it is no member."""
        place, position, shared = self._range(node)
        above = position // self._cap(shared, place)
        if above:
            return shared[above - 1]
        return self.source if place == 0 else self._layers[place - 1].relays[self._server(node, place) - 1][2]

    def depth(self, node: str) -> int:
        """Return how many links lie between the source and the member *node*."""
        depth = 0
        while node != self.source:
            node = self.parent(node)
            depth += 1
        return depth

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield every parent with each of its children, the source first, then as they come into the tree."""
        row = [self.source]
        while row:
            found = [(parent, child) for parent in row for child in self.children(parent)]
            yield from found
            row = [child for _, child in found]

    def _place(self, node: str) -> int:
        return self._places[self.bucket(node)]

    def _server(self, node: str, place: int) -> int:
        """Return the rank of the relay, in the layer before *place*, whose range has *node*."""
        key = self._keys[node]
        layer = self._layers[place]
        same = layer.relays if key[0] < -LEAF_CAPACITY else layer.leaves
        servers = len(self._layers[place - 1].relays) if place else 1
        return serving_rank(bisect_left(same, key), servers, len(same))

    def _range(self, node: str) -> tuple[int, int, list[str]]:
        """Return the layer of *node*, its position in the range that it is in, and the range."""
        place = self._place(node)
        servers = len(self._layers[place - 1].relays) if place else 1
        shared = self._layers[place].range_of(self._server(node, place), servers)
        return place, shared.index(node), shared

    def _first(self, shared: list[str], place: int) -> list[str]:
        """Return the nodes of a range that its server serves itself."""
        return shared[: self._cap(shared, place)] if shared else []

    def _cap(self, shared: list[str], place: int) -> int:
        """Return how many nodes of a range its server serves, and each relay in it: F, or more where its relays are too
        few for F.
        """
        if not self.fan_out:
            return len(shared)
        if not self._layers[place].leaves:
            return self.fan_out
        relays = sum([self._keys[node][0] < -LEAF_CAPACITY for node in shared])
        return max(self.fan_out, -(-len(shared) // (relays + 1)))


def view_tree(view: GroupView, source: str) -> DisseminationTree:
    """Return the tree of *view* for the node *source*, which need not be a member."""
    return DisseminationTree(source, view.members, view.fan_out)
