"""A node of dissemination groups: its views, and the streams that it sends, receives and relays.

Events go in, effects come out. `now` is an argument of each, and `tick` is to be called at `due`. Messages arrive as
long as their sender and the connection live, in their order. A message may be lost only together with one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.dissemination.group_view import GroupView, ViewMember
from edgebroker.dissemination.membership import HEARTBEAT
from edgebroker.dissemination.messages import (
    DoneReport,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupMessage,
    SendToMember,
    SliceRepair,
    StreamCredit,
    StreamDone,
    StreamResume,
    StreamSlice,
    StreamStart,
    ViewQuery,
    ViewUpdate,
)
from edgebroker.dissemination.stream import StreamEffect, StreamReceiver
from edgebroker.dissemination.stream_children import LATE_CHECK, StreamOptions
from edgebroker.dissemination.stream_source import StreamContent, StreamSource
from edgebroker.instants import NEVER, Instant

VIEWS_MAX: Final = 16
"""Views of one group that are kept, for streams that began in an older one."""
STREAMS_MAX: Final = 64
"""Streams at one node. Each takes a ring of 4 MiB at most."""
FINISHED_MAX: Final = 1_024
"""Streams of the past whose reports are kept, in case that the source asks again."""
RESUMES_MAX: Final = 256
"""Members that ask for a stream that was not announced here yet."""


@dataclass(slots=True)
class NodeCounters:
    """What a node has refused."""

    untrusted: int = 0
    """Announcements that are not the broker's, or not from a member."""
    streams: int = 0
    """Announcements, because there were too many streams."""
    strangers: int = 0
    """Messages from nodes that are not in the group, or about unknown streams."""


