"""Counters of a bridge: messages and bytes by topic prefix and by rule, and dropped messages by cause.

A topic counts under its first `DEPTH` levels. Above `PREFIXES_MAX` prefixes the smaller half is merged into the
prefix above: `a/b/c` and `a/b/d` into `a/b/#`, that into `a/#`, at last into `#`. So every byte is counted once, and
memory is bounded whatever topics there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

DEPTH: Final = 4
"""Levels of a topic that are told apart."""
PREFIXES_MAX: Final = 1_024
"""In each direction: 200 bytes each, beside their names."""
PREFIX_CHARS_MAX: Final = 256
"""Of a longer one, what stands above it counts. MQTT allows 65,535, with which all of them would hold 64 MiB."""
OTHER_TOPICS: Final = "#"
"""What no prefix could be named for. No topic has a wildcard in it, so nothing else is called like this."""
_REST: Final = "/#"


class ByteCounter:
    """What the messages of one prefix took."""

    __slots__ = ("bytes", "bytes_before", "messages", "messages_before")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        """Whole PUBLISH packets, as the remote sees them."""
        self.messages_before = 0
        """`messages` when the day began."""
        self.bytes_before = 0

    def begin_day(self) -> None:
        """What was counted so far was before today."""
        self.messages_before, self.bytes_before = self.messages, self.bytes

    def add(self, other: ByteCounter) -> None:
        """Count *other* here."""
        self.messages += other.messages
        self.bytes += other.bytes
        self.messages_before += other.messages_before
        self.bytes_before += other.bytes_before


class PrefixCounters:
    """Of one bridge in one direction, since it began."""

    def __init__(self, prefixes_max: int = PREFIXES_MAX) -> None:
        self._counters: dict[str, ByteCounter] = {}
        self._most = prefixes_max
        self.folds = 0
        """How often prefixes were folded: whoever keeps a cell has to ask for it anew then."""

    def counter(self, topic: str) -> ByteCounter:
        """Where the messages of *topic* are counted."""
        prefix = topic if topic.count("/") < DEPTH else "/".join(topic.split("/", DEPTH)[:DEPTH])
        while len(prefix) > PREFIX_CHARS_MAX:
            prefix = _above(prefix)
        found = self._counters.get(prefix)
        if found is None:
            if len(self._counters) >= self._most:
                self._fold()
            found = self._counters[prefix] = ByteCounter()
        return found

    def begin_day(self) -> None:
        """It is midnight."""
        for cell in self._counters.values():
            cell.begin_day()

    def counters(self) -> Iterator[tuple[str, ByteCounter]]:
        """Each prefix; one that ends in `#` is the rest of what is above it."""
        return iter(self._counters.items())

    @property
    def bytes(self) -> int:
        """Of all."""
        return sum(cell.bytes for cell in self._counters.values())

    def _fold(self) -> None:
        """Make room. Rests go into the rests above them where the prefixes alone do not suffice."""
        cells = self._counters
        self.folds += 1
        while (surplus := len(cells) - self._most // 2) > 0:
            ranked = sorted((one for one in cells if one != OTHER_TOPICS), key=lambda one: cells[one].bytes)
            for prefix in ranked[:surplus]:
                folded = cells.pop(prefix)
                cells.setdefault(_above(prefix), ByteCounter()).add(folded)


def _above(prefix: str) -> str:
    """The rest that *prefix* belongs to."""
    above, slash, _ = prefix.removesuffix(_REST).rpartition("/")
    return above + _REST if slash else OTHER_TOPICS


def merge_by_prefix(
    out: PrefixCounters, into: PrefixCounters, depth: int
) -> dict[str, tuple[ByteCounter, ByteCounter]]:
    """What went out and what came in by prefix, where no more than *depth* levels are told apart."""
    found: dict[str, tuple[ByteCounter, ByteCounter]] = {}
    for way, costs in enumerate((out, into)):
        for prefix, cell in costs.counters():
            if cell.messages:
                levels = prefix.split("/")
                short = prefix if len(levels) <= depth else "/".join(levels[:depth])
                found.setdefault(short, (ByteCounter(), ByteCounter()))[way].add(cell)
    return found


class BridgeDropCause(StrEnum):
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


class BridgeCounters:
    """Counts since the start. One for each direction."""

    def __init__(self) -> None:
        self.by_rule: Counter[int] = Counter()
        """Messages by the number of their rule."""
        self.by_prefix = PrefixCounters()
        """Messages and bytes by the topic as it is called here."""
        self.dropped: Counter[BridgeDropCause] = Counter()
        self.refused: Counter[str] = Counter()
        """By the name of the reason code."""
        self.wrong_acknowledgements: Counter[str] = Counter()
        """Acknowledgements of the remote that are not of the kind that the message calls for: "PUBACK to QoS 2"."""
        self.untransformed = 0
        """Messages that went on as they were, because their payload could not be transformed."""

    @property
    def messages(self) -> int:
        """Messages that went on."""
        return sum(self.by_rule.values())

    @property
    def bytes(self) -> int:
        """Their packets, as a whole."""
        return self.by_prefix.bytes

    def count_forwarded(self, rule: int, octets: int, cell: ByteCounter) -> None:
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
            "wrong_acknowledgements": dict(sorted(self.wrong_acknowledgements.items())),
        }
