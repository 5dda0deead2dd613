"""The children of a node in one stream: who gets which slice next, inside a window [LBDD 2.3].

Slices go to all children in turn, each in the order of the stream, and to each as far as its credit reaches. The lowest
slice that an attached child still needs holds the node back: it is kept, and no more than a ring of slices after it is
taken from the parent. So a child that is slow slows its parent down, up to a point: who has not taken a single slice
for `patience` while the ring is full is left behind, and asks the source by itself. Children that come from a dead
parent may be far behind the ring. They hold nobody up, and get what they lack by REPAIR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.dissemination.messages import SendToMember, StreamSlice, StreamStart
from edgebroker.instants import MILLISECOND, SECOND, Duration


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Windows and times of a stream. All nodes have the same windows."""

    window: int = 8
    """Slices that may be under way to a child."""
    ring: int = 64
    """The last slices that a relay keeps for others: 4 MiB."""
    patience: Duration = 3 * SECOND
    """A child that takes no slice for so long while the ring is full is left behind."""
    stall: Duration = 6 * SECOND
    """A receiver that gets no slice for so long asks the source. Twice the time after which a dead parent is noticed:
    the tree is repaired first, and the source is not asked by a whole subtree.
    """
    give_up: Duration = 120 * SECOND
    """A stream that makes no progress for so long has failed."""
    linger: Duration = 60 * SECOND
    """How long a receiver that has everything still helps others."""
    flush: Duration = SECOND
    """Reports of members wait so long at a relay for those of others."""


class ChildState(Enum):
    """What a child takes."""

    OFFERED = "was told of the stream, and may have another parent"
    ATTACHED = "gets slices"
    LEFT_BEHIND = "took nothing for too long, and gets none"
    DONE = "has reported that it has all of them"


class ChildEvent(Enum):
    """What happens to a child."""

    RESUME = "asks for the stream"
    PATIENCE_ENDED = "holds up the ring for too long"
    REPORT = "has everything"


CHILD_TRANSITIONS: Final = {
    (ChildState.OFFERED, ChildEvent.RESUME): ChildState.ATTACHED,
    (ChildState.ATTACHED, ChildEvent.RESUME): ChildState.ATTACHED,
    (ChildState.LEFT_BEHIND, ChildEvent.RESUME): ChildState.ATTACHED,
    (ChildState.DONE, ChildEvent.RESUME): ChildState.ATTACHED,  # it was started anew, without its data
    (ChildState.ATTACHED, ChildEvent.PATIENCE_ENDED): ChildState.LEFT_BEHIND,
    (ChildState.OFFERED, ChildEvent.REPORT): ChildState.DONE,
    (ChildState.ATTACHED, ChildEvent.REPORT): ChildState.DONE,
    (ChildState.LEFT_BEHIND, ChildEvent.REPORT): ChildState.DONE,
    (ChildState.DONE, ChildEvent.REPORT): ChildState.DONE,
}
"""What is missing changes nothing."""


class StreamChild:
    """A child: its state, its next slice, and how far its credit reaches."""

    __slots__ = ("limit", "next", "state")

    def __init__(self, state: ChildState, following: int, limit: int) -> None:
        self.state = state
        self.next = following
        self.limit = limit


class StreamChildren:
    """All children of a node in one stream."""

    def __init__(self, start: StreamStart, options: StreamOptions) -> None:
        self._start = start
        self._options = options
        self._children: dict[str, StreamChild] = {}
        self._turn = 0

    def __contains__(self, node: str) -> bool:
        return node in self._children

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    @property
    def start(self) -> StreamStart:
        """Return what children are told of the stream."""
        return self._start

    def begin(self, nodes: Iterable[str]) -> list[SendToMember]:
        """Announce the stream to the first children, which have one window of credit."""
        return [self._announce(node, ChildState.ATTACHED) for node in nodes if node not in self._children]

    def offer(self, nodes: Iterable[str]) -> list[SendToMember]:
        """Announce the stream to nodes that may have it from somebody else. They answer with RESUME, or not at all."""
        known = self._children
        return [
            self._announce(node, ChildState.OFFERED)
            for node in nodes
            if node not in known or known[node].state in (ChildState.OFFERED, ChildState.LEFT_BEHIND)
        ]

    def _announce(self, node: str, state: ChildState) -> SendToMember:
        is_whole = bool(self._start.content) or not self._start.size
        self._children[node] = StreamChild(state, int(is_whole), min(self._options.window, self._start.count))
        return SendToMember(node, self._start)

    def change(self, node: str, event: ChildEvent) -> bool:
        """Let *event* happen to a child. Returns whether it changed anything."""
        child = self._children.get(node)
        if child is None or (state := CHILD_TRANSITIONS.get((child.state, event))) is None:
            return False
        child.state = state
        return True

    def resume(self, node: str, first: int) -> None:
        """Attach *node*, which lacks the slices from *first* on."""
        if node not in self._children:
            self._children[node] = StreamChild(ChildState.OFFERED, first, first)
        child = self._children[node]
        self.change(node, ChildEvent.RESUME)
        child.next = first
        child.limit = first + self._options.window

    def allow(self, node: str, limit: int) -> None:
        """Extend the credit of a child: never by more than a window over what it was sent."""
        child = self._children.get(node)
        if child is not None:
            child.limit = max(child.limit, min(limit, child.next + self._options.window, self._start.count))

    def remove(self, nodes: Iterable[str]) -> None:
        """Forget children."""
        for node in nodes:
            self._children.pop(node, None)

    @property
    def attached(self) -> list[tuple[str, StreamChild]]:
        """Return the children that get slices."""
        return [item for item in self._children.items() if item[1].state is ChildState.ATTACHED]

    def hold(self, lowest: int) -> int | None:
        """Return the lowest slice, from *lowest* on, that an attached child still needs; None: there is none."""
        return min([child.next for _, child in self.attached if child.next >= lowest], default=None)

    def leave_behind(self, number: int) -> list[str]:
        """Leave behind those that need slice *number* next, and return them."""
        slow = [node for node, child in self.attached if child.next == number]
        for node in slow:
            self.change(node, ChildEvent.PATIENCE_ENDED)
        return slow

    def pump(self, slice_of: Callable[[int], StreamSlice | None]) -> list[SendToMember]:
        """Send slices to children in turn, as long as one has credit and `slice_of` has its next slice."""
        attached = self.attached
        effects: list[SendToMember] = []
        waiting = len(attached)
        while attached and waiting:
            self._turn = turn = (self._turn + 1) % len(attached)
            node, child = attached[turn]
            found = slice_of(child.next) if child.next < min(child.limit, self._start.count) else None
            if found is None:
                waiting -= 1
                continue
            waiting = len(attached)
            child.next += 1
            effects.append(SendToMember(node, found))
        return effects


LATE_CHECK: Final[Duration] = 500 * MILLISECOND
"""How often a stream looks at its times."""
