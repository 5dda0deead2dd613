"""Groups of shared subscriptions: one member of a group gets one copy of each publication (MQTT 5.0 section
4.8.2).

All members of a group ask for the same topics and have the same content filter, so they match together. Who gets a
copy depends on who is there and how much waits for each, never on a clock or on chance: a run repeated is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from edgebroker.names import ClientId
from edgebroker.node.subscriptions import Subscription
from edgebroker.publication import Publication

STICKY_FLOWS_MAX: Final = 20_000
"""Flows (group, publisher, topic) whose member is remembered; about 300 bytes each, 6 MiB in all. Beyond, the oldest is
forgotten and chosen anew when it goes on."""

MayRead: TypeAlias = Callable[[Subscription, Publication], bool]


class GroupMember(Protocol):
    """What the receiver of a group's subscription must tell about itself."""

    @property
    def is_connected(self) -> bool:
        """Whether a copy would be on its way at once."""

    @property
    def outstanding(self) -> int:
        """Copies that were given to it and have not reached it, as far as is known."""

    def has_room(self, size: int) -> bool:
        """Whether a copy that holds *size* bytes is on its way at once, or may wait for it."""


class SharedGroup:
    """The subscriptions that share under one name, in the order in which they came."""

    __slots__ = ("_by_client", "_groups", "_next", "members", "name")

    def __init__(self, name: str, groups: SharedGroups) -> None:
        self.name = name
        self.members: list[Subscription] = []
        self._by_client: dict[ClientId, Subscription] = {}  # the last of each
        self._groups = groups
        self._next = 0  # where the next round begins

    def choose(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """Who gets *publication*; None if every member is gone for good, or none may read it."""
        if not self._groups.is_sticky:
            return self.fairest(publication, may_read)
        member = self._follow(publication, may_read)
        if member is None:
            member = self.fairest(publication, may_read)
            if member is not None:
                flows, flow = self._groups.flows, self._flow(publication)
                if len(flows) >= STICKY_FLOWS_MAX and flow not in flows:
                    del flows[next(iter(flows))]
                flows[flow] = member.client
        return member

    def fairest(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """The member that is there and has the fewest copies outstanding, in turn where several have.

        If nobody is there, who is away and will get what is kept for it, by the same rule. Who has no room for it comes
        behind all who have.
        """
        at = self._at_turn(publication, may_read)
        if at < 0:
            return None
        self._next = (at + 1) % len(self.members)
        return self.members[at]

    def would_choose(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """Whom `choose` would find now. Nobody's turn is over because of that."""
        member = self._follow(publication, may_read) if self._groups.is_sticky else None
        if member is not None:
            return member
        at = self._at_turn(publication, may_read)
        return None if at < 0 else self.members[at]

    def _at_turn(self, publication: Publication, may_read: MayRead | None) -> int:
        """Where in `members` the `fairest` is; -1 if there is none."""
        at = self._fairest(publication, may_read, False)
        if at >= 0 and publication.qos and not _has_room(self.members[at], publication):
            other = self._fairest(publication, may_read, True)
            at = at if other < 0 else other
        return at

    def _fairest(self, publication: Publication, may_read: MayRead | None, needs_room: bool) -> int:
        """Where in `members` it is; -1 if there is none."""
        members = self.members
        count = len(members)
        best = -1
        best_rank = (3, 0)
        for step in range(count):
            at = (self._next + step) % count
            member = members[at]
            if member.subscriber.is_gone:
                continue
            if may_read is not None and not may_read(member, publication):
                continue
            if needs_room and not _has_room(member, publication):
                continue
            worker: GroupMember = member.receiver
            outstanding = worker.outstanding
            rank = (0 if worker.is_connected else 1 if member.qos else 2, outstanding)
            if rank < best_rank:
                best, best_rank = at, rank
                if rank == (0, 0):  # nobody can be fairer
                    break
        return best

    def has_room(self, publication: Publication, may_read: MayRead | None = None) -> bool:
        """Whether whom `choose` would find has room for *publication*."""
        member = self._follow(publication, may_read) if self._groups.is_sticky else None
        if member is not None:
            return _has_room(member, publication)
        return any(
            _has_room(member, publication) and (may_read is None or may_read(member, publication))
            for member in self.members
            if not member.subscriber.is_gone
        )

    def _flow(self, publication: Publication) -> int:
        return hash((self.name, publication.publisher, publication.topic))

    def _follow(self, publication: Publication, may_read: MayRead | None) -> Subscription | None:
        """The member that has the publication's flow, if it is there and may read it."""
        client = self._groups.flows.get(self._flow(publication))
        member = None if client is None else self._by_client.get(client)
        if member is None or member.subscriber.is_gone or not member.receiver.is_connected:
            return None
        return member if may_read is None or may_read(member, publication) else None

    def has_member_for(self, publication: Publication, may_read: MayRead | None) -> bool:
        """Whether `choose` would find somebody."""
        return any(
            may_read is None or may_read(member, publication)
            for member in self.members
            if not member.subscriber.is_gone
        )

    def add(self, member: Subscription) -> None:
        """Let *member* be the last in turn."""
        self.members.append(member)
        self._by_client[member.client] = member

    def remove(self, member: Subscription) -> None:
        """Forget *member*; whose turn it is does not change."""
        at = self.members.index(member)
        del self.members[at]
        if self._by_client[member.client] is member:
            del self._by_client[member.client]
            self._by_client.update((one.client, one) for one in self.members if one.client == member.client)
        if at < self._next:
            self._next -= 1


class SharedGroups:
    """All groups, by name, and the subscriptions in them by client."""

    def __init__(self) -> None:
        self.is_sticky = False
        """Whether what one publisher says under one topic stays with one member as long as that one is there."""
        self.flows: dict[int, ClientId] = {}
        """Hash of (group, publisher, topic) -> the client whose member it stays with, which may have left.

        Of the hash alone, because a topic may have 64 KiB; two flows with the same have the same member, no more.
        """
        self._by_name: dict[str, SharedGroup] = {}
        self._by_client: dict[ClientId, list[Subscription]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def count_members(self) -> int:
        """How many subscriptions share."""
        return sum([len(group.members) for group in self._by_name.values()])

    def find(self, name: str) -> SharedGroup | None:
        """The group called *name*, if it has members."""
        return self._by_name.get(name)

    def of(self, client: ClientId) -> list[Subscription]:
        """The subscriptions of *client* that share."""
        return [member for member in self._by_client.get(client, ()) if not member.subscriber.is_gone]

    def join(self, name: str, subscription: Subscription) -> None:
        """Let *subscription* be a member of the group called *name*, made if there is none."""
        group = self._by_name.get(name)
        if group is None:
            group = self._by_name[name] = SharedGroup(name, self)
        group.add(subscription)
        subscription.group = group
        self._by_client.setdefault(subscription.client, []).append(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Let *subscription* be a member of no group."""
        group, subscription.group = subscription.group, None
        if group is None:
            return
        group.remove(subscription)
        if not group.members:
            del self._by_name[group.name]
        own = self._by_client[subscription.client]
        own.remove(subscription)
        if not own:
            del self._by_client[subscription.client]


def _has_room(member: Subscription, publication: Publication) -> bool:
    """At QoS 0 nothing waits, and who is away gets nothing."""
    worker: GroupMember = member.receiver
    if not member.qos or not publication.qos:
        return worker.is_connected
    return worker.has_room(publication.held_bytes())
