"""Nodes of a dissemination group on virtual time: each has an uplink, and slices wait in it.

The nodes are those of the product (`edgebroker.dissemination`). A slice leaves when those before it have left, takes
its bytes divided by the rate of the uplink, and arrives as a whole (store and forward). All other messages take the
latency alone: they are few and short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

from edgebroker.dissemination.dissemination_node import DisseminationNode
from edgebroker.dissemination.group_view import GroupView, view_member
from edgebroker.dissemination.membership import GroupMembership
from edgebroker.dissemination.messages import (
    DoneReport,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupMessage,
    SendToMember,
    StreamSlice,
    StreamStart,
)
from edgebroker.dissemination.stream import DeliverSlice, MemberDone, RelayFault, StreamEffect, StreamEnd
from edgebroker.dissemination.stream_children import StreamOptions
from edgebroker.dissemination.stream_source import StreamContent, start_of
from edgebroker.instants import NEVER, SECOND, Duration, Instant

LATENCY: Final[Duration] = 100
"""Microseconds, of every message."""
WorldEvent = GroupMessage | Callable[[], None] | None
"""A message that arrives, what is called, or None: a node's `tick`."""


class LinkModel:
    """What transfers take: bits per second of every uplink, and the bytes of a slice on the wire."""

    def __init__(self, rate: float, slice_bytes: Callable[[StreamSlice | StreamStart], float]) -> None:
        self.rate = rate
        self.slice_bytes = slice_bytes
        self.rates: dict[str, float] = {}
        """Nodes whose uplinks have another rate."""

    def time(self, node: str, message: StreamSlice | StreamStart) -> float:
        """Return for how many microseconds a message keeps the uplink of *node* busy."""
        return self.slice_bytes(message) * 8 * SECOND / self.rates.get(node, self.rate)


