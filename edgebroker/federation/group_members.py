"""The members of shared subscriptions at other gateways, as one gateway knows them.

A shared subscription that is shared over the federation has members at several gateways. Each gateway tells all others,
by a flooded message, how many members each of its groups has; the latest message of a gateway replaces the one before.
The gateway where a message is published chooses the member for it, alone, so that exactly one is chosen: one of its
own, or another gateway, which then chooses among its members. Its knowledge need not be new for that: a gateway that
gets a message for a group and has no member any more sends it on.

No interest is announced for such a subscription: an event crosses links only on its way to the member that was chosen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.log_schema import EventId
from edgebroker.overlay.link_state import RUN_BITS, LinkStateTable
from edgebroker.overlay.messages import Forward, GroupCount, GroupMembers

GROUPS_TOPIC: Final = "$SYS/federation/groups"
"""The topic of the events for members of one gateway. Clients can neither publish to it nor get it."""
PASSES_MAX: Final = 16
"""Gateways that may send on what they have no member for: it ends loops of gateways that know nothing new of each other
yet, which ends by itself when their messages arrive.
"""


class GroupMembersTable:
    """The latest message of every gateway, this one included."""

    def __init__(self, link_state: LinkStateTable, boot: int) -> None:
        """boot: the number of the gateway's run, which grows with every start."""
        self._link_state = link_state
        self._last = boot << RUN_BITS
        self._latest: dict[int, GroupMembers] = {}

    def announce(self, groups: tuple[GroupCount, ...]) -> GroupMembers:
        """Set the members of this gateway. Returns the message to flood."""
        self._last += 1
        update = self._latest[self._link_state.number] = GroupMembers(self._link_state.number, self._last, groups)
        return update

    def restore(self, update: GroupMembers) -> None:
        """Restore what another gateway told an earlier run."""
        self._latest[update.gateway] = update

    def receive(self, update: GroupMembers) -> GroupMembers | None:
        """Handle a flooded *update*. Returns the message to flood in turn: itself if it is new, the latest of this
        gateway if it is one of an earlier run; None if it was known.
        """
        known = self._latest.get(update.gateway)
        if self._link_state.name_of(update.gateway) is None:
            return None
        if update.gateway == self._link_state.number:
            if known is not None and update.number <= known.number:
                return None
            self._last = max(self._last, update.number)
            return self.announce(() if known is None else known.groups)
        if known is not None and known.number >= update.number:
            return None
        self._latest[update.gateway] = update
        return update

    def forget(self, gateway: int) -> GroupMembers | None:
        """Treat *gateway* as one without members until it repeats its latest message, because its sessions have ended.
        Returns the change, None if it has no members as far as this gateway knows.
        """
        known = self._latest.get(gateway)
        if known is None or not known.groups:
            return None
        self._latest[gateway] = replace(known, number=known.number - 1, groups=())
        return self._latest[gateway]

    def statements(self) -> tuple[GroupMembers, ...]:
        """Return the latest message of every gateway, for a peer that may have missed some."""
        return tuple(self._latest.values())


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """An event on its way to the member of a group at one gateway."""

    event: Forward
    """As it was published, but for its header, which is that of the copy."""
    group: str
    origin: EventId
    """The identity of the event that was published."""
    passes: int
    """Gateways that have sent it on."""

    def wrap(self) -> Forward:
        """Return the event that crosses the links: of the topic GROUPS_TOPIC, with two more user properties."""
        publisher, sequence = self.origin
        marks = ((self.group, self.event.topic), (f"{publisher} {sequence}", str(self.passes)))
        return replace(self.event, topic=GROUPS_TOPIC, user=(*marks, *self.event.user))

    @classmethod
    def unwrap(cls, forward: Forward) -> GroupEvent | None:
        """Return what `wrap` has made *forward* of; None if it cannot be read."""
        if len(forward.user) < 2:
            return None
        (group, topic), (origin, passes), *user = forward.user
        numbers = [*origin.split(" "), passes]
        if len(numbers) != 3 or not all(each.isdecimal() and each.isascii() and len(each) < 20 for each in numbers):
            return None
        publisher, sequence, count = map(int, numbers)
        return cls(replace(forward, topic=topic, user=tuple(user)), group, (publisher, sequence), count)


def origin_of(forward: Forward) -> EventId:
    """Return the identity of the event that was published, of which *forward* may be the copy for a member."""
    copy = GroupEvent.unwrap(forward) if forward.topic == GROUPS_TOPIC else None
    return forward.header.eid if copy is None else copy.origin
