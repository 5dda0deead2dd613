"""What a bridge has carried, and why it did not carry the rest: each cause is counted."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from edgebridge.upstream.costs import Cell, Costs


class Cause(StrEnum):
    """Why a message that reached the bridge did not go on."""

    FILTERED = "filtered"
    """Its rule's condition is not true."""
    LOOP = "loop"
    """It was here, or there, already."""
    OVERLAP = "overlap"
    """Another copy of it came by the subscription of the rule that decides."""
    NO_RULE = "no_rule"
    """No rule wants it any more."""
    TOO_LARGE = "too_large"
    """The other side does not take packets of its size."""
    INVALID = "invalid"
    """It breaks the protocol."""
    TOPIC = "topic"
    """With its prefix it is no topic any more."""
    ABSENT = "absent"
    """QoS 0, and the remote was not there."""
    UNFIT = "unfit"
    """Its payload cannot be transformed as its rule wants."""
    RATE = "rate"
    """QoS 0, and too many waited because of the bridge's rate."""
    BUDGET = "budget"
    """QoS 0, and the day's bytes were spent."""
    EXPIRED = "expired"
    """Its time to live ended while it waited because of the bridge's rate or its day's bytes."""
    TOO_OLD = "too_old"
    """Meanwhile it waited for longer than messages for this remote may (`queue_age_s_max`)."""
    REFUSED = "refused"
    """The other side answered with an error (`refused` of the tally has the reasons)."""


class Tally:
    """Counts since the start. One for each direction."""

    def __init__(self) -> None:
        self.by_rule: Counter[int] = Counter()
        """Messages by the number of their rule."""
        self.costs = Costs()
        """Messages and bytes by the topic as it is called here."""
        self.dropped: Counter[Cause] = Counter()
        self.refused: Counter[str] = Counter()
        """By the name of the reason code."""
        self.untransformed = 0
        """Messages that went on as they were, because their payload could not be transformed."""

    @property
    def messages(self) -> int:
        """Messages that went on."""
        return sum(self.by_rule.values())

    @property
    def bytes(self) -> int:
        """Their packets, as a whole."""
        return self.costs.bytes

    def carried(self, rule: int, octets: int, cell: Cell) -> None:
        """One more went on. *cell*: of its topic."""
        self.by_rule[rule] += 1
        cell.messages += 1
        cell.bytes += octets

    def described(self) -> dict[str, object]:
        """For programs."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "dropped": {cause.value: count for cause, count in sorted(self.dropped.items())},
            "refused": dict(sorted(self.refused.items())),
            "untransformed": self.untransformed,
        }
