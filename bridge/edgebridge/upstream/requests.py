"""What the remote is asked for when a connection begins: a subscription for each rule that brings something in.

A remote that kept our session may have more, of rules that are gone. It would go on sending what nobody wants.
"""

from __future__ import annotations

from collections.abc import Set

from edgebridge.upstream import greeting
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.terms import Memory
from edgebridge.upstream.words import in_words
from edgebridge.wire.packets import SubAck, UnsubAck, Unsubscribe
from edgebridge.wire.reasons import FAILURE, ReasonCode


class Requests:
    """Those of one connection after the other, and which of them were refused."""

    def __init__(
        self, ends: Ends, rules: Rules, memory: Memory, refusals: dict[int, str], asked: Set[str] = frozenset()
    ) -> None:
        """*refusals*: by the number of the rule: by whom, and why. *asked*: the texts of earlier rules too."""
        self.asked = frozenset(asked)
        """The texts of all subscriptions that the remote may have of us. To be remembered before anything is said."""
        self._ends = ends
        self._rules = rules
        self._memory = memory
        self._refusals = refusals
        self._subscribing: dict[int, int] = {}  # packet identifier -> subscription identifier
        self._unsubscribing: dict[int, str] = {}

    def begin(self) -> None:
        """Subscribe, and unsubscribe from what no rule wants any more."""
        granted = self._ends.granted
        ids = iter(self._memory.spare(greeting.REQUESTS_MAX))
        wanted = {one.text for one in self._rules.into}
        gone = sorted(self.asked - wanted) if granted.session_present else []
        self.asked = frozenset(wanted.union(gone))
        self._subscribing.clear()
        for one, subscribe in greeting.subscribe_remote(self._rules, granted, ids):
            self._subscribing[subscribe.packet_id] = one.identifier
            self._ends.tell_remote(subscribe)
        self._unsubscribing = dict(zip(ids, gone, strict=False))  # the rest with the next connection
        for packet_id, text in self._unsubscribing.items():
            self._ends.tell_remote(Unsubscribe(packet_id, [text]))  # one each: clouds bound how many a packet has

    def answered(self, suback: SubAck) -> None:
        """A subscription is granted, or not: then its rule takes part no more."""
        identifier = self._subscribing.pop(suback.packet_id, None)
        reason = suback.reasons[0]
        if identifier is not None and reason >= FAILURE:
            self._rules.refused(identifier)
            for wanted in self._rules.into:
                if wanted.identifier == identifier:
                    self._refusals[wanted.number] = f"the remote: {in_words(ReasonCode(reason), suback.properties)}"

    def ended(self, unsuback: UnsubAck) -> None:
        """A subscription of before is no more, unless the remote refuses: then it is asked again the next time."""
        text = self._unsubscribing.pop(unsuback.packet_id, None)
        if text is not None and all(reason < FAILURE for reason in unsuback.reasons):
            self.asked -= {text}
