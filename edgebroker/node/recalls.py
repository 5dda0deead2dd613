"""Questions for retained messages on their way through a gateway, and the way back for the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from edgebroker.dataclasses import dataclass
from edgebroker.header import Header, host_of
from edgebroker.interest import Interest
from edgebroker.limits import RECALLED_TOPICS_MAX, RECALLS_MAX
from edgebroker.node.neighbourhood import Neighbourhood
from edgebroker.node.peereffects import AskRetained, Effect, HandRetained, Send
from edgebroker.overlay.answers import Answers
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import Forward, Recall, Recalled
from edgebroker.overlay.numbers import Numbers
from edgebroker.overlay.topology import Gateway, Topology


@dataclass(slots=True)
class _Question:
    asker: str | int
    """The peer it came from, or the number of a local subscription."""
    newest: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """For a local one, by topic: when the newest answer was published, and its identity."""


class Recalls:
    """The last RECALLS_MAX questions; answers to older ones are dropped.

    To tell an older answer from a newer one the last RECALLED_TOPICS_MAX or so are remembered; nobody says which is the
    last one to a question.
    """

    def __init__(
        self, topology: Topology, gateway: Gateway, numbers: Numbers, neighbourhood: Neighbourhood, answers: Answers
    ) -> None:
        others = [one for one in topology.gateways if one.cluster != gateway.cluster]
        self._asked_by = {one.number: (one.name, topology.holder(one.home, gateway.cluster)) for one in others}
        """Number of a gateway elsewhere -> it, and who of our cluster passes questions on to it."""
        self._name = gateway.name
        self._neighbours = gateway.neighbours
        self._numbers = numbers
        self._neighbourhood = neighbourhood
        self._answers = answers
        self._questions: dict[int, _Question] = {}
        self.remembered = 0
        """Answers, of all questions."""
        self.late = 0
        """Answers to questions that were not remembered any more."""

    def ask(self, number: int, interests: Sequence[Interest]) -> list[Effect]:
        """Ask others for what *interests* mean, for the local subscription *number*."""
        effects: list[Effect] = []
        for interest in interests:
            request = self._numbers.next()
            self._remember(request, number)
            effects += self._pass_on(Recall(request, interest), None)
        return effects

    def asked(self, peer: str, recall: Recall) -> list[Effect]:
        """*peer* asks. Once: it, or another, may have asked this before."""
        if recall.request in self._questions:
            return []
        self._remember(recall.request, peer)
        further = self._pass_on(recall, peer) if peer in self._neighbourhood.interests else []
        return [AskRetained(recall.request, recall.interest), *further]

    def answer(self, request: int, forward: Forward) -> list[Effect]:
        """We keep a message that is meant. A copy of another gateway's is kept for when that cannot be asked."""
        return [] if self.is_asked(forward.header) else self.answered(Recalled(request, forward))

    def answered(self, recalled: Recalled) -> list[Effect]:
        """An answer goes to the peer or the local subscription that asked, unless that has a newer one."""
        question = self._questions.get(recalled.request)
        if question is None:
            self.late += 1
            return []
        if isinstance(question.asker, str):
            return [*self._neighbourhood.tell(question.asker, recalled, Service.LIVE)]
        forward = recalled.forward
        age = (forward.header.published_ms, *forward.header.eid)
        known = question.newest.get(forward.topic)
        if known is None:
            self.remembered += 1
        elif known >= age:
            return []
        question.newest[forward.topic] = age
        if self.remembered > RECALLED_TOPICS_MAX:
            self._forget(next(each for each in self._questions.values() if each.newest))
        return [HandRetained(question.asker, forward)]

    def is_asked(self, header: Header) -> bool:
        """Whether the gateway that published with *header* is of another cluster, and ours asks it what it keeps."""
        host, mate = self._asked_by.get(host_of(header.publisher), ("", ""))
        if mate == self._name:
            return self._neighbourhood.is_up(host)
        reach = self._neighbourhood.reach
        return bool(host) and reach.is_reached(mate) and reach.are_connected(mate, host)

    def _pass_on(self, recall: Recall, asker: str | None) -> list[Send]:
        """Pass a question on in the cluster, and to the hosts in the region that advertise what it means."""
        stand_ins = self._neighbourhood.around.stand_ins
        asked: list[str] = []
        for peer in self._neighbours:
            side = (peer, *stand_ins.get(peer, ()))
            asked += side if asker not in side else ()
        hosts = self._answers.hosts(recall.interest.topic_filter)
        asked += [peer for peer in hosts if peer != asker and self._neighbourhood.is_up(peer)]
        return [send for peer in asked for send in self._neighbourhood.tell(peer, recall)]

    def _remember(self, request: int, asker: str | int) -> None:
        if len(self._questions) >= RECALLS_MAX:
            self._forget(self._questions.pop(next(iter(self._questions))))
        self._questions[request] = _Question(asker)

    def _forget(self, question: _Question) -> None:
        """Remember no answers to *question*."""
        self.remembered -= len(question.newest)
        question.newest = {}
