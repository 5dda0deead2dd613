"""Graphs as an oracle sees them: distances, and connectivity by maximum flow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import combinations


class Graph:
    """A graph as the oracle sees it: any vertices and the edges between them."""

    def __init__(self, vertices: Iterable[object], edges: Iterable[tuple[object, object]]) -> None:
        self.around: dict[object, set[object]] = {vertex: set() for vertex in vertices}
        for one, other in edges:
            assert other not in self.around[one], "twice"
            assert one != other
            self.around[one].add(other)
            self.around[other].add(one)

    def distances(self, start: object) -> dict[object, int]:
        found = {start: 0}
        waiting = deque([start])
        while waiting:
            one = waiting.popleft()
            for other in self.around[one] - found.keys():
                found[other] = found[one] + 1
                waiting.append(other)
        return found

    def diameter(self) -> int:
        return max(max(self.distances(vertex).values()) for vertex in self.around)

    def edge_cut(self, source: object, sink: object) -> int:
        """The least number of edges between two vertices: as many as there are paths without a common edge."""
        return flow({(one, other): 1 for one, others in self.around.items() for other in others}, source, sink)

    def vertex_cut(self, source: object, sink: object) -> int:
        """The same for vertices, each of which is split into one where edges arrive and one where they leave."""
        room = {((one, "in"), (one, "out")): 1 for one in self.around}
        room |= {((one, "out"), (other, "in")): 1 for one, others in self.around.items() for other in others}
        return flow(room, (source, "out"), (sink, "in"))

    def kappa(self) -> int:
        pairs = [(one, other) for one, other in combinations(self.around, 2) if other not in self.around[one]]
        return min((self.vertex_cut(*pair) for pair in pairs), default=len(self.around) - 1)

    def lambda_(self) -> int:
        first, *others = self.around
        return min((self.edge_cut(first, other) for other in others), default=0)


def flow(room: dict[tuple[object, object], int], source: object, sink: object) -> int:
    """Maximum flow, one augmenting path of 1 after another (Ford and Fulkerson)."""
    left = dict(room)
    around: dict[object, set[object]] = {}
    for one, other in room:
        around.setdefault(one, set()).add(other)
        around.setdefault(other, set()).add(one)
    total = 0
    while True:
        before: dict[object, object] = {source: source}
        waiting = deque([source])
        while waiting and sink not in before:
            one = waiting.popleft()
            for other in around[one]:
                if other not in before and left.get((one, other), 0):
                    before[other] = one
                    waiting.append(other)
        if sink not in before:
            return total
        total += 1
        at = sink
        while at != source:
            left[before[at], at] -= 1
            left[at, before[at]] = left.get((at, before[at]), 0) + 1
            at = before[at]
