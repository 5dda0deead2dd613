"""The neighbourhood of a gateway: what the gateways of a cluster tell each other of interests [SCOT 2.4], also around
those of them that are away.

Who does not know yet all that is wanted behind its other neighbours does not compare what it told: the neighbour that
asks still knows what it was told before, and would forget what is wanted further away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from edgebroker.filters.announcement import Change
from edgebroker.instants import MINUTE, SECOND, Duration
from edgebroker.interest import Interest
from edgebroker.node.around import Around
from edgebroker.node.crowds import Crowds
from edgebroker.node.interests import Changed, ClusterInterests
from edgebroker.node.peereffects import Found, Learned, Send
from edgebroker.node.ways import Ways
from edgebroker.overlay.classes import Service
from edgebroker.overlay.congestion import LinkStatus
from edgebroker.overlay.digest import differ, digest_of, of_part, restated, sums_of
from edgebroker.overlay.messages import Announce, Crowded, Differ, Digest, Message, Restate, Told, Unreached, Withdraw
from edgebroker.overlay.reach import Reach
from edgebroker.overlay.topology import Gateway, Topology
from edgebroker.topics import TopicFilter

GRACE: Final[Duration] = MINUTE
"""So long a restarted gateway waits for what neighbours want. A link is up again within 30 s, if anybody is there."""
COMPARE_FIRST: Final[Duration] = 5 * SECOND
COMPARE_LAST: Final[Duration] = 5 * MINUTE
"""Those who talk around somebody compare what they told after such pauses, each twice as long as the one before, until
something changes: on the way there it may have been lost."""


class Neighbourhood:
    """That of one gateway."""

    def __init__(self, topology: Topology, gateway: Gateway, ways: Ways, status: LinkStatus, boot: int) -> None:
        self.reach = Reach(topology, gateway.name, boot)
        self.around = Around(topology, gateway.name, self.reach)
        self.interests = ClusterInterests(self.around.behind, ways.is_precise, ways.is_covering)
        self.crowds = Crowds(topology, gateway, self.reach, boot)
        self._gateway = gateway
        self._status = status
        self._peers = gateway.peers()
        self._owed: dict[str, None] = {}  # who has to be told whether it knows all, when we do
        self._filters: dict[TopicFilter, None] = {}
        self._news: list[Learned | Found] = []
        self._gone: set[str] = set()  # peers to whom there is no way at all
        self._pause = COMPARE_FIRST
        self._is_new = False  # the pause

    def take_filters(self) -> dict[TopicFilter, None]:
        """Under these topic filters the cluster wants more or less since this was asked last."""
        filters, self._filters = self._filters, {}
        return filters

    def take_news(self) -> list[Learned | Found]:
        """What neighbours announced and withdrew, and who was found to live, since this was asked last."""
        news, self._news = self._news, []
        return news

    def take_pause(self) -> Duration | None:
        """After so long to `compare`; None: as was said before."""
        is_new, self._is_new = self._is_new, False
        return self._pause if is_new else None

    # -- connections ----------------------------------------------------------------------------------------------

    def link_up(self, peer: str) -> list[Send]:
        """There is a connection with *peer*, a neighbour or not."""
        said = self.reach.met(peer)
        self._look_out()
        sends = [_control(peer, each) for each in self.reach.statements() if each is not said]
        sends += [_control(peer, each) for each in self.crowds.statements()]
        if said is not None:
            sends += self._flood(said)
        if peer in self.around.behind:
            self.around.severed.discard(peer)
            sends += self._compare(peer)
        return [*sends, *self._look()]

    def link_down(self, peer: str) -> None:
        """It is lost, perhaps for a moment only."""
        self.reach.parted(peer)

    def leave(self, peer: str) -> list[Send]:
        """It stays lost."""
        sends = self._flood(self.reach.lost(peer))
        self._look_out()
        if peer in self.around.behind:
            self.around.leave(peer)
            sends += self._look()
            sends += self._compare(peer)
        else:
            sends += self._look()
        return sends

    def crowd(self, neighbour: str, interests: Sequence[Interest]) -> list[Send]:
        """Too much waits here for *neighbour*, which has *interests*; or, without any, there is room again."""
        return self._flood(self.crowds.tell(neighbour, interests))

    def passed_on(self, peer: str, said: Unreached | Crowded) -> list[Send]:
        """*peer* passes on what a gateway said of its connections, or of its outboxes."""
        knows = "" if said.gateway == self.reach.number else peer  # of an earlier run of ours: it has to unlearn that
        if isinstance(said, Crowded):
            return [send for news in self.crowds.learn(said) for send in self._flood(news, knows)]
        sends = [send for news in self.reach.learn(said) for send in self._flood(news, knows)]
        self._look_out()
        return [*sends, *self._look()] if sends or said.gateway != self.reach.number else sends

    def heard_of(self, gateway: str) -> list[Send]:
        """*gateway* said something around those between us."""
        self.reach.heard_of(gateway)
        return self._look() if gateway in self.around.away else []

    def compare(self) -> list[Send]:
        """Compare once more with everybody to whom we talk around somebody."""
        self._pause = min(2 * self._pause, COMPARE_LAST)
        self._is_new = True
        peers = [one for peer, stand_ins in self.around.stand_ins.items() for one in (peer, *stand_ins)]
        return [send for peer in (*peers, *self.around.severed) for send in self._compare(peer)]

    # -- interests ------------------------------------------------------------------------------------------------

    def changed(self, changed: Changed) -> list[Send]:
        """Interests changed: tell neighbours, and who stands in for them."""
        self._filters |= changed.topic_filters
        self._news += [Learned(peer, change) for peer, change in changed.learned.items()]
        sends = []
        for peer, change in changed.told.items():
            for receiver in (peer, *self.around.stand_ins.get(peer, ())):
                for message in _told(change, self.interests.epoch):
                    sends += self.tell(receiver, message)
        return sends

    def knows(self, peer: str) -> bool:
        """Whether *peer* may tell us of interests: a neighbour, or one that stands in for it as we see it."""
        return peer in self.around.behind or any(peer in each for each in self.around.stand_ins.values())

    def received(self, peer: str, message: Announce | Withdraw | Digest | Differ | Restate) -> list[Send]:
        """*peer* says something about the interests behind it, or behind us."""
        match message:
            case Announce(interests):
                return self.changed(self.interests.announced(peer, interests))
            case Withdraw(interests):
                return self.changed(self.interests.withdrawn(peer, interests))
            case Digest():
                difference = differ(message, self.interests.held(peer))
                return self.heard(peer) if difference is None else self.tell(peer, difference)
            case Differ():
                if not self._knows_all_but(peer):
                    self._owed[peer] = None
                    return []
                told = self.interests.told(peer)
                # who began anew learns by a last digest that it knows all
                answer: list[Message] = [*restated(message, self.interests.epoch, told), self._digest(peer)]
                return [send for each in answer for send in self.tell(peer, each)]
            case Restate():
                changed = self.interests.announced(peer, message.interests)
                stays = set(message.interests)
                gone = [each for each in of_part(message, self.interests.held(peer)) if each not in stays]
                changed.add(self.interests.withdrawn(peer, gone))
                return self.changed(changed)

    def remember(self, known: Mapping[str, Iterable[Interest]]) -> None:
        """An earlier run knew what neighbours wanted. They are not met yet: nobody is told."""
        for peer in self.around.behind:
            for interest in known.get(peer, ()):
                self._filters |= self.interests.announced(peer, (interest,)).topic_filters

    def end_grace(self) -> list[Send]:
        """After a restart no neighbour is waited for any longer."""
        return [send for peer in self.around.behind for send in self.heard(peer)]

    def heard(self, peer: str) -> list[Send]:
        """All interests of *peer* are known, or are waited for no longer."""
        sends = self.changed(self.interests.heard(peer))
        if peer in self.around.away and self.reach.is_reached(peer):
            self.around.come_back(peer, self._status.is_up(peer))
            for each in self.around.behind[peer]:
                sends += self.changed(self.interests.stand_back(each))
            sends += self._look()
        return [*sends, *self._pay()]

    def is_up(self, gateway: str) -> bool:
        """Whether *gateway* is a peer with whom we have a connection."""
        return gateway in self._peers and self._status.is_up(gateway)

    def tell(self, peer: str, message: Message, service: Service = Service.CONTROL) -> list[Send]:
        """Say something to *peer*, over its link or else around, if that is possible.

        Nothing while a link is down that may be up again in a moment. Who only stands in is no peer, and has none.
        """
        if self.is_up(peer):
            return [Send(peer, message, service)]
        if peer in self._peers and not self.reach.is_lost(peer):
            return []
        return self.around.relay(peer, message, service)

    # -- how it is done -------------------------------------------------------------------------------------------

    def _look_out(self) -> None:
        """A peer to whom there was no way is back if there is one. Each is dialled once for that, so nothing storms."""
        for peer in self._peers:
            if not self._status.is_up(peer) and self.reach.way(peer) is None:
                self._gone.add(peer)
            elif peer in self._gone:
                self._gone.discard(peer)
                if not self._status.is_up(peer):
                    self._news.append(Found(peer))

    def _look(self) -> list[Send]:
        """Perhaps others can be reached than before."""
        self._pause = COMPARE_FIRST
        self._is_new = True
        sends = []
        for new in self.around.look():
            sends += self.changed(self.interests.stand_in(new))
            sends += self._compare(new)
        return [*sends, *self._pay()]

    def _compare(self, peer: str) -> list[Send]:
        """Let *peer* see whether it knows what we told it, and ask for what it told us, if we do not know that."""
        self._owed[peer] = None
        sends = self._pay()
        if peer not in self.around.behind and not self.interests.is_heard(peer):
            sends += self.tell(peer, Differ(Told.INTERESTS, sums_of(self.interests.held(peer))))
        return sends

    def _pay(self) -> list[Send]:
        """Send the digests that are owed and can be made."""
        ready = [peer for peer in self._owed if self._knows_all_but(peer)]
        for peer in ready:
            del self._owed[peer]
        return [send for peer in ready for send in self.tell(peer, self._digest(peer))]

    def _knows_all_but(self, peer: str) -> bool:
        """Whether we know what is wanted behind all neighbours but that on the way to *peer*."""
        return all(
            self._is_known(neighbour)
            for neighbour, behind in self.around.behind.items()
            if peer != neighbour and peer not in behind
        )

    def _is_known(self, neighbour: str) -> bool:
        heard = [neighbour, *self.around.stand_ins.get(neighbour, ())]
        is_open = neighbour in self.around.away and self.reach.is_reached(neighbour)
        return not is_open and all(map(self.interests.is_heard, heard))

    def _digest(self, peer: str) -> Digest:
        return digest_of(Told.INTERESTS, self.interests.epoch, self.interests.told(peer))

    def _flood(self, said: Unreached | Crowded, but: str = "") -> list[Send]:
        return [_control(peer, said) for peer in self._peers if peer != but and self._status.is_up(peer)]


def _told(change: Change, epoch: int) -> Iterator[Announce | Withdraw]:
    """*change* as messages; whoever receives them has clients to look after between one and the next."""
    if change.announce:
        yield from Announce(change.announce, epoch).parts()
    if change.withdraw:
        yield from Withdraw(change.withdraw, epoch).parts()


def _control(peer: str, message: Message) -> Send:
    return Send(peer, message, Service.CONTROL)
