"""Shared subscriptions (MQTT 5.0 section 4.8.2): what waits for an absent member goes to a present one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.delivery import Delivery
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.session import Session
from edgebridge.session.subscription_text import SHARE_PREFIX
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.names import ClientId
from edgebroker.node.node import Node
from edgebroker.node.shared_groups import RemoteMembers, SharedGroup
from edgebroker.node.subscriptions import Subscription

if TYPE_CHECKING:
    from edgebridge.frontend.federation.shared_groups import FederatedGroups

TRANSFERRED_AT_ONCE: Final = 200
"""Messages handed over in one turn: 2 ms at 10 us for each."""
EXAMINED_AT_ONCE: Final = 10_000
"""Messages whose size is looked at in one turn: 3 ms."""
RETRY_INTERVAL: Final = 200 * MILLISECOND
"""What members that are there had no room for is offered to them again so often: five full queues a second."""


class SharedSubscriptions:
    """Hands copies of groups over to members that the node chooses (`edgebroker.node.shared_groups`).

    What was never sent may go to anybody. A QoS 1 message that was sent and not acknowledged stays as long as the
    session does; then it goes to another member. A QoS 2 message that was sent goes to nobody else [MQTT-4.8.2-5], and
    one that was refused neither [MQTT-4.8.2-6].
    """

    def __init__(self, node: Node, delivery: Delivery) -> None:
        self._node = node
        self._delivery = delivery
        self.federated: FederatedGroups | None = None
        """The groups that are shared over a federation; None: this gateway belongs to none."""

    def _tell_others(self, session: Session, now: Instant) -> None:
        """Tell other gateways what has become of the members that *session* is."""
        for own in self._node.groups.of(ClientId(session.client_id)) if self.federated is not None else ():
            if self.federated is not None and own.group.is_federated:
                self.federated.members_changed(own.group, now)

    def member_connected(self, session: Session, now: Instant) -> None:
        """A client is there: what waits for absent members of its groups need not wait any more."""
        self._tell_others(session, now)
        absent: dict[int, Session] = {}
        for own in self._node.groups.of(ClientId(session.client_id)):
            for member in own.group.own_members:
                if not member.receiver.is_connected:
                    absent[id(member.receiver)] = member.receiver
        for other in absent.values():
            self.member_disconnected(other, now)

    def member_disconnected(self, session: Session, now: Instant) -> None:
        """A client is away and its session waits: what was never sent goes to members that are there and have room.

        The rest stays, and is offered again by and by (the timer "share"): it is safe where it is.
        """
        if session.is_connected:
            return
        self._tell_others(session, now)
        heirs = {name for name in session.outbox.groups if self._has_successors(name)}
        if not heirs:  # nobody looks at what waits, which may be much
            return
        handed: set[int] = set()
        for entry in list(session.outbox):
            if entry.text not in heirs:
                continue
            if len(handed) == TRANSFERRED_AT_ONCE:
                self._node.timers.set(("share", session.client_id), now + 1)
                break
            heir = self._successor(entry)
            if heir is not None:
                handed.add(id(entry))
                self._transfer(session, entry, heir, now)
            elif not self._has_successors(entry.text, with_room=True):
                heirs.discard(entry.text)
                self._node.timers.set(("share", session.client_id), now + RETRY_INTERVAL)
                if not heirs:
                    break
        if handed:
            session.outbox.remove_if(lambda entry: id(entry) in handed)

    def hand_over_too_large(self, session: Session, now: Instant) -> None:
        """A client connects: what waits for it and is larger than the packets that it takes goes to other members.

        Only the first EXAMINED_AT_ONCE messages are looked at, before any is sent; of those behind them, what is too
        large is dropped when its turn comes, and counted.
        """
        if session.connection is None or not session.connection.packet_bytes_max or not session.outbox.groups:
            return
        handed: set[int] = set()
        for entry in list(islice(session.outbox, EXAMINED_AT_ONCE)):
            if entry.text in session.outbox.groups and not session.takes(entry.publication):
                member = self._chosen(entry)
                if member is not None and member.receiver is not session:
                    handed.add(id(entry))
                    self._transfer(session, entry, member, now)
        if handed:
            session.outbox.remove_if(lambda entry: id(entry) in handed)

    def session_ended(self, session: Session, now: Instant) -> None:
        """A session is over, and its subscriptions are: what others may finish goes to them, there or not."""
        if not len(self._node.groups):
            return
        if self.federated is not None:
            self.federated.session_ended(now)
        for entry in [entry for entry in session.inflight if entry.qos == 1 and self._has_successor(entry)]:
            session.inflight.acknowledge(entry.packet_id, 1)
            self._transfer(session, entry, self._chosen(entry), now)
        if session.outbox.groups:
            for entry in session.outbox.remove_if(self._has_successor):
                self._transfer(session, entry, self._chosen(entry), now)

    def _has_successors(self, name: str, with_room: bool = False) -> bool:
        """Whether members of the group are there, and have room for a message."""
        group = self._node.groups.find(name)
        return group is not None and any(
            member.receiver.is_connected and (not with_room or member.receiver.has_room(0)) for member in group.members
        )

    def _successor(self, entry: QueueEntry) -> Subscription | None:
        """Who is there and has room for *entry*, and is chosen."""
        member = self._chosen(entry)
        if member is None or not member.receiver.is_connected:
            return None
        is_free = not member.qos or member.receiver.has_room(entry.publication.held_bytes())
        return member if is_free else None

    def _chosen(self, entry: QueueEntry) -> Subscription | None:
        group, publication = self._group(entry), entry.publication
        if group is None:
            return None
        return group.choose(publication, self._node.routes.route(publication.topic).may_read)

    def _group(self, entry: QueueEntry) -> SharedGroup | None:
        """Copies of groups bear the group's name."""
        return self._node.groups.find(entry.text) if entry.text.startswith(SHARE_PREFIX) else None

    def _has_successor(self, entry: QueueEntry) -> bool:
        group, publication = self._group(entry), entry.publication
        if group is None:
            return False
        return group.has_member_for(publication, self._node.routes.route(publication.topic).may_read)

    def _transfer(self, session: Session, entry: QueueEntry, member: Subscription | None, now: Instant) -> None:
        assert member is not None
        if self.federated is not None and isinstance(member.receiver, RemoteMembers):
            self.federated.transfer(session, entry, member, now)
        else:
            self._delivery.transfer(session, entry, member.alone(), now)
