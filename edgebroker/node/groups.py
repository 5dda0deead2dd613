"""Groups of subscriptions that share their work: of each publication one member gets one copy.

All members of a group ask for the same topics and have the same content filter, so they match together. Who gets
a copy depends on who is there and how much waits for each, never on a clock or on chance: a run repeated is the same.
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


class Worker(Protocol):
    """What the receiver of a group's subscription must tell about itself."""

    @property
    def is_present(self) -> bool:
        """Whether a copy would be on its way at once."""

    @property
    def outstanding(self) -> int:
        """Copies that were given to it and have not reached it, as far as is known."""


class Group:
    """The subscriptions that share under one name, in the order in which they came."""

    __slots__ = ("_by_number", "_groups", "_next", "members", "name")

    def __init__(self, name: str, groups: Groups) -> None:
        self.name = name
        self.members: list[Subscription] = []
        self._by_number: dict[int, Subscription] = {}
        self._groups = groups
        self._next = 0  # where the next round begins

    def choose(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """Who gets *publication*; None if every member is gone for good, or none may read it."""
        if not self._groups.is_sticky:
            return self.fairest(publication, may_read)
        flows = self._groups.flows
        flow = hash((self.name, publication.publisher, publication.topic))
        member = self._by_number.get(flows.get(flow, 0))
        if (
            member is None
            or member.subscriber.is_gone
            or not member.receiver.is_present
            or (may_read is not None and not may_read(member, publication))
        ):
            member = self.fairest(publication, may_read)
            if member is not None:
                if len(flows) >= STICKY_FLOWS_MAX and flow not in flows:
                    del flows[next(iter(flows))]
                flows[flow] = member.number
        return member

    def fairest(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """The member that is there and has the fewest copies outstanding, in turn where several have.

        If nobody is there, who is away and will get what is kept for it, by the same rule.
        """
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
            worker: Worker = member.receiver
            outstanding = worker.outstanding
            rank = (0 if worker.is_present else 1 if member.qos else 2, outstanding)
            if rank < best_rank:
                best, best_rank = at, rank
                if rank == (0, 0):  # nobody can be fairer
                    break
        if best < 0:
            return None
        self._next = (best + 1) % count
        return members[best]

    def has_member_for(self, publication: Publication, may_read: MayRead | None, must_be_present: bool) -> bool:
        """Whether `choose` would find somebody, and if it *must_be_present*, somebody who is."""
        return any(
            (member.receiver.is_present or not must_be_present) and (may_read is None or may_read(member, publication))
            for member in self.members
            if not member.subscriber.is_gone
        )

    def add(self, member: Subscription) -> None:
        """Let *member* be the last in turn."""
        self.members.append(member)
        self._by_number[member.number] = member

    def remove(self, member: Subscription) -> None:
        """Forget *member*; whose turn it is does not change."""
        at = self.members.index(member)
        del self.members[at]
        del self._by_number[member.number]
        if at < self._next:
            self._next -= 1


class Groups:
    """All groups, by name, and the subscriptions in them by client."""

    def __init__(self) -> None:
        self.is_sticky = False
        """Whether what one publisher says under one topic stays with one member as long as that one is there."""
        self.flows: dict[int, int] = {}
        """Hash of (group, publisher, topic) -> the number of the member it stays with, who may have left.

        Of the hash alone, because a topic may have 64 KiB; two flows with the same have the same member, no more.
        """
        self._by_name: dict[str, Group] = {}
        self._by_client: dict[ClientId, list[Subscription]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def count_members(self) -> int:
        """How many subscriptions share."""
        return sum([len(group.members) for group in self._by_name.values()])

    def find(self, name: str) -> Group | None:
        """The group called *name*, if it has members."""
        return self._by_name.get(name)

    def of(self, client: ClientId) -> list[Subscription]:
        """The subscriptions of *client* that share."""
        return [member for member in self._by_client.get(client, ()) if not member.subscriber.is_gone]

    def join(self, name: str, subscription: Subscription) -> None:
        """Let *subscription* be a member of the group called *name*, made if there is none."""
        group = self._by_name.get(name)
        if group is None:
            group = self._by_name[name] = Group(name, self)
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
