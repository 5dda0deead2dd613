"""Shared subscriptions (MQTT 5.0 section 4.8.2): what waits for a member that is away goes to one that is there."""

from __future__ import annotations

from edgebridge.frontend.delivery import Delivery
from edgebridge.session.carriers import SHARE_PREFIX
from edgebridge.session.inflight import Entry
from edgebridge.session.session import Session
from edgebroker.instants import Instant
from edgebroker.names import ClientId
from edgebroker.node.groups import Group
from edgebroker.node.node import Node


class Sharing:
    """Hands copies of groups over to members that the node chooses (`edgebroker.node.groups`).

    What was never sent may go to anybody. A QoS 1 message that was sent and not acknowledged stays as long as the
    session does; then it goes to another member. A QoS 2 message that was sent goes to nobody else [MQTT-4.8.2-5], and
    one that was refused neither [MQTT-4.8.2-6].
    """

    def __init__(self, node: Node, delivery: Delivery) -> None:
        self._node = node
        self._delivery = delivery

    def arrived(self, session: Session, now: Instant) -> None:
        """A client is there: what waits for absent members of its groups need not wait any more."""
        absent: dict[int, Session] = {}
        for own in self._node.groups.of(ClientId(session.client_id)):
            for member in own.group.members:
                if not member.receiver.is_present:
                    absent[id(member.receiver)] = member.receiver
        for other in absent.values():
            self.left(other, now)

    def left(self, session: Session, now: Instant) -> None:
        """A client is away and its session waits: what was never sent goes to members that are there."""
        heirs = {name for name in session.outbox.groups if self._is_anybody_present(name)}
        if heirs:  # else nobody looks at what waits, which may be much
            for entry in session.outbox.pick(lambda entry: entry.text in heirs and self._has_heir(entry, True)):
                self._hand_over(session, entry, now)

    def ended(self, session: Session, now: Instant) -> None:
        """A session is over, and its subscriptions are: what others may finish goes to them, there or not."""
        if not len(self._node.groups):
            return
        for entry in [entry for entry in session.inflight if entry.qos == 1 and self._has_heir(entry)]:
            session.inflight.settle(entry.packet_id, 1)
            self._hand_over(session, entry, now)
        if session.outbox.groups:
            for entry in session.outbox.pick(self._has_heir):
                self._hand_over(session, entry, now)

    def _is_anybody_present(self, name: str) -> bool:
        group = self._node.groups.find(name)
        return group is not None and any(member.receiver.is_present for member in group.members)

    def _group(self, entry: Entry) -> Group | None:
        """Copies of groups bear the group's name."""
        return self._node.groups.find(entry.text) if entry.text.startswith(SHARE_PREFIX) else None

    def _has_heir(self, entry: Entry, must_be_present: bool = False) -> bool:
        group, publication = self._group(entry), entry.publication
        if group is None:
            return False
        return group.has_member_for(publication, self._node.routes.route(publication.topic).may_read, must_be_present)

    def _hand_over(self, session: Session, entry: Entry, now: Instant) -> None:
        group, publication = self._group(entry), entry.publication
        assert group is not None
        member = group.choose(publication, self._node.routes.route(publication.topic).may_read)
        assert member is not None
        self._delivery.hand_over(session, entry, member.alone(), now)
