"""The authority of a group: who is a member, who is suspected, and the numbered views [LBDD 2.4].

A broker is the authority of its groups, so that no two views have one number. Members send a heartbeat each second. Who
misses three is no member any more, and neither is who leaves. Whoever relayed wrong slices stays a member, but never
relays again.
"""

from __future__ import annotations

from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.dissemination.group_view import (
    FAN_OUT,
    GROUP_MEMBERS_MAX,
    LEAF_CAPACITY,
    GroupView,
    ViewMember,
    group_view,
    next_view,
)
from edgebroker.dissemination.messages import (
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupMessage,
    SendToMember,
    ViewQuery,
    ViewUpdate,
)
from edgebroker.instants import NEVER, SECOND, Duration, Instant

HEARTBEAT: Final[Duration] = SECOND
MISSES: Final = 3
"""After so many heartbeats that did not come a member is suspected, and leaves the view."""
VIEW_PAUSE: Final[Duration] = SECOND
"""The shortest time between two views. A view goes to all members, so that changes are collected: 500 members that join
within a second cost two views, 30 MB, and not 500."""


@dataclass(slots=True)
class MembershipCounters:
    """What an authority has counted."""

    joined: int = 0
    left: int = 0
    suspected: int = 0
    excluded: int = 0
    """Relays that may not relay any more."""
    refused: int = 0
    """Nodes that wanted to join a full group."""


class GroupMembership:
    """The members of one group, at the broker that is its authority."""

    def __init__(self, group: str, broker: str, now: Instant, fan_out: int = FAN_OUT) -> None:
        self.broker = broker
        self.view: GroupView = group_view(group, 1, (), fan_out)
        """The last view that was sent."""
        self.counters = MembershipCounters()
        self._joined: dict[str, ViewMember] = {}
        self._left: set[str] = set()
        self._excluded: set[str] = set()
        self._heard: dict[str, Instant] = {}
        self._sent_at = now - VIEW_PAUSE

    def receive(self, sender: str, message: GroupMessage, now: Instant) -> list[SendToMember]:
        """Take a JOIN, LEAVE, HEARTBEAT or a question for the view. A node can only speak for itself."""
        match message:
            case GroupJoin(group, member) if group == self.view.group and member.node == sender:
                return self.join(member, now)
            case GroupLeave(group, node) if group == self.view.group and node == sender:
                return self.leave(node, now)
            case GroupHeartbeat(node, views) if node == sender and node in self._heard:
                self._heard[node] = now
                if dict(views).get(self.view.group) != self.view.view_id and node in self.view.nodes:
                    return [SendToMember(node, ViewUpdate(self.view))]
            case ViewQuery(group, view_id) if (group, view_id) == (self.view.group, self.view.view_id):
                return [SendToMember(sender, ViewUpdate(self.view))]
        return []

    def join(self, member: ViewMember, now: Instant) -> list[SendToMember]:
        """Add a member, or change what is known of one."""
        if member.node not in self._heard and len(self._heard) >= GROUP_MEMBERS_MAX:
            self.counters.refused += 1
            return []
        if member.node in self._excluded:
            member = _as_leaf(member)
        self._heard[member.node] = now
        self._joined[member.node] = member
        self._left.discard(member.node)
        self.counters.joined += 1
        return self._next_view(now)

    def leave(self, node: str, now: Instant) -> list[SendToMember]:
        """Remove a member that goes."""
        if self._remove(node):
            self.counters.left += 1
        return self._next_view(now)

    def exclude(self, relay: str, now: Instant) -> list[SendToMember]:
        """Let a member relay no more: it sent wrong slices. It still receives, so a false accusation costs others
        little.
        """
        known = {member.node: member for member in self.view.members} | self._joined
        if relay in self._heard and relay not in self._excluded and relay in known:
            self._excluded.add(relay)
            self._joined[relay] = _as_leaf(known[relay])
            self.counters.excluded += 1
        return self._next_view(now)

    def tick(self, now: Instant) -> list[SendToMember]:
        """Remove members whose heartbeats are missing, and send the view that is due."""
        for node in [node for node, heard in self._heard.items() if now - heard >= MISSES * HEARTBEAT]:
            self._remove(node)
            self.counters.suspected += 1
        return self._next_view(now)

    @property
    def due(self) -> Instant:
        """Return when `tick` has something to do; NEVER: nothing is to be done."""
        suspected = min(self._heard.values(), default=NEVER - MISSES * HEARTBEAT) + MISSES * HEARTBEAT
        return min(suspected, self._sent_at + VIEW_PAUSE) if self._joined or self._left else suspected

    def _remove(self, node: str) -> bool:
        if self._heard.pop(node, None) is None:
            return False
        self._joined.pop(node, None)
        self._left.add(node)
        return True

    def _next_view(self, now: Instant) -> list[SendToMember]:
        if now - self._sent_at < VIEW_PAUSE:
            return []
        following = next_view(self.view, self._joined.values(), self._left)
        self._joined.clear()
        self._left.clear()
        if following.members == self.view.members:
            return []
        self.view = following
        self._sent_at = now
        update = ViewUpdate(following)
        return [SendToMember(node, update) for node in (self.broker, *[member.node for member in following.members])]


def _as_leaf(member: ViewMember) -> ViewMember:
    return ViewMember(member.node, member.digest, member.address, LEAF_CAPACITY, member.segment)
