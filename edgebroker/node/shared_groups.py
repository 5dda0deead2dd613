"""Groups of shared subscriptions: one member of a group gets one copy of each publication (MQTT 5.0 section 4.8.2).

All members of a group have the same topic filter and content filter, so they match together. The choice of the member
depends on connections and queue lengths, never on a clock or a random number, so that a run can be repeated.

A group may be shared over a federation (`SharedGroups.federated`): then each other gateway that has members of it is
one member here, as often in the rotation as it has connected ones. Where only some gateways have that setting, there
are two groups of one name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final, Protocol, TypeAlias

from edgebroker.limits import FEDERATED_GROUPS_CHARS_MAX, SHARED_GROUPS_MAX
from edgebroker.names import ClientId
from edgebroker.node.subscriptions import Subscription
from edgebroker.publication import Publication

STICKY_FLOWS_MAX: Final = 20_000
"""Flows (group, publisher, topic) whose member is remembered; about 300 bytes each, 6 MiB in all. Beyond that the
oldest is removed, and its next message chooses a member again.
"""

TURNS_MAX: Final = 32
"""Turns that one gateway has in the rotation, however many members it has."""

MayRead: TypeAlias = Callable[[Subscription, Publication], bool]


FEDERATED: Final = "\0"
"""Begins the keys of groups that are shared over the federation; no name of a group contains it."""


class GroupMember(Protocol):
    """The receiver of a member's copies, as the group sees it."""

    @property
    def is_connected(self) -> bool:
        """Whether a copy would be sent at once."""

    @property
    def outstanding(self) -> int:
        """Copies that were assigned to it and are not known to have reached it."""

    def has_room(self, size: int) -> bool:
        """Return whether a copy of *size* bytes can be sent at once or queued for it."""

    def takes(self, publication: Publication) -> bool:
        """Return whether the packet of *publication* is no larger than its client takes, as far as is known."""


class PathQuery(Protocol):
    """The ways to other gateways."""

    def is_number_reachable(self, number: int) -> bool:
        """Return whether there is a way to the gateway with *number* now."""

    def has_outbox_room(self, number: int, size: int) -> bool:
        """Return whether an event of *size* bytes may wait on the way to the gateway with *number*."""


class RemoteMembers:
    """The members of a group at another gateway: the receiver of their copies, as the group sees it."""

    def __init__(self, gateway: int, name: str, paths: PathQuery) -> None:
        self.gateway = gateway
        """The number of the gateway."""
        self.name = name
        """The name of the gateway."""
        self.connected = 0
        """Members whose clients are connected there."""
        self.in_transit = 0
        """Copies of QoS 1 and 2 that were sent to the gateway and have not left this one yet."""
        self._paths = paths

    @property
    def is_connected(self) -> bool:
        """Whether a copy would be sent at once, and reach a client that is connected."""
        return self.connected > 0 and self._paths.is_number_reachable(self.gateway)

    @property
    def outstanding(self) -> int:
        """Copies in transit for each of its connected members."""
        return self.in_transit // max(1, self.connected)

    def has_room(self, size: int) -> bool:
        """Return whether a copy of *size* bytes may wait on its way."""
        return self._paths.has_outbox_room(self.gateway, size)

    def takes(self, publication: Publication) -> bool:
        """Return True: what the clients there take is known there."""
        return True


