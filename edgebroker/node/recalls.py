"""Questions for retained messages on their way through a gateway, and the way back for the answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from edgebroker.limits import RECALLS_MAX
from edgebroker.node.peereffects import Effect, HandRetained, Send
from edgebroker.overlay.classes import Service
from edgebroker.overlay.messages import Recalled
from edgebroker.overlay.numbers import Numbers


@dataclass(slots=True)
class _Question:
    asker: str | int
    """The peer it came from, or the number of a local subscription."""
    newest: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """For a local one, by topic: when the newest answer was published, and its identity."""


class Recalls:
    """The last RECALLS_MAX questions; answers to older ones are dropped."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._questions: dict[int, _Question] = {}

    def ask(self, number: int, questions: int) -> Iterator[int]:
        """So many new questions for subscription *number*: how each is called."""
        for _ in range(questions):
            request = self._numbers.next()
            self._remember(request, number)
            yield request

    def asked(self, request: int, peer: str) -> bool:
        """*peer* asks. False: it, or another, asked this before."""
        if request in self._questions:
            return False
        self._remember(request, peer)
        return True

    def answered(self, recalled: Recalled) -> list[Effect]:
        """An answer goes to the peer or the local subscription that asked, unless that has a newer one."""
        question = self._questions.get(recalled.request)
        if question is None:
            return []
        if isinstance(question.asker, str):
            return [Send(question.asker, recalled, Service.LIVE)]
        forward = recalled.forward
        age = (forward.header.published_ms, *forward.header.eid)
        if question.newest.get(forward.topic, (-1, 0, 0)) >= age:
            return []
        question.newest[forward.topic] = age
        return [HandRetained(question.asker, forward)]

    def _remember(self, request: int, asker: str | int) -> None:
        if len(self._questions) >= RECALLS_MAX:
            del self._questions[next(iter(self._questions))]
        self._questions[request] = _Question(asker)
