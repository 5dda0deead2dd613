"""Queries for retained messages on their way through a gateway, and the way back of the replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import DeliverRetained, Effect, LookUpRetained, SendMessage
from edgebroker.federation.interest_gossip import InterestGossip
from edgebroker.header import EventHeader, host_of
from edgebroker.interest import Interest
from edgebroker.limits import RETAINED_QUERIES_MAX, RETAINED_REPLY_TOPICS_MAX
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.messages import Forward, RetainedQuery, RetainedReply
from edgebroker.overlay.secondary_advertisements import SecondaryAdvertisements
from edgebroker.overlay.topology.topology import Topology, TopologyGateway
from edgebroker.overlay.traffic_class import TrafficClass


@dataclass(slots=True)
class _OpenQuery:
    origin: str | int
    """The peer it came from, or the number of a local subscription."""
    newest: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """For a local one, by topic: when the newest answer was published, and its identity."""


class RetainedQueries:
    """The last RECALLS_MAX questions; answers to older ones are dropped.

    To tell an older answer from a newer one the last RECALLED_TOPICS_MAX or so are remembered; nobody says which is the
    last one to a question.
    """

    def __init__(
        self,
        topology: Topology,
        gateway: TopologyGateway,
        numbers: IdAllocator,
        gossip: InterestGossip,
        answers: SecondaryAdvertisements,
    ) -> None:
        others = [one for one in topology.gateways if one.cluster != gateway.cluster]
        self._asked_by = {one.number: (one.name, topology.holder(one.home, gateway.cluster)) for one in others}
        """Number of a gateway elsewhere -> it, and who of our cluster passes questions on to it."""
        self._name = gateway.name
        self._neighbours = gateway.neighbours
        self._numbers = numbers
        self._gossip = gossip
        self._secondary = answers
        self._queries: dict[int, _OpenQuery] = {}
        self.remembered = 0
        """Answers, of all questions."""
        self.late = 0
        """Answers to questions that were not remembered any more."""

    def query(self, number: int, interests: Sequence[Interest]) -> list[Effect]:
        """Ask others for what *interests* mean, for the local subscription *number*."""
        effects: list[Effect] = []
        for interest in interests:
            request = self._numbers.next()
            self._remember(request, number)
            effects += self._pass_on(RetainedQuery(request, interest), None)
        return effects

    def receive_query(self, peer: str, recall: RetainedQuery) -> list[Effect]:
        """*peer* asks. Once: it, or another, may have asked this before."""
        if recall.request in self._queries:
            return []
        self._remember(recall.request, peer)
        further = self._pass_on(recall, peer) if peer in self._gossip.interests else []
        return [LookUpRetained(recall.request, recall.interest), *further]

    def answer(self, request: int, forward: Forward) -> list[Effect]:
        """We keep a message that is meant. A copy of another gateway's is kept for when that cannot be asked."""
        return [] if self.is_queried(forward.header) else self.receive_reply(RetainedReply(request, forward))

    def receive_reply(self, recalled: RetainedReply) -> list[Effect]:
        """An answer goes to the peer or the local subscription that asked, unless that has a newer one."""
        question = self._queries.get(recalled.request)
        if question is None:
            self.late += 1
            return []
        if isinstance(question.origin, str):
            return [*self._gossip.send(question.origin, recalled, TrafficClass.LIVE)]
        forward = recalled.forward
        age = (forward.header.published_ms, *forward.header.eid)
        known = question.newest.get(forward.topic)
        if known is None:
            self.remembered += 1
        elif known >= age:
            return []
        question.newest[forward.topic] = age
        if self.remembered > RETAINED_REPLY_TOPICS_MAX:
            self._forget(next(each for each in self._queries.values() if each.newest))
        return [DeliverRetained(question.origin, forward)]

    def is_queried(self, header: EventHeader) -> bool:
        """Whether the gateway that published with *header* is of another cluster, and ours asks it what it keeps."""
        host, mate = self._asked_by.get(host_of(header.publisher), ("", ""))
        if mate == self._name:
            return self._gossip.is_up(host)
        reach = self._gossip.link_state
        return bool(host) and reach.is_reachable(mate) and reach.are_connected(mate, host)

    def _pass_on(self, recall: RetainedQuery, asker: str | None) -> list[SendMessage]:
        """Pass a question on in the cluster, and to the hosts in the region that advertise what it means."""
        stand_ins = self._gossip.relay.stand_ins
        asked: list[str] = []
        for peer in self._neighbours:
            side = (peer, *stand_ins.get(peer, ()))
            asked += side if asker not in side else ()
        hosts = self._secondary.hosts(recall.interest.topic_filter)
        asked += [peer for peer in hosts if peer != asker and self._gossip.is_up(peer)]
        return [send for peer in asked for send in self._gossip.send(peer, recall)]

    def _remember(self, request: int, asker: str | int) -> None:
        if len(self._queries) >= RETAINED_QUERIES_MAX:
            self._forget(self._queries.pop(next(iter(self._queries))))
        self._queries[request] = _OpenQuery(asker)

    def _forget(self, question: _OpenQuery) -> None:
        """Remember no answers to *question*."""
        self.remembered -= len(question.newest)
        question.newest = {}