class SharedGroup:
    """The subscriptions of one group, in the order in which they joined."""

    __slots__ = ("_by_client", "_groups", "_next", "account", "is_federated", "key", "members", "name")

    def __init__(self, name: str, key: str, groups: SharedGroups, account: str) -> None:
        self.name = name
        self.key = key
        self.is_federated = key != name
        """Whether its other members may be at other gateways."""
        self.account = account
        """Who made the group, and answers for it as long as it has members."""
        self.members: list[Subscription] = []
        self._by_client: dict[ClientId, Subscription] = {}  # the last of each
        self._groups = groups
        self._next = 0  # where the next round begins

    @property
    def own_members(self) -> list[Subscription]:
        """The members that are clients of this gateway."""
        return [each for each in self.members if not isinstance(each.receiver, RemoteMembers)]

    @property
    def is_local(self) -> bool:
        """Whether no other gateway has members of it."""
        return not self.is_federated or len(self.own_members) == len(self.members)

    def choose(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """Choose the member that gets *publication*; None if every member is gone, or none may read it."""
        if not self._groups.is_sticky:
            return self.fairest(publication, may_read)
        member = self._sticky_member(publication, may_read)
        if member is None:
            member = self.fairest(publication, may_read)
            if member is not None:
                flows, flow = self._groups.flows, self._flow_hash(publication)
                if len(flows) >= STICKY_FLOWS_MAX and flow not in flows:
                    del flows[next(iter(flows))]
                flows[flow] = member.client
        return member

    def fairest(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """Choose the connected member with the fewest outstanding copies, in rotation where several have equally few.

        If no member is connected, members with a queue are chosen by the same rule. Members without room come last, but
        for those whose client does not take packets of this size: their copy would be dropped.
        """
        at = self._fairest_index(publication, may_read)
        if at < 0:
            return None
        self._next = (at + 1) % len(self.members)
        return self.members[at]

    def would_choose(self, publication: Publication, may_read: MayRead | None = None) -> Subscription | None:
        """Return the member that `choose` would return, without advancing the rotation."""
        member = self._sticky_member(publication, may_read) if self._groups.is_sticky else None
        if member is not None:
            return member
        at = self._fairest_index(publication, may_read)
        return None if at < 0 else self.members[at]

    def _fairest_index(self, publication: Publication, may_read: MayRead | None) -> int:
        """Return the index in `members` of the `fairest`; -1 if there is none."""
        at = self._lowest_rank_index(publication, may_read, False)
        if at < 0:
            return self._lowest_rank_index(publication, may_read, False, may_be_too_small=True)
        if publication.qos and not _has_room(self.members[at], publication):
            other = self._lowest_rank_index(publication, may_read, True)
            at = at if other < 0 else other
        return at

    def _lowest_rank_index(
        self, publication: Publication, may_read: MayRead | None, needs_room: bool, may_be_too_small: bool = False
    ) -> int:
        """Return the index of the member with the lowest rank, optionally only of those with room, or also of those
        whose client does not take so large a packet; -1 if there is none.
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
            if needs_room and not _has_room(member, publication):
                continue
            receiver: GroupMember = member.receiver
            if not (may_be_too_small or receiver.takes(publication)):
                continue
            outstanding = receiver.outstanding
            rank = (0 if receiver.is_connected else 1 if member.qos else 2, outstanding)
            if rank < best_rank:
                best, best_rank = at, rank
                if rank == (0, 0):  # no rank is lower
                    break
        return best

    def has_room(self, publication: Publication, may_read: MayRead | None = None) -> bool:
        """Return whether the member that `choose` would return has room for *publication*."""
        member = self._sticky_member(publication, may_read) if self._groups.is_sticky else None
        if member is not None:
            return _has_room(member, publication)
        return any(
            _has_room(member, publication) and (may_read is None or may_read(member, publication))
            for member in self.members
            if not member.subscriber.is_gone
        )

    def _flow_hash(self, publication: Publication) -> int:
        return hash((self.name, publication.publisher, publication.topic))

    def _sticky_member(self, publication: Publication, may_read: MayRead | None) -> Subscription | None:
        """Return the member to which the publication's flow is assigned, if it is connected, may read it and can."""
        client = self._groups.flows.get(self._flow_hash(publication))
        member = None if client is None else self._by_client.get(client)
        if member is None or member.subscriber.is_gone or not member.receiver.is_connected:
            return None
        if not member.receiver.takes(publication):
            return None
        return member if may_read is None or may_read(member, publication) else None

    def has_member_for(self, publication: Publication, may_read: MayRead | None) -> bool:
        """Return whether `choose` would return a member."""
        return any(
            may_read is None or may_read(member, publication)
            for member in self.members
            if not member.subscriber.is_gone
        )

    def add(self, member: Subscription) -> None:
        """Add *member* as the last in the rotation."""
        self.members.append(member)
        self._by_client[member.client] = member
        member.group = self

    def set_turns(self, member: Subscription, turns: int) -> None:
        """Let *member*, another gateway that was added, have *turns* places in the rotation, up to TURNS_MAX."""
        wanted, count = max(1, min(turns, TURNS_MAX)), self.members.count(member)
        for _ in range(wanted - count):
            self.members.append(member)
        for _ in range(count - wanted):
            self.remove(member)

    def remove(self, member: Subscription) -> None:
        """Remove *member*; the rotation continues with the same member as before."""
        at = self.members.index(member)
        del self.members[at]
        if self._by_client[member.client] is member:
            del self._by_client[member.client]
            self._by_client.update((one.client, one) for one in self.members if one.client == member.client)
        if at < self._next:
            self._next -= 1


class SharedGroups:
    """All groups by name, and the member subscriptions by client."""

    def __init__(self) -> None:
        self.is_sticky = False
        """Whether all messages of a publisher and topic go to the same member while it is connected."""
        self.flows: dict[int, ClientId] = {}
        """Hash of (group, publisher, topic) -> the client to whose member the flow is assigned, which may have left.

        Only the hash is stored, because a topic may have 64 KiB; two flows with the same hash merely share a member.
        """
        self.federated: tuple[str, ...] = ()
        """Names of groups, with `*` and `?`, that are shared over the federation; set with `regroup`."""
        self.per_account_max = SHARED_GROUPS_MAX
        """Groups that one account may make. A message that matches many groups is work for each of them."""
        self._by_account: Counter[str] = Counter()
        self._by_name: dict[str, SharedGroup] = {}
        self._by_client: dict[ClientId, list[Subscription]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def count_members(self) -> int:
        """Return the number of member subscriptions."""
        return sum([len(group.own_members) for group in self._by_name.values()])

    def regroup(self, federated: tuple[str, ...]) -> list[Subscription]:
        """Share the groups whose names *federated* has over the federation, and no others. Returns the members of
        other groups than before.
        """
        self.federated = federated
        moved = []
        for group in list(self._by_name.values()):
            if self.key_of(group.name) != group.key:
                for member in group.own_members:
                    self.leave(member)
                    self.join(group.name, member, group.account)
                    moved.append(member)
        return moved

    def key_of(self, name: str) -> str:
        """Return the key of the group *name*, as `$share/NAME/...`: another one if it is shared over the federation."""
        share, topic = name.partition("/")[2].partition("/")[::2]
        is_federated = not topic.startswith("$SYS") and any(fnmatchcase(share, each) for each in self.federated)
        return FEDERATED + name if is_federated else name

    def find(self, name: str) -> SharedGroup | None:
        """Return the group *name* of this gateway's clients, None if it has no members."""
        return self._by_name.get(self.key_of(name))

    def federated_group(self, name: str) -> SharedGroup | None:
        """Return the group *name* that is shared over the federation, whatever the own setting is; None if it has no
        members.
        """
        return self._by_name.get(FEDERATED + name)

    def of(self, client: ClientId) -> list[Subscription]:
        """Return the member subscriptions of *client*."""
        return [member for member in self._by_client.get(client, ()) if not member.subscriber.is_gone]

    def may_join(self, name: str, account: str) -> bool:
        """Return whether there is a group *name*, or *account* may make one more."""
        key = self.key_of(name)
        if key != name:  # all of them are told to the other gateways in one message
            others = [each for each in self._by_name.values() if each.is_federated and each.key != key]
            if sum(len(each.name) for each in others if each.own_members) + len(name) > FEDERATED_GROUPS_CHARS_MAX:
                return False
        return key in self._by_name or self._by_account[account] < self.per_account_max

    def join(self, name: str, subscription: Subscription, account: str = "") -> None:
        """Add *subscription* to the group *name*, created for *account* if there is none."""
        self._group(name, self.key_of(name), account).add(subscription)
        self._by_client.setdefault(subscription.client, []).append(subscription)

    def join_remote(self, name: str, subscription: Subscription) -> SharedGroup:
        """Add *subscription*, of another gateway, to the group *name* that is shared over the federation."""
        group = self._group(name, FEDERATED + name, "")
        group.add(subscription)
        return group

    def _group(self, name: str, key: str, account: str) -> SharedGroup:
        group = self._by_name.get(key)
        if group is None:
            group = self._by_name[key] = SharedGroup(name, key, self, account)
            self._by_account[account] += 1
        return group

    def leave(self, subscription: Subscription) -> None:
        """Remove *subscription* from its group, if it is in one."""
        group, subscription.group = subscription.group, None
        if group is None:
            return
        is_remote = isinstance(subscription.receiver, RemoteMembers)
        if is_remote:
            group.set_turns(subscription, 1)
        group.remove(subscription)
        if not group.members:
            del self._by_name[group.key]
            self._by_account[group.account] -= 1
            if not self._by_account[group.account]:
                del self._by_account[group.account]
        if is_remote:
            return
        own = self._by_client[subscription.client]
        own.remove(subscription)
        if not own:
            del self._by_client[subscription.client]


def _has_room(member: Subscription, publication: Publication) -> bool:
    """Return whether *member* can take a copy. At QoS 0 nothing is queued, so only a connected member can."""
    receiver: GroupMember = member.receiver
    if not member.qos or not publication.qos:
        return receiver.is_connected
    return receiver.has_room(publication.held_bytes())
