"""Shared subscriptions whose members are at several gateways: one member of the federation gets each message.

`edgebroker.federation.group_members` says how it works. Here the own members are counted and told, those of other
gateways become members of the node's groups, and copies for them leave as events of this gateway: addressed to that
gateway, in a relay, so they wait on disk where a link is down, take other ways, and arrive once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Protocol

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.federation.convert import encode_other_properties, to_publication
from edgebridge.frontend.federation.peer_copies import PeerCopyLedger
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.session import Session
from edgebridge.session.subscription_text import parse_subscription
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.forwarding import forward_of
from edgebroker.federation.group_members import PASSES_MAX, GroupEvent
from edgebroker.federation.router import FederationRouter
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.log_schema import Cause, EventId, MessageOrigin
from edgebroker.node.node import Node
from edgebroker.node.routes import Route
from edgebroker.node.shared_groups import RemoteMembers, SharedGroup
from edgebroker.node.subscriptions import Copy, Subscription
from edgebroker.overlay.link.journal_records import groups_record
from edgebroker.overlay.link.link import LinkTable
from edgebroker.overlay.messages import Forward, GroupCount, GroupMembers, Message, Relay
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.publication import Publication

ANNOUNCE_INTERVAL: Final[Duration] = SECOND
"""How often other gateways are told of more or fewer members at most."""
URGENT_INTERVAL: Final[Duration] = SECOND // 10
"""How often they are told of the first and the last one at most: a client that comes and goes is not to fill links."""
IN_TRANSIT_MAX: Final = 10_000
"""Copies that are followed until they have left, at 300 bytes each. For gateways that are away there may be more."""
NO_MEMBERS: Final = (0, 0)


class GroupOverlay(Protocol):
    """The member of the federation that this gateway is."""

    peers: FederationRouter
    links: LinkTable
    peer_copies: PeerCopyLedger

    def send_all(self, sends: Collection[SendMessage], now: Instant) -> None:
        """Give *sends* to their links."""


class FederatedGroups:
    """The groups of one gateway that are shared over the federation."""

    def __init__(
        self,
        overlay: GroupOverlay,
        node: Node,
        delivery: Delivery,
        session_journal: SessionJournal,
        stored: Collection[GroupMembers],
    ) -> None:
        """stored: what an earlier run knew of other gateways."""
        self.due: Instant | None = None
        """When to call `fire`."""
        self.sent = 0
        """Copies that went to other gateways."""
        self.received = 0
        """Copies that came from other gateways for members here."""
        self.passed_on = 0
        """Of these, those that went on to another gateway, because no member was here."""
        self.unreadable = 0
        """Copies of other gateways that could not be read."""
        self._overlay = overlay
        self._node = node
        self._delivery = delivery
        self._journal = session_journal
        self._stored = stored
        self._own: dict[int, tuple[Subscription, SharedGroup]] = {}  # by the number of the subscription
        self._counts: dict[str, tuple[int, int]] = {}  # group -> its members here, connected and kept
        self._announced: dict[str, tuple[int, int]] = {}
        self._announced_at: Instant = -ANNOUNCE_INTERVAL
        self._remote: dict[int, dict[str, Subscription]] = {}  # number of a gateway -> group -> it as a member
        self._in_transit: dict[EventId, RemoteMembers] = {}

    # -- the run --------------------------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Begin. The sessions of this gateway are restored."""
        stored, self._stored = self._stored, ()
        state = self._overlay.peers.gossip.link_state
        for members in stored:
            if members.gateway != state.number and state.name_of(members.gateway) is not None:
                self._overlay.peers.gossip.group_members.restore(members)
                self._apply(members, now)
        self._announce(now)

    def take_over(self, before: FederatedGroups) -> None:
        """Go on for *before*, in another topology. Its members at other gateways are restored as after a restart."""
        for gateway in list(before._remote):
            before._remove(gateway)
        self._own, self._counts = before._own, before._counts
        self.sent, self.received, self.passed_on = before.sent, before.received, before.passed_on

    def records(self) -> Iterator[bytes]:
        """All that the journal has to know, said again."""
        for members in self._overlay.peers.gossip.group_members.statements():
            if members.gateway != self._overlay.peers.gateway.number:
                yield groups_record(members)

    def fire(self, now: Instant) -> None:
        """The deadline `due` may have come."""
        if self.due is not None and now >= self.due:
            self._announce(now)

    def counts(self) -> dict[str, int]:
        """Return the counts of copies by what became of them."""
        return {
            "sent": self.sent,
            "received": self.received,
            "passed_on": self.passed_on,
            "unreadable": self.unreadable,
        }

    # -- the members of this gateway ------------------------------------------------------------------------------

    def subscribed(self, number: int, now: Instant) -> bool | None:
        """A subscription holds. Returns None if its group, if it has one, is not shared over the federation: then it is
        an interest of this gateway; else whether other gateways are told of a first member.
        """
        subscription = self._node.subscriptions.by_number.get(number)
        group: SharedGroup | None = None if subscription is None else subscription.group
        if subscription is None or group is None or not group.is_federated:
            return None
        self._own[number] = subscription, group
        return self.members_changed(group, now)

    def unsubscribed(self, number: int, now: Instant) -> None:
        """A subscription ended, of whatever kind."""
        found = self._own.pop(number, None)
        if found is not None:
            self.members_changed(found[1], now)

    def members_changed(self, group: SharedGroup, now: Instant) -> bool:
        """Members of *group* came, went, connected, or lost their connections. Returns whether others are told now."""
        if not group.is_federated:
            return False
        sessions: list[tuple[Session, int]] = [
            (each.receiver, each.qos) for each in group.own_members if not each.subscriber.is_gone
        ]
        connected = sum(session.is_connected for session, _ in sessions)
        kept = sum(bool(qos and session.expiry_s) for session, qos in sessions if not session.is_connected)
        name, count = group.name, (connected, kept)
        self._counts[name] = count
        if count == NO_MEMBERS:
            del self._counts[name]
        before = self._announced.get(name, NO_MEMBERS)
        is_urgent = bool(connected) != bool(before[0]) or any(count) != any(before)
        due = self._announced_at + (URGENT_INTERVAL if is_urgent else ANNOUNCE_INTERVAL)
        if is_urgent and due <= now:
            return self._announce(now)
        if count != before:
            self.due = due if self.due is None else min(due, self.due)
        return False

    def session_ended(self, now: Instant) -> None:
        """A session has ended, and its subscriptions will be removed by and by."""
        for group in dict.fromkeys(group for one, group in self._own.values() if one.subscriber.is_gone):
            self.members_changed(group, now)

    def _announce(self, now: Instant) -> bool:
        self.due = None
        if self._counts == self._announced:
            return False
        self._announced, self._announced_at = dict(self._counts), now
        groups = tuple(GroupCount(name, *count) for name, count in self._counts.items())
        sends = self._overlay.peers.gossip.announce_groups(groups)
        self._overlay.send_all(sends, now)
        return bool(sends)

    # -- the members of other gateways ----------------------------------------------------------------------------

    def update(self, members: GroupMembers, now: Instant) -> None:
        """Another gateway has other members than before."""
        if self._journal.storage is not None:
            self._journal.append(groups_record(members), False, now)
        self._apply(members, now)

    def end_lease(self, peer: str, now: Instant) -> None:
        """*peer* was away for so long that its sessions have ended."""
        members = self._overlay.peers.gossip.group_members.forget(self._overlay.peers.gossip.link_state.number_of(peer))
        if members is not None:
            self.update(members, now)

    def is_number_reachable(self, number: int) -> bool:
        """Return whether there is a way to the gateway with *number* now."""
        return self._overlay.peers.gossip.link_state.is_number_reachable(number)

    def has_outbox_room(self, number: int, size: int) -> bool:
        """Return whether an event of *size* bytes may wait on the way to the gateway with *number*."""
        state = self._overlay.peers.gossip.link_state
        name = state.name_of(number)
        if name is None:
            return False
        return self._overlay.links[state.next_hop(name) or state.static_next_hop(name)].outbox.has_room(size)

    def full_gateway(self, publication: Publication, route: Route) -> str:
        """Return the gateway whose member would get *publication*, and for which too much waits; empty if there is
        none.
        """
        size = publication.held_bytes()
        if not self._remote or not self._overlay.links.lacks_room(size):
            return ""
        route.copies_for(publication)
        for group in route.wanting():
            member = group.would_choose(publication, route.may_read) if group.is_federated else None
            if member is not None and isinstance(member.receiver, RemoteMembers) and not member.receiver.has_room(size):
                return member.receiver.name
        return ""

    def _apply(self, members: GroupMembers, now: Instant) -> None:
        name = self._overlay.peers.gossip.link_state.name_of(members.gateway)
        if name is None:  # it is no gateway of this topology any more
            return
        found = self._remote.setdefault(members.gateway, {})
        groups = {group.name: group for group in members.groups}
        for gone in found.keys() - groups.keys():
            self._node.remove_gateway(found.pop(gone))
        for group in groups.values():
            member = found.get(group.name)
            if member is None:
                member = self._add(members.gateway, name, group.name)
                if member is None:
                    continue
                found[group.name] = member
            was_connected = member.receiver.connected
            member.receiver.connected = group.connected
            member.group.set_turns(member, group.connected)
            if group.connected and not was_connected:
                self._offer_waiting(member.group, now)
        if not found:
            del self._remote[members.gateway]

    def _add(self, gateway: int, name: str, group: str) -> Subscription | None:
        try:
            request = parse_subscription(group)
        except EdgebrokerError:  # of a version with other filters
            self.unreadable += 1
            return None
        receiver = RemoteMembers(gateway, name, self)
        return self._node.add_gateway(group, request.topic_filter, request.filter, receiver)

    def _remove(self, gateway: int) -> None:
        for member in self._remote.pop(gateway).values():
            self._node.remove_gateway(member)

    def _offer_waiting(self, group: SharedGroup, now: Instant) -> None:
        """Let what waits here for clients that are away go to another gateway, in a later turn."""
        for member in group.own_members:
            if not member.receiver.is_connected and group.name in member.receiver.outbox.groups:
                self._node.timers.set(("share", member.client), now + 1)

    # -- copies for other gateways --------------------------------------------------------------------------------

    def send_copies(
        self, publication: Publication, copies: tuple[Copy, ...], origin: EventId, now: Instant
    ) -> tuple[Copy, ...]:
        """Send those of *copies* that are for members at other gateways; return the others. *origin*: the identity of
        the event.
        """
        own: list[Copy] = []
        for copy in copies:
            if isinstance(copy.receiver, RemoteMembers):
                self._send(publication, copy.subscriptions[0], origin, 0, now)
            else:
                own.append(copy)
        return copies if len(own) == len(copies) else tuple(own)

    def transfer(self, session: Session, entry: QueueEntry, member: Subscription, now: Instant) -> None:
        """Send *entry*, taken out of *session*, to another gateway: both are on disk together, or neither."""
        publication, ledger, journal = entry.publication, self._node.ledger, self._journal
        if publication.has_expired(now):
            ledger.expire(now, publication, session.client_id, entry.text, entry.qos)
            journal.settled(session, entry, now)
            return
        ledger.matched += 1
        is_within = journal.has_transaction
        if not is_within:
            journal.begin_transaction()
        self._send(publication, member, (0, 0), 0, now)
        journal.moved_away(session, entry, now)
        if not is_within:
            journal.commit_transaction(now)
        ledger.drop(now, publication, session.client_id, entry.text, entry.qos, Cause.HANDED_OVER)
        session.outbox.count_dropped(Cause.HANDED_OVER, 1)

    def _send(self, publication: Publication, member: Subscription, origin: EventId, passes: int, now: Instant) -> None:
        receiver: RemoteMembers = member.receiver
        peers = self._overlay.peers
        header = peers.publisher.next_header(now // MILLISECOND + peers.unix_offset_ms)
        event = forward_of(publication, header, encode_other_properties(publication), now)
        wrapped = GroupEvent(event, member.label, origin, passes).wrap()
        sends = peers.gossip.relay.relay(receiver.name, wrapped, TrafficClass.LIVE, is_alone=True)
        if publication.qos and len(self._in_transit) < IN_TRANSIT_MAX:
            receiver.in_transit += 1
            self._in_transit[header.eid] = receiver
        self.sent += 1
        self._overlay.send_all(sends, now)
        for send in sends:
            self._overlay.peer_copies.open_copy(send.peer, header.eid, publication, now)

    def left(self, messages: Collection[Message]) -> None:
        """Events of this gateway have left it, or were dropped."""
        for message in messages if self._in_transit else ():
            event = message.message if isinstance(message, Relay) else None
            receiver = self._in_transit.pop(event.header.eid, None) if isinstance(event, Forward) else None
            if receiver is not None:
                receiver.in_transit -= 1

    # -- copies of other gateways ---------------------------------------------------------------------------------

    def receive(self, forward: Forward, now: Instant) -> None:
        """Give *forward*, which another gateway has sent for a member here, to one of them, or send it on."""
        copy = GroupEvent.unwrap(forward)
        if copy is None:
            self.unreadable += 1
            return
        self.received += 1
        publication = to_publication(copy.event, now)
        member, cause = self._member_for(copy, publication)
        ledger, journal = self._node.ledger, self._journal
        publication.number = ledger.accept(
            now,
            publication.publisher,
            1,
            publication.topic,
            publication.qos,
            len(publication.payload),
            0 if member is None else 1,
            cause,
            event=copy.origin,
            origin=MessageOrigin.PEER,
        )
        if member is None:
            return
        if isinstance(member.receiver, RemoteMembers):
            self.passed_on += 1
            self._send(publication, member, copy.origin, copy.passes + 1, now)
            return
        if publication.qos == 2:  # no reader may have it before it is on disk
            journal.open_transaction(now)
            journal.is_in_qos2 = True
        self._delivery.deliver_promised(publication, (member.alone(),), now)
        journal.is_in_qos2 = False

    def _member_for(self, copy: GroupEvent, publication: Publication) -> tuple[Subscription | None, Cause]:
        """Return who gets *publication*: a client here that is connected, then another gateway where one is, then a
        client here that is away, then another gateway.
        """
        own = self._node.groups.find(copy.group)
        everywhere = self._node.groups.federated_group(copy.group)
        may_read = self._node.routes.route(publication.topic).may_read

        def is_own(member: Subscription, publication: Publication) -> bool:
            is_remote = isinstance(member.receiver, RemoteMembers)
            return not is_remote and (may_read is None or may_read(member, publication))

        def is_elsewhere(member: Subscription, publication: Publication) -> bool:
            return isinstance(member.receiver, RemoteMembers)

        here = None if own is None else own.choose(publication, is_own)
        if here is not None and here.receiver.is_connected:
            return here, Cause.NONE
        elsewhere = None
        if everywhere is not None and copy.passes < PASSES_MAX:
            elsewhere = everywhere.fairest(publication, is_elsewhere)
        if elsewhere is not None and (here is None or elsewhere.receiver.is_connected):
            return elsewhere, Cause.NONE
        if here is not None:
            return here, Cause.NONE
        is_denied = own is not None and bool(own.own_members)
        return None, Cause.NOT_ALLOWED if is_denied else Cause.NO_SUBSCRIBER