class DisseminationNode:
    """All groups and streams of one node."""

    def __init__(
        self,
        node: str,
        authority: str,
        is_trusted: Callable[[StreamStart], bool],
        options: StreamOptions | None = None,
    ) -> None:
        """authority: the broker of the groups. is_trusted: whether an announcement has the broker's signature."""
        self.node = node
        self.authority = authority
        self.counters = NodeCounters()
        self._is_trusted = is_trusted
        self._options = options or StreamOptions()
        self._joined: set[str] = set()
        self._views: dict[str, list[GroupView]] = {}
        """The newest view of each group, after older ones."""
        self._wanted: set[int] = set()
        """View ids that were asked for."""
        self._receivers: dict[int, StreamReceiver] = {}
        self._sources: dict[int, StreamSource] = {}
        self._finished: dict[int, tuple[bytes, DoneReport]] = {}
        """Streams of the past -> their content hash and the report of this node."""
        self._waiting: set[int] = set()
        """Streams whose view is not known."""
        self._early: dict[tuple[int, str], int] = {}
        """Stream and sender of a RESUME that came before the announcement -> its first slice."""
        self._heartbeat_at = NEVER
        self._tick_at = NEVER

    # -- groups -------------------------------------------------------------------------------------------------------

    def join(self, group: str, member: ViewMember, now: Instant) -> list[StreamEffect]:
        """Ask the authority to be in a group."""
        self._joined.add(group)
        self._heartbeat_at = min(self._heartbeat_at, now + HEARTBEAT)
        return [SendToMember(self.authority, GroupJoin(group, member))]

    def leave(self, group: str, now: Instant) -> list[StreamEffect]:
        """Leave a group. What is under way goes on until the streams are over."""
        self._joined.discard(group)
        return [SendToMember(self.authority, GroupLeave(group, self.node))]

    def view(self, group: str) -> GroupView | None:
        """Return the newest view of a group."""
        views = self._views.get(group)
        return views[-1] if views else None

    def take_view(self, view: GroupView, now: Instant) -> list[StreamEffect]:
        """Take a view from the authority, or an older one that a stream began in."""
        views = self._views.setdefault(view.group, [])
        if any(known.number == view.number and known.view_id == view.view_id for known in views):
            return []
        is_newest = not views or view.number > views[-1].number
        views.insert(len(views) if is_newest else 0, view)
        del views[: -VIEWS_MAX if is_newest else 0]
        effects: list[StreamEffect] = []
        if is_newest:
            for stream in self._streams():
                if stream.start.group == view.group:
                    effects += stream.change_view(view, now)
        for number in sorted(self._waiting):
            start = self._receivers[number].start
            if (start.group, start.view_id) == (view.group, view.view_id):
                effects += self._begin(self._receivers[number], view, now)
        return effects

    # -- streams ------------------------------------------------------------------------------------------------------

    def publish(self, start: StreamStart, content: StreamContent, now: Instant) -> list[StreamEffect]:
        """Begin a stream to all members of the view that *start* names. Raises ValueError: the view is unknown."""
        view = self._find_view(start.group, start.view_id)
        if view is None or start.stream in self._sources or start.stream in self._receivers:
            raise ValueError("a stream needs a known view, and a new number")
        stream = self._sources[start.stream] = StreamSource(start, content, view, now, self._options)
        self._tick_at = min(self._tick_at, now + LATE_CHECK)
        newest = self._views[start.group][-1]
        return stream.begin() + ([] if newest is view else stream.change_view(newest, now))

    def receiver(self, stream: int) -> StreamReceiver | None:
        """Return a stream that this node receives."""
        return self._receivers.get(stream)

    def source(self, stream: int) -> StreamSource | None:
        """Return a stream that this node sends."""
        return self._sources.get(stream)

    def receive(self, sender: str, message: GroupMessage, now: Instant) -> list[StreamEffect]:
        """Take a message from another node. JOIN, LEAVE and HEARTBEAT are those of `GroupMembership`."""
        match message:
            case StreamStart():
                return self._receive_start(sender, message, now)
            case ViewUpdate(view):
                if sender != self.authority and view.view_id not in self._wanted:
                    self.counters.strangers += 1
                    return []
                self._wanted.discard(view.view_id)
                return self.take_view(view, now)
            case ViewQuery(group, view_id):
                found = self._find_view(group, view_id)
                return [] if found is None else [SendToMember(sender, ViewUpdate(found))]
            case GroupJoin() | GroupLeave() | GroupHeartbeat():
                return []
        stream = self._receivers.get(message.stream) or self._sources.get(message.stream)
        if stream is None:
            if isinstance(message, StreamResume) and len(self._early) < RESUMES_MAX:
                self._early[message.stream, sender] = message.first
            return []
        if not self._is_party(sender, stream.start):
            self.counters.strangers += 1
            return []
        return self._receive_part(stream, sender, message, now)

    def _receive_part(
        self,
        stream: StreamReceiver | StreamSource,
        sender: str,
        message: StreamSlice | StreamResume | SliceRepair | StreamCredit | StreamDone,
        now: Instant,
    ) -> list[StreamEffect]:
        match message:
            case StreamSlice():
                return stream.receive_slice(sender, message, now) if isinstance(stream, StreamReceiver) else []
            case StreamResume(_, first):
                return stream.receive_resume(sender, first, now)
            case SliceRepair(_, first, end, relay):
                if isinstance(stream, StreamSource):
                    return stream.receive_repair(sender, first, end, relay, now)
                return stream.receive_repair(sender, first, end, now)
            case StreamCredit(_, limit):
                return stream.receive_credit(sender, limit, now)
            case StreamDone(_, reports):
                return stream.receive_done(sender, reports, now)

    def _receive_start(self, sender: str, start: StreamStart, now: Instant) -> list[StreamEffect]:
        known = self._receivers.get(start.stream)
        if known is not None and known.start.content_hash == start.content_hash:
            return known.offered(sender, now)
        past = self._finished.get(start.stream)
        if past is not None and past[0] == start.content_hash:
            return [SendToMember(sender, StreamDone(start.stream, (past[1],)))]
        if start.stream in self._sources or known is not None or not self._is_party(sender, start):
            self.counters.untrusted += 1
            return []
        if not self._is_trusted(start):
            self.counters.untrusted += 1
            return []
        if len(self._receivers) >= STREAMS_MAX:
            self.counters.streams += 1
            return []
        stream = self._receivers[start.stream] = StreamReceiver(self.node, sender, start, now, self._options)
        self._tick_at = min(self._tick_at, now + LATE_CHECK)
        effects: list[StreamEffect] = []
        if start.count == 1 and (start.content or not start.size):
            only = StreamSlice(start.stream, 0, start.view_id, b"", start.content)
            effects += stream.receive_slice(sender, only, now)
        view = self._find_view(start.group, start.view_id)
        if view is not None:
            return effects + self._begin(stream, view, now)
        self._waiting.add(start.stream)
        self._wanted.add(start.view_id)
        return [*effects, SendToMember(sender, ViewQuery(start.group, start.view_id))]

    def _begin(self, stream: StreamReceiver, view: GroupView, now: Instant) -> list[StreamEffect]:
        self._waiting.discard(stream.start.stream)
        effects = stream.begin(view, self._views[view.group][-1], now)
        for number, sender in [key for key in self._early if key[0] == stream.start.stream]:
            first = self._early.pop((number, sender))
            if self._is_party(sender, stream.start):
                effects += stream.receive_resume(sender, first, now)
        return effects

    def _is_party(self, sender: str, start: StreamStart) -> bool:
        """Return whether *sender* may speak about a stream: its source, or a member; anybody before the first view."""
        newest = self.view(start.group)
        return sender == start.source or newest is None or sender in newest.nodes

    def _find_view(self, group: str, view_id: int) -> GroupView | None:
        for view in reversed(self._views.get(group, ())):
            if view.view_id == view_id:
                return view
        return None

    def _streams(self) -> Iterable[StreamReceiver | StreamSource]:
        return [*self._receivers.values(), *self._sources.values()]

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> Instant:
        """Return when `tick` is to be called next; NEVER: nothing is to be done."""
        return min(self._heartbeat_at, self._tick_at)

    def tick(self, now: Instant) -> list[StreamEffect]:
        """Send heartbeats, look at the times of all streams, and forget those that are over."""
        effects: list[StreamEffect] = []
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT if self._joined else NEVER
            newest = [(group, self._views[group][-1].view_id if group in self._views else 0) for group in self._joined]
            if newest:
                effects.append(SendToMember(self.authority, GroupHeartbeat(self.node, tuple(sorted(newest)))))
        if now >= self._tick_at:
            for stream in self._streams():
                effects += stream.tick(now)
                if stream.is_over(now):
                    self._forget(stream)
            self._tick_at = now + LATE_CHECK if self._receivers or self._sources else NEVER
            self._waiting &= self._receivers.keys()
        return effects

    def _forget(self, stream: StreamReceiver | StreamSource) -> None:
        number = stream.start.stream
        if isinstance(stream, StreamSource):
            del self._sources[number]
            return
        del self._receivers[number]
        report = stream.report
        if report is not None:
            self._finished[number] = stream.start.content_hash, report
            if len(self._finished) > FINISHED_MAX:
                del self._finished[next(iter(self._finished))]