class GroupNetwork:
    """A group and its nodes. The first one is the broker, which is the authority of the group."""

    def __init__(self, nodes: Iterable[str], links: LinkModel, options: StreamOptions | None = None) -> None:
        self.now = 0.0
        self.links = links
        self.order = [*nodes]
        self.broker = self.order[0]
        self._options = options or StreamOptions()
        self._boots = dict.fromkeys(self.order, 0)
        self.nodes = {node: self._make(node) for node in self.order}
        self.memberships: dict[str, GroupMembership] = {}
        self.delivered: dict[tuple[str, int], list[bytes]] = {}
        """Node and stream -> the slices that it has got."""
        self.finished: dict[tuple[str, int], float] = {}
        """Node and stream -> when the node had all of it."""
        self.silences: dict[tuple[str, int], float] = {}
        """Node and stream -> the longest time between two slices, in microseconds."""
        self._delivered_at: dict[tuple[str, int], float] = {}
        self.failed: list[tuple[str, StreamEnd]] = []
        self.reports: dict[tuple[int, str], DoneReport] = {}
        self.copies: dict[str, int] = dict.fromkeys(self.order, 0)
        self.busy: dict[str, float] = dict.fromkeys(self.order, 0.0)
        """Microseconds in which each uplink was busy."""
        self.dead: set[str] = set()
        self.corrupt: Callable[[str, str, GroupMessage], GroupMessage | None] | None = None
        """What a node sends instead of a message; None instead of a message: nothing."""
        self._free = dict.fromkeys(self.order, 0.0)
        self._ticks = dict.fromkeys(self.order, float(NEVER))
        self._events: list[tuple[float, int, int, str, str, WorldEvent]] = []
        self._number = 0

    def _make(self, node: str) -> DisseminationNode:
        return DisseminationNode(node, self.broker, lambda start: True, self._options)

    # -- what happens in it --------------------------------------------------------------------------------------------

    def set_view(self, view: GroupView) -> None:
        """Let all nodes have a view, which does not change."""
        for node in self.order:
            self.perform(node, self.nodes[node].take_view(view, self.instant))

    def found_group(self, group: str, members: Iterable[str], fan_out: int) -> None:
        """Let the broker be the authority of a group, and the members join it now."""
        self.memberships[group] = GroupMembership(group, self.broker, self.instant, fan_out)
        self._push(self.now + SECOND, "", "", self._tick_memberships)
        for node in members:
            self.join(node, group)

    def join(self, node: str, group: str) -> None:
        """Let a node join a group."""
        self.perform(node, self.nodes[node].join(group, view_member(node), self.instant))

    def publish(self, node: str, stream: int, view: GroupView, content: StreamContent) -> None:
        """Let a node send a stream."""
        start = start_of(stream, node, view, content)
        self.perform(node, self.nodes[node].publish(start, content, self.instant))

    def kill(self, node: str) -> None:
        """End a node. What waits in its uplink is lost."""
        self.dead.add(node)

    def restart(self, node: str, group: str, time: float) -> None:
        """End a node, and start it anew at an instant, without anything that it had. It joins the group then."""
        self.kill(node)

        def start() -> None:
            self._boots[node] += 1
            self.dead.discard(node)
            self._ticks[node] = float(NEVER)
            self._free[node] = self.now
            self.nodes[node] = self._make(node)
            for key in [key for key in self.delivered if key[0] == node]:
                del self.delivered[key]
            self.join(node, group)

        self.at(time, start)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Call *action* at an instant."""
        self._push(time, "", "", action)

    @property
    def instant(self) -> Instant:
        return int(self.now)

    def run(self, until: float = float(NEVER)) -> None:
        """Let everything happen up to an instant, or until nothing more will happen."""
        while self._events and self._events[0][0] <= until:
            self.now, _, boots, sender, node, what = heappop(self._events)
            if callable(what):
                what()
            elif node not in self.dead and sender not in self.dead and boots == self._boots_of(sender, node):
                if what is None:
                    self._tick(node)
                else:
                    self._arrive(sender, node, what)

    def run_until(self, is_done: Callable[[], bool], latest: float) -> bool:
        """Let things happen until *is_done*, asked after each tenth of a second, or the instant *latest*."""
        while self.now < latest and self._events:
            if is_done():
                return True
            self.run(max(self.now, self._events[0][0]) + SECOND / 10)
        return is_done()

    # -- how -----------------------------------------------------------------------------------------------------------

    def _push(self, time: float, sender: str, node: str, what: WorldEvent) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, self._boots_of(sender, node), sender, node, what))

    def _boots_of(self, sender: str, node: str) -> int:
        """Return a number that changes whenever one of two nodes is started anew: their connection is lost then."""
        return self._boots.get(sender, 0) + self._boots.get(node, 0)

    def _tick_memberships(self) -> None:
        due = self.now + SECOND / 4
        for membership in self.memberships.values():
            self.perform(self.broker, membership.tick(self.instant))
            due = min(due, max(self.now + 1, float(membership.due)))
        self._push(due, "", "", self._tick_memberships)

    def _tick(self, node: str) -> None:
        if self.now >= self._ticks[node]:
            self._ticks[node] = float(NEVER)
            self.perform(node, self.nodes[node].tick(int(self.now)))

    def _arrive(self, sender: str, node: str, message: GroupMessage) -> None:
        if node == self.broker and isinstance(message, GroupHeartbeat | GroupJoin | GroupLeave):
            for membership in self.memberships.values():
                self.perform(node, membership.receive(sender, message, int(self.now)))
            return
        self.perform(node, self.nodes[node].receive(sender, message, int(self.now)))

    def perform(self, node: str, effects: Iterable[StreamEffect]) -> None:
        """Carry out what a node wants."""
        for effect in effects:
            match effect:
                case SendToMember(to, message):
                    self._send(node, to, message)
                case DeliverSlice(stream, number, content):
                    got = self.delivered.setdefault((node, stream), [])
                    assert number == len(got), f"{node} got slice {number} of stream {stream} out of order"
                    got.append(content)
                    self._note_silence((node, stream))
                case StreamEnd(stream, True):
                    self.finished[node, stream] = self.now
                case StreamEnd(stream, False):
                    self.failed.append((node, effect))
                    self.delivered.pop((node, stream), None)
                case MemberDone(stream, report):
                    self.reports[stream, report.node] = report
                case RelayFault(_, relay, _):
                    for membership in self.memberships.values():
                        self.perform(self.broker, membership.exclude(relay, self.instant))
        due = max(float(self.nodes[node].due), self.now)
        if due < self._ticks[node]:
            self._ticks[node] = due
            self._push(due, "", node, None)

    def _note_silence(self, key: tuple[str, int]) -> None:
        silence = self.now - self._delivered_at.get(key, self.now)
        self._delivered_at[key] = self.now
        self.silences[key] = max(self.silences.get(key, 0.0), silence)

    def _send(self, node: str, to: str, message: GroupMessage) -> None:
        if self.corrupt is not None:
            changed = self.corrupt(node, to, message)
            if changed is None:
                return
            message = changed
        if isinstance(message, StreamSlice) or (isinstance(message, StreamStart) and message.content):
            self.copies[node] += 1
            time = self.links.time(node, message)
            self.busy[node] += time
            self._free[node] = done = max(self._free[node], self.now) + time
            self._push(done + LATENCY, node, to, message)
        else:
            self._push(self.now + LATENCY, node, to, message)
