"""A stream at its source: it feeds its children, serves repairs, and waits for the reports of all members [LBDD
2.3].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from edgebroker.dissemination.group_view import GroupView
from edgebroker.dissemination.messages import (
    SLICE_BYTES,
    DoneReport,
    SendToMember,
    StreamSlice,
    StreamStart,
)
from edgebroker.dissemination.slice_hashes import SliceHashes, slice_hash
from edgebroker.dissemination.stream import MemberDone, RelayFault, StreamEffect, StreamEnd, survivors
from edgebroker.dissemination.stream_children import ChildEvent, StreamChildren, StreamOptions
from edgebroker.instants import Instant


class StreamContent:
    """What a stream transfers: its slices can be read in any order, as often as needed."""

    def __init__(self, count: int, size: int, slice_size: int, read: Callable[[int], bytes]) -> None:
        """read: returns slice *number* of *count*. All are read once, for their hashes."""
        self.size = size
        self.slice_size = slice_size
        self._read = read
        self._hashes = SliceHashes([slice_hash(read(number)) for number in range(count)])

    @property
    def content_hash(self) -> bytes:
        """Return the root of the hashes of all slices."""
        return self._hashes.root

    def slice(self, stream: int, number: int, view_id: int) -> StreamSlice:
        """Return slice *number* with its proof."""
        return StreamSlice(stream, number, view_id, self._hashes.proof(number), self._read(number))


def content_of(data: bytes, slice_size: int = SLICE_BYTES) -> StreamContent:
    """Return *data*, which may be empty, as the content of a stream."""
    count = max(1, -(-len(data) // slice_size))
    return StreamContent(
        count, len(data), slice_size, lambda number: data[number * slice_size : (number + 1) * slice_size]
    )


def start_of(
    stream: int, source: str, view: GroupView, content: StreamContent, meta: bytes = b"", signature: bytes = b""
) -> StreamStart:
    """Return the announcement of a stream. It has the content in it if that is one slice."""
    start = StreamStart(
        *(stream, source, view.group, view.view_id, content.size, content.slice_size, content.content_hash),
        *(meta, signature),
    )
    if start.count > 1:
        return start
    return replace(start, content=content.slice(stream, 0, view.view_id).content)


class StreamSource:
    """A stream at the node that sends it."""

    def __init__(
        self, start: StreamStart, content: StreamContent, view: GroupView, now: Instant, options: StreamOptions
    ) -> None:
        self.start = start
        self.missing = {*view.nodes} - {start.source}
        """Members that have not reported that they have everything."""
        self.is_ended = False
        self._content = content
        self._options = options
        self._view = view
        self._tree = survivors(view, view, start.source)
        self._children = StreamChildren(start, options)
        self._accused: set[str] = set()
        self._progress = self._offered = now

    def begin(self) -> list[StreamEffect]:
        """Announce the stream to the children, and send each of them one window."""
        effects: list[StreamEffect] = [*self._children.begin(self._tree.children(self.start.source))]
        return effects + self._pump() + self._end_if_done()

    def change_view(self, newest: GroupView, now: Instant) -> list[StreamEffect]:
        """Take the next view: forget who left, and offer the stream to who is a child of the source in its tree."""
        self._tree = tree = survivors(self._view, newest, self.start.source)
        nodes = newest.nodes
        self._children.remove([node for node in self._children if node not in nodes])
        self.missing &= nodes
        new = [node for node in tree.children(self.start.source) if node not in self._children]
        effects: list[StreamEffect] = [*self._children.offer(new)]
        return effects + self._pump() + self._end_if_done()

    def receive_resume(self, sender: str, first: int, now: Instant) -> list[StreamEffect]:
        """Feed a member, which lacks the slices from *first* on."""
        if first > self.start.count:
            return []
        self._progress = now
        self._children.resume(sender, first)
        return self._pump()

    def receive_credit(self, sender: str, limit: int, now: Instant) -> list[StreamEffect]:
        """Extend the window of a child."""
        self._progress = now
        self._children.allow(sender, limit)
        return self._pump()

    def receive_repair(self, sender: str, first: int, end: int, relay: str, now: Instant) -> list[StreamEffect]:
        """Send at most one window of slices, and report a relay that a member accuses for the first time."""
        self._progress = now
        effects: list[StreamEffect] = []
        if relay and relay not in self._accused and relay in self._tree:
            self._accused.add(relay)
            effects.append(RelayFault(self.start.stream, relay, sender))
        for number in range(first, min(end, first + self._options.window, self.start.count)):
            effects.append(SendToMember(sender, self._slice(number)))
        return effects

    def receive_done(self, sender: str, reports: Iterable[DoneReport], now: Instant) -> list[StreamEffect]:
        """Take the reports of members that have everything."""
        effects: list[StreamEffect] = []
        for report in reports:
            if report.node in self.missing:
                self.missing.discard(report.node)
                self._progress = now
                effects.append(MemberDone(self.start.stream, report))
            self._children.change(report.node, ChildEvent.REPORT)
        return effects + self._end_if_done()

    def tick(self, now: Instant) -> list[StreamEffect]:
        """If nothing happens any more offer the stream to all that have not reported; in the end give up."""
        if self.is_ended:
            return []
        if now - self._progress >= self._options.give_up:
            self.is_ended = True
            return [StreamEnd(self.start.stream, False, tuple(sorted(self.missing)))]
        if now - max(self._progress, self._offered) < self._options.stall:
            return []
        self._offered = now
        return [SendToMember(node, self.start) for node in sorted(self.missing)]

    def is_over(self, now: Instant) -> bool:
        """Return whether nobody will need the stream here any more."""
        return self.is_ended

    def _pump(self) -> list[StreamEffect]:
        return [*self._children.pump(self._slice)]

    def _slice(self, number: int) -> StreamSlice:
        return self._content.slice(self.start.stream, number, self.start.view_id)

    def _end_if_done(self) -> list[StreamEffect]:
        if self.is_ended or self.missing:
            return []
        self.is_ended = True
        return [StreamEnd(self.start.stream, True)]
