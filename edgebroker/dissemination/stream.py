"""One stream at one node: its source, or a receiver that relays it [LBDD 2.3, 2.4].

The source announces the stream to its children, and sends slices inside the windows of `stream_children`. A receiver
checks each slice against the content hash, delivers the stream in order, and sends each slice on at once.

*Where a receiver gets slices.* From its parent in the tree; or, if nothing comes for `stall` or the parent sent a wrong
slice, from the source, which it asks for one window after the other (PULL). A new parent ends that.

*A new view.* Parents and children stay, as long as they live. Whoever has lost its parent sends RESUME to the one that
it has in the tree of those members of the stream's view that are in the new view, too. Edges lead from lower to higher
buckets in all these trees, so that no mixture of them has a cycle. A parent serves RESUME from its ring, and asks its
own parent for older slices (REPAIR). Nodes that joined since the stream began do not get it.

*The end.* Reports of those that have everything travel to the source, several in one message. If nothing happens any
more and some are missing the source offers the stream to them directly: their reports, or the announcement, were lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.dissemination.group_view import GroupView
from edgebroker.dissemination.messages import (
    DoneReport,
    SendToMember,
    SliceRepair,
    StreamCredit,
    StreamDone,
    StreamResume,
    StreamSlice,
    StreamStart,
)
from edgebroker.dissemination.slice_hashes import is_proven
from edgebroker.dissemination.stream_children import ChildEvent, StreamChildren, StreamOptions
from edgebroker.dissemination.tree import DisseminationTree
from edgebroker.instants import NEVER, Instant

REQUESTS_MAX: Final = 1_024
"""Slices that a relay looks for on behalf of others, at a time."""


@dataclass(frozen=True, slots=True)
class DeliverSlice:
    """An effect: the next slice of a stream is here, checked. They come in order, each once."""

    stream: int
    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """An effect: a receiver has the whole stream or gives up; at the source: all members have it, or it gives up."""

    stream: int
    is_complete: bool
    missing: tuple[str, ...] = ()
    """At the source: members that did not report."""


@dataclass(frozen=True, slots=True)
class MemberDone:
    """An effect at the source: a member has the whole stream."""

    stream: int
    report: DoneReport


@dataclass(frozen=True, slots=True)
class RelayFault:
    """An effect at the source: a member says that a relay sent it a wrong slice."""

    stream: int
    relay: str
    witness: str


StreamEffect: TypeAlias = SendToMember | DeliverSlice | StreamEnd | MemberDone | RelayFault


class ReceiverState(Enum):
    """Where the slices of a receiver come from."""

    FED = "its parent sends them"
    PULL = "it asks the source"
    COMPLETE = "it has all of them"
    FAILED = "it has given up"


class ReceiverEvent(Enum):
    """What changes that."""

    STALL = "nothing came for too long"
    LIE = "the parent sent a wrong slice"
    NEW_PARENT = "it has another parent"
    LAST_SLICE = "the last slice is here"
    GIVE_UP = "nothing came for far too long"


RECEIVER_TRANSITIONS: Final = {
    (ReceiverState.FED, ReceiverEvent.STALL): ReceiverState.PULL,
    (ReceiverState.FED, ReceiverEvent.LIE): ReceiverState.PULL,
    (ReceiverState.FED, ReceiverEvent.NEW_PARENT): ReceiverState.FED,
    (ReceiverState.FED, ReceiverEvent.LAST_SLICE): ReceiverState.COMPLETE,
    (ReceiverState.FED, ReceiverEvent.GIVE_UP): ReceiverState.FAILED,
    (ReceiverState.PULL, ReceiverEvent.STALL): ReceiverState.PULL,
    (ReceiverState.PULL, ReceiverEvent.LIE): ReceiverState.PULL,
    (ReceiverState.PULL, ReceiverEvent.NEW_PARENT): ReceiverState.FED,
    (ReceiverState.PULL, ReceiverEvent.LAST_SLICE): ReceiverState.COMPLETE,
    (ReceiverState.PULL, ReceiverEvent.GIVE_UP): ReceiverState.FAILED,
}
"""What is missing changes nothing: an end is an end."""


@dataclass(slots=True)
class ReceiverCounters:
    """What a receiver has counted."""

    duplicates: int = 0
    """Slices that were here already."""
    wrong: int = 0
    """Slices that do not have the hash of the stream."""
    refused: int = 0
    """Slices with an impossible number, or too far ahead."""
    repairs: int = 0
    """Slices that were asked for one by one."""


def survivors(started: GroupView, now: GroupView, source: str) -> DisseminationTree:
    """Return the tree of those members of the view *started* that are in the view *now* as well, as they are now."""
    nodes = started.nodes
    return DisseminationTree(source, [each for each in now.members if each.node in nodes], started.fan_out)


class StreamReceiver:
    """A stream at a member."""

    def __init__(self, node: str, parent: str, start: StreamStart, now: Instant, options: StreamOptions) -> None:
        """parent: who sent *start*."""
        self.node = node
        self.parent = parent
        self.state = ReceiverState.FED
        self.counters = ReceiverCounters()
        self.next = 0
        """The first slice that is missing."""
        self._options = options
        self._count = start.count
        self._start = start
        self._children = StreamChildren(start, options)
        self._slices: dict[int, StreamSlice] = {}
        """The ring, slices that came early, and older ones that children need."""
        self._tree: DisseminationTree | None = None
        self._view: GroupView | None = None
        self._granted = min(options.window, self._count)
        self._asked: dict[int, Instant] = {}
        """Older slices that were asked for, and when."""
        self._requests: dict[int, list[str]] = {}
        """Slices that others asked for, which are not here yet."""
        self._pulled = 0
        """The end of the window that the source was asked for."""
        self._stalls = 0
        """How often the source was asked since the last slice. It is asked for one slice, and after twice the time each
        time: if the source is what is slow, windows that are asked for again and again would pile up there.
        """
        self._avoided = ""
        """The parent that sent nothing, or wrong slices."""
        self._began = self._progress = self._used = self._pulled_at = now
        self._hold: tuple[int | None, Instant] = (None, now)
        self._reports: dict[str, DoneReport] = {}
        self._unsent: list[DoneReport] = []
        self._unsent_since = NEVER

    @property
    def start(self) -> StreamStart:
        """Return the announcement, as it came."""
        return self._start

    @property
    def report(self) -> DoneReport | None:
        """Return the report of this node, once it has everything."""
        return self._reports.get(self.node)

    @property
    def is_ended(self) -> bool:
        return self.state in (ReceiverState.COMPLETE, ReceiverState.FAILED)

    def is_over(self, now: Instant) -> bool:
        """Return whether nobody will need the stream here any more."""
        return self.is_ended and not self._unsent and now - self._used >= self._options.linger

    def _change(self, event: ReceiverEvent) -> bool:
        state = RECEIVER_TRANSITIONS.get((self.state, event))
        if state is None:
            return False
        self.state = state
        return True

    # -- views --------------------------------------------------------------------------------------------------------

    def begin(self, view: GroupView, newest: GroupView, now: Instant) -> list[StreamEffect]:
        """Announce the stream to the children of this node in *view*, the stream's, as far as *newest* still has
        them.
        """
        self._view = view
        self._tree = survivors(view, newest, self._start.source)
        start = self._start
        if start.content and not self.next:  # its content is wrong: children get it as a slice
            self._children = StreamChildren(replace(start, content=b""), self._options)
        effects: list[StreamEffect] = [*self._children.begin(self._tree.children(self.node))]
        return effects + self._follow_parent(now) + self._go_on(now)

    def change_view(self, newest: GroupView, now: Instant) -> list[StreamEffect]:
        """Take the next view: forget children that left, find a new parent if the old one left or may not relay, and
        offer the stream to those whose parent this node may be now.
        """
        if self._view is None:
            return []
        self._tree = tree = survivors(self._view, newest, self._start.source)
        nodes = newest.nodes
        gone = [node for node in self._children if node not in nodes]
        self._children.remove(gone if tree.may_relay(self.node) else [*self._children])
        waiting = {number: [node for node in each if node in nodes] for number, each in self._requests.items()}
        self._requests = {number: each for number, each in waiting.items() if each}
        effects = self._follow_parent(now)
        if self.state is not ReceiverState.FAILED:
            effects += self._children.offer(node for node in tree.children(self.node) if node not in self._children)
        return effects + self._go_on(now)

    def _follow_parent(self, now: Instant) -> list[StreamEffect]:
        """Turn to the parent of the tree if this node has lost its own, or asks the source for want of another."""
        tree, source = self._tree, self._start.source
        if tree is None or self.node not in tree:
            return []
        parent = tree.parent(self.node)
        is_lost = self.parent != source and not tree.may_relay(self.parent)
        if not is_lost and (self.state is not ReceiverState.PULL or parent == self._avoided):
            return []
        self.parent = parent
        if self._change(ReceiverEvent.NEW_PARENT):
            return self._resume(now)
        self._unsent = [*self._reports.values()]  # the old parent may have taken reports with it
        return self._flush()

    def _resume(self, now: Instant) -> list[StreamEffect]:
        self._granted = min(self.next + self._options.window, self._count)
        self._progress = now
        self._asked.clear()
        self._unsent = [*self._reports.values()]
        return [SendToMember(self.parent, StreamResume(self._start.stream, self.next)), *self._flush()]

    # -- messages -----------------------------------------------------------------------------------------------------

    def offered(self, sender: str, now: Instant) -> list[StreamEffect]:
        """Take a repeated STREAM_START. A member that has everything reports again. One that asks the source for slices
        is fed by it, if the source offers that. Others keep their parents: who needs a new one asks by itself.
        """
        source = self._start.source
        if self.state is ReceiverState.COMPLETE:
            reports = self._reports.values() if sender == source else [self._reports[self.node]]
            return [SendToMember(sender, StreamDone(self._start.stream, tuple(reports)))]
        if sender != source or self.state is ReceiverState.FAILED:
            return []
        if self.state is ReceiverState.FED:  # a sign of life, so that the source does not give up
            return [SendToMember(source, StreamCredit(self._start.stream, self._granted))]
        self._change(ReceiverEvent.NEW_PARENT)
        return self._resume(now)

    def receive_slice(self, sender: str, message: StreamSlice, now: Instant) -> list[StreamEffect]:
        """Check a slice, keep it, deliver what is next, and send it on."""
        number, next_slice = message.number, self.next
        is_late = number < next_slice
        if number >= self._count or number >= next_slice + 2 * self._options.window:
            self.counters.refused += 1
            return []
        if number in self._slices or (is_late and number not in self._asked and number not in self._requests):
            self.counters.duplicates += 1
            return []
        start = self._start
        if len(message.content) != start.size_of(number) or not is_proven(
            message.content, message.proof, number, self._count, start.content_hash
        ):
            return self._accuse(sender, number, now)
        self._asked.pop(number, None)
        self._slices[number] = message
        self._progress = self._used = now
        self._stalls = 0
        effects: list[StreamEffect] = []
        for node in self._requests.pop(number, ()):
            effects.append(SendToMember(node, message))
        while (found := self._slices.get(self.next)) is not None and not self.is_ended:
            effects.append(DeliverSlice(start.stream, self.next, found.content))
            self.next += 1
            if self.next == self._count:
                effects += self._complete(now)
        return effects + self._go_on(now)

    def _accuse(self, sender: str, number: int, now: Instant) -> list[StreamEffect]:
        """Tell the source who sent a wrong slice, and ask it for the window that begins with the first missing one."""
        self.counters.wrong += 1
        source, first, end = self._start.source, number, number + 1
        self._asked.pop(number, None)
        if sender == source:  # its own transport is broken; it is asked again after `stall`
            return []
        if sender == self.parent and self._change(ReceiverEvent.LIE):
            self._turn_to_source(now)
            if number >= self.next < self._limit:
                first, end = self.next, self._limit
                self._pulled = end
        elif number >= self.next:
            return []  # the source is asked for it anyway
        if number < self.next:
            self._asked[number] = now
        self.counters.repairs += end - first
        return [SendToMember(source, SliceRepair(self._start.stream, first, end, sender))]

    def _turn_to_source(self, now: Instant) -> None:
        if self.parent != self._start.source:
            self._avoided = self.parent
        self.parent = self._start.source
        self._pulled = self.next
        self._pulled_at = now

    def receive_resume(self, sender: str, first: int, now: Instant) -> list[StreamEffect]:
        """Attach a member, which lacks the slices from *first* on."""
        if self.state is ReceiverState.FAILED or first > self._count:
            return []
        self._children.resume(sender, first)
        self._used = now
        return self._go_on(now)

    def receive_credit(self, sender: str, limit: int, now: Instant) -> list[StreamEffect]:
        """Extend the window of a child."""
        self._used = now
        self._children.allow(sender, limit)
        return self._go_on(now)

    def receive_repair(self, sender: str, first: int, end: int, now: Instant) -> list[StreamEffect]:
        """Send single slices: those of the ring at once, others as soon as the parent has sent them again."""
        effects: list[StreamEffect] = []
        self._used = now
        for number in range(first, min(end, first + self._options.window, self._count)):
            found = self._slices.get(number)
            if found is not None:
                effects.append(SendToMember(sender, found))
            elif number in self._requests or len(self._requests) < REQUESTS_MAX:
                waiting = self._requests.setdefault(number, [])
                if sender not in waiting:
                    waiting.append(sender)
        return effects + self._go_on(now)

    def receive_done(self, sender: str, reports: Iterable[DoneReport], now: Instant) -> list[StreamEffect]:
        """Take reports of members behind this node, to hand them on."""
        for report in reports:
            if report.node == sender:
                self._children.change(sender, ChildEvent.REPORT)
            self._report(report, now)
        self._used = now
        return self._go_on(now)

    # -- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now: Instant) -> list[StreamEffect]:
        """Look at all times. Call it every LATE_CHECK."""
        effects: list[StreamEffect] = []
        options = self._options
        hold = self._children.hold(self._lowest)
        if hold != self._hold[0]:
            self._hold = hold, now
        is_full = hold is not None and (self.next >= hold + options.ring or self.is_ended)
        if not is_full:
            self._hold = hold, now
        elif hold is not None and now - self._hold[1] >= options.patience:
            self._children.leave_behind(hold)
            self._hold = None, now
        if not self.is_ended:
            effects += self._tick_upstream(now)
        if self._unsent and now - self._unsent_since >= options.flush:
            effects += self._flush()
        for number, asked_at in [*self._asked.items()]:
            if now - asked_at >= options.patience:
                del self._asked[number]
        return effects + self._go_on(now)

    def _tick_upstream(self, now: Instant) -> list[StreamEffect]:
        options = self._options
        if self.next >= self._limit:
            self._progress = now  # it takes nothing itself, because of its children
        elif now - self._progress >= options.give_up:
            self._change(ReceiverEvent.GIVE_UP)
            return [StreamEnd(self._start.stream, False)]
        elif now - max(self._progress, self._pulled_at) >= options.stall << self._stalls:
            self._change(ReceiverEvent.STALL)
            self._turn_to_source(now)
            self._stalls += 1
            self._pulled = self.next + 1
            self.counters.repairs += 1
            return [SendToMember(self.parent, SliceRepair(self._start.stream, self.next, self.next + 1))]
        return []

    # -- what follows from all of that --------------------------------------------------------------------------------

    def _go_on(self, now: Instant) -> list[StreamEffect]:
        """Send what children may get, ask for what they lack, forget old slices, and extend the parent's credit."""
        effects: list[StreamEffect] = []
        if self._tree is not None and self.state is not ReceiverState.FAILED:
            effects += self._children.pump(self._slices.get)
            effects += self._ask_for_older(now)
        self._trim()
        if not self.is_ended:
            effects += self._extend_credit()
        elif self._tree is not None and not self._children.attached:
            effects += self._flush()
        return effects

    def _ask_for_older(self, now: Instant) -> list[StreamEffect]:
        """Ask for slices before `next` that children or others need and that are not here."""
        needed = {number for number, waiting in self._requests.items() if waiting and number < self.next}
        for _, child in self._children.attached:
            if child.next < self.next and child.next not in self._slices:
                needed.update(range(child.next, min(child.limit, self.next)))
        needed -= self._slices.keys()
        needed -= self._asked.keys()
        if not needed:
            return []
        effects: list[StreamEffect] = []
        for first, end in _runs(sorted(needed), self._options.window):
            self._asked.update(dict.fromkeys(range(first, end), now))
            self.counters.repairs += end - first
            effects.append(SendToMember(self.parent, SliceRepair(self._start.stream, first, end)))
        return effects

    def _trim(self) -> None:
        """Keep the ring, and older slices that a child gets next."""
        if len(self._slices) <= self._options.ring:
            return
        lowest = self._lowest
        spans = [(child.next, child.limit) for _, child in self._children.attached if child.next < lowest]
        for number in [number for number in self._slices if number < lowest]:
            if not any(first <= number < end for first, end in spans):
                del self._slices[number]

    @property
    def _lowest(self) -> int:
        """The oldest slice of the ring. It is a window longer than what children may hold up: so much may be under way
        from a new parent.
        """
        return self.next - self._options.ring - self._options.window

    @property
    def _limit(self) -> int:
        """The first slice that this node does not take yet."""
        hold = self._children.hold(self._lowest) if self._tree is not None else 0
        limit = min(self._count, self.next + self._options.window)
        return limit if hold is None else min(limit, hold + self._options.ring)

    def _extend_credit(self) -> list[StreamEffect]:
        limit, stream = self._limit, self._start.stream
        if self.state is ReceiverState.PULL:
            if self.next < self._pulled or limit <= self.next:
                return []
            self._pulled = limit
            self.counters.repairs += limit - self.next
            return [SendToMember(self._start.source, SliceRepair(stream, self.next, limit))]
        more = limit - self._granted
        if more <= 0 or not (more >= self._options.window // 2 or self.next >= self._granted or limit == self._count):
            return []
        self._granted = limit
        return [SendToMember(self.parent, StreamCredit(stream, limit))]

    # -- the end ------------------------------------------------------------------------------------------------------

    def _complete(self, now: Instant) -> list[StreamEffect]:
        self._change(ReceiverEvent.LAST_SLICE)
        self._report(DoneReport(self.node, self._start.size, now - self._began), now)
        return [StreamEnd(self._start.stream, True)]

    def _report(self, report: DoneReport, now: Instant) -> None:
        if report.node not in self._reports:
            self._reports[report.node] = report
            if not self._unsent:
                self._unsent_since = now
            self._unsent.append(report)

    def _flush(self) -> list[StreamEffect]:
        if not self._unsent:
            return []
        reports, self._unsent = tuple(self._unsent), []
        return [SendToMember(self.parent, StreamDone(self._start.stream, reports))]


def _runs(numbers: Iterable[int], longest: int) -> Iterable[tuple[int, int]]:
    """Yield *numbers*, which rise, as ranges of at most *longest*."""
    first = end = -1
    for number in numbers:
        if number != end or end - first >= longest:
            if end > first:
                yield first, end
            first = number
        end = number + 1
    if end > first:
        yield first, end
