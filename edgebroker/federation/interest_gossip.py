"""Interest gossip: the gateways of a cluster announce interests to each other, also past neighbours that are down
[SCOT 2.4].

Who does not know yet all that is wanted behind its other neighbours does not compare what it told: the neighbour
that asks still knows what it was told before, and would forget what is wanted further away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from edgebroker.federation.backpressure import BackpressureTable
from edgebroker.federation.dead_peer_relay import DeadPeerRelay
from edgebroker.federation.effects import RedialPeer, SendMessage, StoreInterests
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
    LinkStateUpdate,
    Message,
    Restate,
    StateKind,
    Withdraw,
)
from edgebroker.overlay.state_digest import differ, digest_of, of_part, restated, sums_of
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import TopicFilter

GRACE: Final[Duration] = MINUTE
"""So long a restarted gateway waits for what neighbours want. A link is up again within 30 s, if anybody is there."""
COMPARE_FIRST: Final[Duration] = 5 * SECOND
COMPARE_LAST: Final[Duration] = 5 * MINUTE
"""Those who talk around somebody compare what they told after such pauses, each twice as long as the one before, until
something changes: on the way there it may have been lost."""


class InterestGossip:
    """That of one gateway."""

    def __init__(
        self, topology: Topology, gateway: TopologyGateway, ways: FederationOptions, status: LinkStatus, boot: int
    ) -> None:
        self.link_state = LinkStateTable(topology, gateway.name, boot)
        self.relay = DeadPeerRelay(topology, gateway.name, self.link_state)
        self.interests = ClusterInterests(self.relay.behind, ways.is_precise, ways.is_covering)
        self.backpressure = BackpressureTable(topology, gateway, self.link_state, boot)
        self._gateway = gateway
        self._status = status
        self._peers = gateway.peers()
        self._owed_digests: dict[str, None] = {}  # who has to be told whether it knows all, when we do
        self._filters: dict[TopicFilter, None] = {}
        self._effects: list[StoreInterests | RedialPeer] = []
        self._dead: set[str] = set()  # peers to whom there is no way at all
        self._pause = COMPARE_FIRST
        self._is_new = False  # the pause

    def take_changed_filters(self) -> dict[TopicFilter, None]:
        """Under these topic filters the cluster wants more or less since this was asked last."""
        filters, self._filters = self._filters, {}
        return filters

    def take_effects(self) -> list[StoreInterests | RedialPeer]:
        """What neighbours announced and withdrew, and who was found to live, since this was asked last."""
        news, self._effects = self._effects, []
        return news

    def take_compare_delay(self) -> Duration | None:
        """After so long to `compare`; None: as was said before."""
        is_new, self._is_new = self._is_new, False
        return self._pause if is_new else None

    # -- connections ----------------------------------------------------------------------------------------------

    def link_up(self, peer: str) -> list[SendMessage]:
        """There is a connection with *peer*, a neighbour or not."""
        said = self.link_state.peer_up(peer)
        self._dial_reachable()
        sends = [_control(peer, each) for each in self.link_state.statements() if each is not said]
        sends += [_control(peer, each) for each in self.backpressure.statements()]
        if said is not None:
            sends += self._flood(said)
        if peer in self.relay.behind:
            self.relay.severed.discard(peer)
            sends += self._compare(peer)
        return [*sends, *self._update_stand_ins()]

    def link_down(self, peer: str) -> None:
        """It is lost, perhaps for a moment only."""
        self.link_state.peer_down(peer)

    def declare_dead(self, peer: str) -> list[SendMessage]:
        """It stays lost."""
        sends = self._flood(self.link_state.declare_lost(peer))
        self._dial_reachable()
        if peer in self.relay.behind:
            self.relay.add_dead(peer)
            sends += self._update_stand_ins()
            sends += self._compare(peer)
        else:
            sends += self._update_stand_ins()
        return sends

    def set_backpressure(self, neighbour: str, interests: Sequence[Interest]) -> list[SendMessage]:
        """Too much waits here for *neighbour*, which has *interests*; or, without any, there is room again."""
        return self._flood(self.backpressure.announce(neighbour, interests))

    def receive_flooded(self, peer: str, said: LinkStateUpdate | Backpressure) -> list[SendMessage]:
        """*peer* passes on what a gateway said of its connections, or of its outboxes."""
        knows = (
            "" if said.gateway == self.link_state.number else peer
        )  # of an earlier run of ours: it has to unlearn that
        if isinstance(said, Backpressure):
            return [send for news in self.backpressure.receive(said) for send in self._flood(news, knows)]
        sends = [send for news in self.link_state.receive(said) for send in self._flood(news, knows)]
        self._dial_reachable()
        return [*sends, *self._update_stand_ins()] if sends or said.gateway != self.link_state.number else sends

    def mark_alive(self, gateway: str) -> list[SendMessage]:
        """*gateway* said something around those between us."""
        self.link_state.mark_alive(gateway)
        return self._update_stand_ins() if gateway in self.relay.dead else []

    def compare(self) -> list[SendMessage]:
        """Compare once more with everybody to whom we talk around somebody."""
        self._pause = min(2 * self._pause, COMPARE_LAST)
        self._is_new = True
        peers = [one for peer, stand_ins in self.relay.stand_ins.items() for one in (peer, *stand_ins)]
        return [send for peer in (*peers, *self.relay.severed) for send in self._compare(peer)]

    # -- interests ------------------------------------------------------------------------------------------------

    def announce(self, changed: InterestUpdate) -> list[SendMessage]:
        """Interests changed: tell neighbours, and who stands in for them."""
        self._filters |= changed.topic_filters
        self._effects += [StoreInterests(peer, change) for peer, change in changed.incoming.items()]
        sends = []
        for peer, change in changed.outgoing.items():
            for receiver in (peer, *self.relay.stand_ins.get(peer, ())):
                for message in _told(change, self.interests.epoch):
                    sends += self.send(receiver, message)
        return sends

    def accepts_interests_from(self, peer: str) -> bool:
        """Whether *peer* may tell us of interests: a neighbour, or one that stands in for it as we see it."""
        return peer in self.relay.behind or any(peer in each for each in self.relay.stand_ins.values())

    def received(self, peer: str, message: Announce | Withdraw | Digest | Differ | Restate) -> list[SendMessage]:
        """*peer* says something about the interests behind it, or behind us."""
        match message:
            case Announce(interests):
                return self.announce(self.interests.announced(peer, interests))
            case Withdraw(interests):
                return self.announce(self.interests.withdrawn(peer, interests))
            case Digest():
                difference = differ(message, self.interests.announced_by(peer))
                return self.mark_known(peer) if difference is None else self.send(peer, difference)
            case Differ():
                if not self._knows_all_but(peer):
                    self._owed_digests[peer] = None
                    return []
                told = self.interests.announced_to(peer)
                # who began anew learns by a last digest that it knows all
                answer: list[Message] = [*restated(message, self.interests.epoch, told), self._digest(peer)]
                return [send for each in answer for send in self.send(peer, each)]
            case Restate():
                changed = self.interests.announced(peer, message.interests)
                stays = set(message.interests)
                gone = [each for each in of_part(message, self.interests.announced_by(peer)) if each not in stays]
                changed.append(self.interests.withdrawn(peer, gone))
                return self.announce(changed)

    def restore(self, known: Mapping[str, Iterable[Interest]]) -> None:
        """An earlier run knew what neighbours wanted. They are not met yet: nobody is told."""
        for peer in self.relay.behind:
            for interest in known.get(peer, ()):
                self._filters |= self.interests.announced(peer, (interest,)).topic_filters

    def end_grace(self) -> list[SendMessage]:
        """After a restart no neighbour is waited for any longer."""
        return [send for peer in self.relay.behind for send in self.mark_known(peer)]

    def mark_known(self, peer: str) -> list[SendMessage]:
        """All interests of *peer* are known, or are waited for no longer."""
        sends = self.announce(self.interests.mark_known(peer))
        if peer in self.relay.dead and self.link_state.is_reachable(peer):
            self.relay.remove_dead(peer, self._status.is_up(peer))
            for each in self.relay.behind[peer]:
                sends += self.announce(self.interests.remove_stand_in(each))
            sends += self._update_stand_ins()
        return [*sends, *self._send_owed_digests()]

    def is_up(self, gateway: str) -> bool:
        """Whether *gateway* is a peer with whom we have a connection."""
        return gateway in self._peers and self._status.is_up(gateway)

    def send(self, peer: str, message: Message, service: TrafficClass = TrafficClass.CONTROL) -> list[SendMessage]:
        """Say something to *peer*, over its link or else around, if that is possible.

        Nothing while a link is down that may be up again in a moment. Who only stands in is no peer, and has none.
        """
        if self.is_up(peer):
            return [SendMessage(peer, message, service)]
        if peer in self._peers and not self.link_state.is_lost(peer):
            return []
        return self.relay.relay(peer, message, service)

    # -- how it is done -------------------------------------------------------------------------------------------

    def _dial_reachable(self) -> None:
        """A peer to whom there was no way is back if there is one. Each is dialled once for that, so nothing storms."""
        for peer in self._peers:
            if not self._status.is_up(peer) and self.link_state.next_hop(peer) is None:
                self._dead.add(peer)
            elif peer in self._dead:
                self._dead.discard(peer)
                if not self._status.is_up(peer):
                    self._effects.append(RedialPeer(peer))

    def _update_stand_ins(self) -> list[SendMessage]:
        """Perhaps others can be reached than before."""
        self._pause = COMPARE_FIRST
        self._is_new = True
        sends = []
        for new in self.relay.update_stand_ins():
            sends += self.announce(self.interests.add_stand_in(new))
            sends += self._compare(new)
        return [*sends, *self._send_owed_digests()]

    def _compare(self, peer: str) -> list[SendMessage]:
        """Let *peer* see whether it knows what we told it, and ask for what it told us, if we do not know that."""
        self._owed_digests[peer] = None
        sends = self._send_owed_digests()
        if peer not in self.relay.behind and not self.interests.is_known(peer):
            sends += self.send(peer, Differ(StateKind.INTERESTS, sums_of(self.interests.announced_by(peer))))
        return sends

    def _send_owed_digests(self) -> list[SendMessage]:
        """Send the digests that are owed and can be made."""
        ready = [peer for peer in self._owed_digests if self._knows_all_but(peer)]
        for peer in ready:
            del self._owed_digests[peer]
        return [send for peer in ready for send in self.send(peer, self._digest(peer))]

    def _knows_all_but(self, peer: str) -> bool:
        """Whether we know what is wanted behind all neighbours but that on the way to *peer*."""
        return all(
            self._is_known(neighbour)
            for neighbour, behind in self.relay.behind.items()
            if peer != neighbour and peer not in behind
        )

    def _is_known(self, neighbour: str) -> bool:
        heard = [neighbour, *self.relay.stand_ins.get(neighbour, ())]
        is_open = neighbour in self.relay.dead and self.link_state.is_reachable(neighbour)
        return not is_open and all(map(self.interests.is_known, heard))

    def _digest(self, peer: str) -> Digest:
        return digest_of(StateKind.INTERESTS, self.interests.epoch, self.interests.announced_to(peer))

    def _flood(self, said: LinkStateUpdate | Backpressure, but: str = "") -> list[SendMessage]:
        return [_control(peer, said) for peer in self._peers if peer != but and self._status.is_up(peer)]


def _told(change: InterestDelta, epoch: int) -> Iterator[Announce | Withdraw]:
    """*change* as messages; whoever receives them has clients to look after between one and the next."""
    if change.announce:
        yield from Announce(change.announce, epoch).parts()
    if change.withdraw:
        yield from Withdraw(change.withdraw, epoch).parts()


def _control(peer: str, message: Message) -> SendMessage:
    return SendMessage(peer, message, TrafficClass.CONTROL)
