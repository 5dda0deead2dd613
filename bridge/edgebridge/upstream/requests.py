"""What the remote is asked for when a connection begins: a subscription for each rule that brings something in."""

from __future__ import annotations

from edgebridge.upstream import greeting
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.terms import Memory
from edgebridge.upstream.words import in_words
from edgebridge.wire.packets import SubAck
from edgebridge.wire.reasons import FAILURE, ReasonCode


class Requests:
    """Those of one connection after the other, and which of them were refused."""

    def __init__(self, ends: Ends, rules: Rules, memory: Memory, refusals: dict[int, str]) -> None:
        """*refusals*: by the number of the rule: by whom, and why."""
        self._ends = ends
        self._rules = rules
        self._memory = memory
        self._refusals = refusals
        self._asked: dict[int, int] = {}  # packet identifier -> subscription identifier

    def begin(self) -> None:
        """Subscribe."""
        self._asked.clear()
        ids = iter(self._memory.spare(greeting.REQUESTS_MAX))
        for wanted, subscribe in greeting.subscribe_remote(self._rules, self._ends.granted, ids):
            self._asked[subscribe.packet_id] = wanted.identifier
            self._ends.tell_remote(subscribe)

    def answered(self, suback: SubAck) -> None:
        """A subscription is granted, or not: then its rule takes part no more."""
        identifier = self._asked.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if identifier is not None and reason >= FAILURE:
            self._rules.refused(identifier)
            for wanted in self._rules.into:
                if wanted.identifier == identifier:
                    self._refusals[wanted.number] = f"the remote: {in_words(ReasonCode(reason), suback.properties)}"
