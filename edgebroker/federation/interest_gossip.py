"""Interest gossip: the gateways of a cluster announce interests to each other, also past neighbours that are down [SCOT
2.4].

A gateway that does not know all interests behind its other neighbours yet sends no digest: the neighbour still knows
what was announced to it before, and a comparison would make it forget interests further away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from edgebroker.federation.backpressure import BackpressureTable
from edgebroker.federation.dead_peer_relay import DeadPeerRelay
from edgebroker.federation.effects import RedialPeer, SendMessage, StoreGroupMembers, StoreInterests
from edgebroker.federation.group_members import GroupMembersTable
from edgebroker.federation.interests import ClusterInterests, InterestUpdate
from edgebroker.federation.options import FederationOptions
from edgebroker.filters.announcement import InterestDelta
from edgebroker.instants import MINUTE, SECOND, Duration
from edgebroker.interest import Interest
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import (
    Announce,
    Backpressure,
    Differ,
    Digest,
    GroupCount,
    GroupMembers,
    LinkStateUpdate,
    Message,
    Restate,
    StateKind,
    Withdraw,
)
from edgebroker.overlay.state_digest import RestatedParts, differ, digest_of, restated, sums_of
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import TopicFilter

GRACE: Final[Duration] = MINUTE
"""How long a restarted gateway waits for the interests of neighbours. A link is up within 30 s if the peer is alive."""
COMPARE_FIRST: Final[Duration] = 5 * SECOND
COMPARE_LAST: Final[Duration] = 5 * MINUTE
"""The pauses between comparisons with gateways that are reached by relays, where messages may be lost. Each pause is
twice as long as the one before, until something changes.
"""


class InterestGossip:
    """The interest gossip of one gateway."""

    def __init__(
        self, topology: Topology, gateway: TopologyGateway, options: FederationOptions, status: LinkStatus, boot: int
    ) -> None:
        self.link_state = LinkStateTable(topology, gateway.name, boot)
        self.relay = DeadPeerRelay(topology, gateway.name, self.link_state)
        self.interests = ClusterInterests(self.relay.behind, options.is_precise, options.is_covering)
        self.backpressure = BackpressureTable(topology, gateway, self.link_state, boot)
        self.group_members = GroupMembersTable(self.link_state, boot)
        self._gateway = gateway
        self._status = status
        self._peers = gateway.peers()
        self._owed_digests: dict[str, None] = {}  # peers that get a digest as soon as all other interests are known
        self._restated: dict[str, RestatedParts[Interest]] = {}
        """What peers had announced before they began to restate it, until their next digest."""
        self._filters: dict[TopicFilter, None] = {}
        self._added: list[Interest] = []
        self._is_less = False
        self._effects: list[StoreInterests | StoreGroupMembers | RedialPeer] = []
        self._dead: set[str] = set()  # peers without any path
        self._aside: set[str] = set()  # neighbours that have stepped aside
        self._compare_delay = COMPARE_FIRST
        self._is_new_delay = False

    def take_changed(self) -> tuple[dict[TopicFilter, None], list[Interest], bool]:
        """Return the topic filters under which the interests of the cluster changed since the last call, the new
        interests, and whether any ended.
        """
        changed = self._filters, self._added, self._is_less
        self._filters, self._added, self._is_less = {}, [], False
        return changed

    def _note_changed(self, changed: InterestUpdate) -> None:
        self._filters |= changed.topic_filters
        self._added += changed.added
        self._is_less |= changed.is_less

    def take_effects(self) -> list[StoreInterests | StoreGroupMembers | RedialPeer]:
        """Return the changes of neighbours' interests and of members of groups, and the peers found alive, since the
        last call.
        """
        effects, self._effects = self._effects, []
        return effects

    def take_compare_delay(self) -> Duration | None:
        """Return the time until the next `compare`; None if it has not changed since the last call."""
        is_new_delay, self._is_new_delay = self._is_new_delay, False
        return self._compare_delay if is_new_delay else None

    # -- connections ----------------------------------------------------------------------------------------------

    def link_up(self, peer: str) -> list[SendMessage]:
        """Handle a new connection with *peer*, a neighbour or a gateway of another cluster."""
        update = self.link_state.peer_up(peer)
        self._dial_reachable()
        sends = [_control(peer, each) for each in self.link_state.statements() if each is not update]
        sends += [_control(peer, each) for each in self.backpressure.statements()]
        sends += [_control(peer, each) for each in self.group_members.statements()]
        if update is not None:
            sends += self._flood(update)
        if peer in self.relay.behind:
            self.relay.severed.discard(peer)
            sends += self._compare(peer)
        return [*sends, *self._update_stand_ins()]

    def link_down(self, peer: str) -> None:
        """Handle the loss of a connection, perhaps for a moment only."""
        self.link_state.peer_down(peer)

    def declare_dead(self, peer: str) -> list[SendMessage]:
        """Handle a connection that stays lost."""
        sends = self._flood(self.link_state.declare_lost(peer))
        self._dial_reachable()
        if peer in self.relay.behind:
            self.relay.add_dead(peer)
            sends += self._update_stand_ins()
            sends += self._compare(peer)
        else:
            sends += self._update_stand_ins()
        return sends

    def step_aside(self, is_aside: bool) -> list[SendMessage]:
        """Let others go around this gateway, or no longer."""
        sends = self._flood(self.link_state.step_aside(is_aside))
        for peer in self.relay.behind if not is_aside else ():
            if self._status.is_up(peer):
                sends += self._compare(peer)  # which ends the others' relays
        return sends

    def set_backpressure(self, neighbour: str, interests: Sequence[Interest]) -> list[SendMessage]:
        """Begin backpressure for *neighbour*, which has *interests*; without interests, end it."""
        return self._flood(self.backpressure.announce(neighbour, interests))

    def announce_groups(self, groups: tuple[GroupCount, ...]) -> list[SendMessage]:
        """Tell all gateways which members this one has in groups that are shared over the federation."""
        return self._flood(self.group_members.announce(groups))

    def receive_flooded(self, peer: str, update: LinkStateUpdate | Backpressure | GroupMembers) -> list[SendMessage]:
        """Handle a message that *peer* floods."""
        # A message of an earlier run of this gateway is replaced everywhere, at its sender too.
        sender = "" if update.gateway == self.link_state.number else peer
        if isinstance(update, Backpressure):
            return [send for news in self.backpressure.receive(update) for send in self._flood(news, sender)]
        if isinstance(update, GroupMembers):
            members = self.group_members.receive(update)
            if members is update:
                self._effects.append(StoreGroupMembers(update))
            return [] if members is None else self._flood(members, sender)
        sends = [send for news in self.link_state.receive(update) for send in self._flood(news, sender)]
        self._dial_reachable()
        sends += self._heed_aside()
        return [*sends, *self._update_stand_ins()] if sends or update.gateway != self.link_state.number else sends

    def mark_alive(self, gateway: str) -> list[SendMessage]:
        """Record that a message of *gateway* arrived by relay."""
        self.link_state.mark_alive(gateway)
        return self._update_stand_ins() if gateway in self.relay.dead else []

    def compare(self) -> list[SendMessage]:
        """Send digests to all gateways that are reached by relays."""
        self._compare_delay = min(2 * self._compare_delay, COMPARE_LAST)
        self._is_new_delay = True
        peers = [one for peer, stand_ins in self.relay.stand_ins.items() for one in (peer, *stand_ins)]
        return [send for peer in (*peers, *self.relay.severed) for send in self._compare(peer)]

    # -- interests ------------------------------------------------------------------------------------------------

    def announce(self, changed: InterestUpdate) -> list[SendMessage]:
        """Announce changed interests to neighbours and their stand-ins."""
        self._note_changed(changed)
        self._effects += [StoreInterests(peer, change) for peer, change in changed.incoming.items()]
        sends = []
        for peer, change in changed.outgoing.items():
            for receiver in (peer, *self.relay.stand_ins.get(peer, ())):
                for message in _announcements(change, self.interests.epoch):
                    sends += self.send(receiver, message)
        return sends

    def accepts_interests_from(self, peer: str) -> bool:
        """Return whether *peer* is a neighbour or one of the known stand-ins, so that its interests are accepted."""
        return peer in self.relay.behind or any(peer in each for each in self.relay.stand_ins.values())

    def received(self, peer: str, message: Announce | Withdraw | Digest | Differ | Restate) -> list[SendMessage]:
        """Handle a message of *peer* about the interests behind it, or behind this gateway."""
        match message:
            case Announce(interests):
                return self.announce(self.interests.announced(peer, interests))
            case Withdraw(interests):
                return self.announce(self.interests.withdrawn(peer, interests))
            case Digest():
                self._restated.pop(peer, None)
                difference = differ(message, self.interests.announced_by(peer))
                return self.mark_known(peer) if difference is None else self.send(peer, difference)
            case Differ():
                if not self._knows_all_but(peer):
                    self._owed_digests[peer] = None
                    return []
                announced = self.interests.announced_to(peer)
                # By the final digest a restarted peer learns that it knows all.
                answer: list[Message] = [*restated(message, self.interests.epoch, announced), self._digest(peer)]
                return [send for each in answer for send in self.send(peer, each)]
            case Restate():
                known = self._restated.get(peer)
                if known is None or known.parts != message.parts:
                    known = RestatedParts(message.parts, self.interests.announced_by(peer))
                    self._restated[peer] = known
                before, stays = known.replace(message.part, message.interests), set(message.interests)
                gone = [each for each in before if each not in stays]
                changed = self.interests.announced(peer, message.interests)
                changed.append(self.interests.withdrawn(peer, gone))
                return self.announce(changed)

    def restore(self, known: Mapping[str, Iterable[Interest]]) -> None:
        """Restore the interests of neighbours from an earlier run, before any connection; nothing is announced."""
        for peer in self.relay.behind:
            self._note_changed(self.interests.announced(peer, known.get(peer, ())))

    def end_grace(self) -> list[SendMessage]:
        """Stop waiting for the interests of neighbours after a restart."""
        return [send for peer in self.relay.behind for send in self.mark_known(peer)]

    def mark_known(self, peer: str) -> list[SendMessage]:
        """Record that all interests of *peer* are known, or are no longer waited for."""
        sends = self.announce(self.interests.mark_known(peer))
        if peer in self.relay.dead and self.link_state.is_reachable(peer):
            self.relay.remove_dead(peer, self._status.is_up(peer))
            for each in self.relay.behind[peer]:
                sends += self.announce(self.interests.remove_stand_in(each))
            sends += self._update_stand_ins()
        return [*sends, *self._send_owed_digests()]

    def is_up(self, gateway: str) -> bool:
        """Return whether *gateway* is a peer with an open connection."""
        return gateway in self._peers and self._status.is_up(gateway)

    def send(self, peer: str, message: Message, service: TrafficClass = TrafficClass.CONTROL) -> list[SendMessage]:
        """Send *message* to *peer* over its link, or by relay if the peer is not connected.

        Sends nothing while a link is down for less than DEAD_AFTER. A stand-in is not a peer, so it always gets a
        relay.
        """
        if self.is_up(peer):
            return [SendMessage(peer, message, service)]
        if peer in self._peers and not self.link_state.is_lost(peer):
            return []
        return self.relay.relay(peer, message, service)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _dial_reachable(self) -> None:
        """Dial each peer that became reachable again, once, so that dials do not pile up."""
        for peer in self._peers:
            if not self._status.is_up(peer) and self.link_state.next_hop(peer) is None:
                self._dead.add(peer)
            elif peer in self._dead:
                self._dead.discard(peer)
                if not self._status.is_up(peer):
                    self._effects.append(RedialPeer(peer))

    def _heed_aside(self) -> list[SendMessage]:
        """Treat neighbours that have stepped aside as dead ones, although their links are open."""
        sends = []
        for peer in self.relay.behind:
            is_aside = self.link_state.is_aside(peer)
            if is_aside and peer not in self._aside:
                self._aside.add(peer)
                self.relay.add_dead(peer)
            elif not is_aside and peer in self._aside:
                self._aside.discard(peer)
                if self._status.is_up(peer):
                    sends += self._compare(peer)
        return sends

    def _update_stand_ins(self) -> list[SendMessage]:
        """Choose stand-ins again after reachability changed, and announce interests to the new ones."""
        self._compare_delay = COMPARE_FIRST
        self._is_new_delay = True
        sends = []
        for new in self.relay.update_stand_ins():
            sends += self.announce(self.interests.add_stand_in(new))
            sends += self._compare(new)
        return [*sends, *self._send_owed_digests()]

    def _compare(self, peer: str) -> list[SendMessage]:
        """Let *peer* check what was announced to it, and ask it for its interests if they are not known."""
        self._owed_digests[peer] = None
        sends = self._send_owed_digests()
        self._restated.pop(peer, None)
        if peer not in self.relay.behind and not self.interests.is_known(peer):
            sends += self.send(peer, Differ(StateKind.INTERESTS, sums_of(self.interests.announced_by(peer))))
        return sends

    def _send_owed_digests(self) -> list[SendMessage]:
        """Send the owed digests whose content is known by now."""
        ready = [peer for peer in self._owed_digests if self._knows_all_but(peer)]
        for peer in ready:
            del self._owed_digests[peer]
        return [send for peer in ready for send in self.send(peer, self._digest(peer))]

    def _knows_all_but(self, peer: str) -> bool:
        """Return whether the interests behind all neighbours, except the one on the path to *peer*, are known."""
        return all(
            self._is_known(neighbour)
            for neighbour, behind in self.relay.behind.items()
            if peer != neighbour and peer not in behind
        )

    def _is_known(self, neighbour: str) -> bool:
        """Return whether all interests behind *neighbour* are known."""
        sources = [neighbour, *self.relay.stand_ins.get(neighbour, ())]
        is_open = neighbour in self.relay.dead and self.link_state.is_reachable(neighbour)
        return not is_open and all(map(self.interests.is_known, sources))

    def _digest(self, peer: str) -> Digest:
        return digest_of(StateKind.INTERESTS, self.interests.epoch, self.interests.announced_to(peer))

    def _flood(self, update: LinkStateUpdate | Backpressure | GroupMembers, except_peer: str = "") -> list[SendMessage]:
        return [_control(peer, update) for peer in self._peers if peer != except_peer and self._status.is_up(peer)]


def _announcements(change: InterestDelta, epoch: int) -> Iterator[Announce | Withdraw]:
    """Return *change* as messages of limited size, because the receiver serves its clients between two of them."""
    if change.announce:
        yield from Announce(change.announce, epoch).parts()
    if change.withdraw:
        yield from Withdraw(change.withdraw, epoch).parts()


def _control(peer: str, message: Message) -> SendMessage:
    return SendMessage(peer, message, TrafficClass.CONTROL)
