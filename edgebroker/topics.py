"""Topic names and topic filters (MQTT 5.0 section 4.7), and the code points that an MQTT text should not contain
(section 1.5.4). A `TopicFilter` that exists is valid; later code does not check it again.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import TopicInvalid
from edgebroker.limits import TOPIC_BYTES_MAX, TOPIC_LEVELS_LIMIT

_CONTROLS: Final = chain(range(0x01, 0x20), range(0x7F, 0xA0))
_NON_CHARACTERS: Final = chain(
    range(0xFDD0, 0xFDF0), (plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))
)
_DISALLOWED: Final = frozenset(map(chr, chain(_CONTROLS, _NON_CHARACTERS)))


def has_disallowed(text: str) -> bool:
    """Return whether *text* contains a control character or a non-character.

    A receiver may treat a packet with one as malformed and close the connection, as Mosquitto and its clients do. A
    session that sends it again loses the next connection too, so the messages behind it would never be delivered.
    """
    return not (text.isprintable() or _DISALLOWED.isdisjoint(text))  # none of them is printable


RESERVED_TREES: Final = frozenset(("$SYS", "$share", "$filter", "$file"))
FILE_TREE: Final = "$file/"
"""What the topics of requests for files begin with (docs/files.md)."""
"""First levels of what is the broker's own. Other trees that begin with `$`, such as `$aws`, are ordinary, but for
wildcards, which do not match them in the first level (section 4.7.2).
"""
SEPARATOR = "/"
SINGLE_LEVEL = "+"
MULTI_LEVEL = "#"
USUAL_CHARS = 256
"""The length up to which a topic counts once. Topics of real hierarchies have 20 to 80 characters; an attacker's has up
to TOPIC_BYTES_MAX.
"""


def is_reserved(text: str) -> bool:
    """Return whether the topic name or topic filter *text* is in one of RESERVED_TREES."""
    return text.startswith("$") and text.partition(SEPARATOR)[0] in RESERVED_TREES


def parse_topic_name(text: str, allows_all: bool = False) -> str:
    """Return *text* if it is a topic name: not empty, no wildcard, no U+0000, within the limits, and, unless
    *allows_all*, no code point that a subscriber may reject.

    Raises TopicInvalid.
    """
    _check_text(text, "topic")
    if not allows_all and has_disallowed(text):
        raise TopicInvalid(f"a topic to publish to has no control characters or non-characters: {text[:80]!a}")
    if SINGLE_LEVEL in text or MULTI_LEVEL in text:
        raise TopicInvalid(f"a topic to publish to has no wildcards: {text[:80]!r}")
    return text


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A topic filter: `levels` between slashes, where `+` stands for one level and a last `#` for any tail."""

    text: str
    levels: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TopicFilter:
        """Parse *text*. Raises TopicInvalid if it is empty, too long, contains U+0000, or has a misplaced wildcard."""
        _check_text(text, "topic filter")
        levels = tuple(text.split(SEPARATOR))
        for position, level in enumerate(levels):
            if MULTI_LEVEL in level and (level != MULTI_LEVEL or position != len(levels) - 1):
                raise TopicInvalid(f"'#' must be the whole last level: {text[:80]!r}")
            if SINGLE_LEVEL in level and level != SINGLE_LEVEL:
                raise TopicInvalid(f"'+' must be a whole level: {text[:80]!r}")
        return cls(text, levels)

    def matches(self, topic: str) -> bool:
        """Return whether the filter matches the topic name *topic*. This is the reference; the broker searches the tree
        instead.

        `a/#` matches `a` too; a wildcard in the first level does not match a topic that starts with `$`.
        """
        names = topic.split(SEPARATOR)
        if topic.startswith("$") and self.levels[0] in (SINGLE_LEVEL, MULTI_LEVEL):
            return False
        for position, level in enumerate(self.levels):
            if level == MULTI_LEVEL:
                return True
            if position >= len(names) or level not in (SINGLE_LEVEL, names[position]):
                return False
        return len(names) == len(self.levels)

    @property
    def longest_form(self) -> tuple[str, ...]:
        """The levels of the longest filter that matches the same topics. `#` becomes `+/#`, because no topic is empty.

        Two filters match the same topics if and only if these are equal.
        """
        if self.levels in ((MULTI_LEVEL,), ("", MULTI_LEVEL)):
            return (*self.levels[:-1], SINGLE_LEVEL, MULTI_LEVEL)
        return self.levels

    def covers(self, other: TopicFilter) -> bool:
        """Return whether this filter matches every topic name that *other* matches. Exact."""
        mine, theirs = self.longest_form, other.longest_form
        if mine[0] == SINGLE_LEVEL and theirs[0].startswith("$"):
            return False
        for position, level in enumerate(mine):
            if level == MULTI_LEVEL:
                return True
            if position >= len(theirs) or theirs[position] == MULTI_LEVEL:
                return False
            if level not in (SINGLE_LEVEL, theirs[position]):
                return False
        return len(theirs) == len(mine)

    def overlaps(self, other: TopicFilter) -> bool:
        """Return whether both filters match some common topic name. Exact, except for topics beyond TOPIC_BYTES_MAX."""
        mine, theirs = self.longest_form, other.longest_form
        if (mine[0] == SINGLE_LEVEL and theirs[0].startswith("$")) or (
            theirs[0] == SINGLE_LEVEL and mine[0].startswith("$")
        ):
            return False
        for here, there in zip(mine, theirs, strict=False):
            if MULTI_LEVEL in (here, there):
                return True
            if here != there and SINGLE_LEVEL not in (here, there):
                return False
        longer, shorter = (mine, theirs) if len(mine) > len(theirs) else (theirs, mine)
        return longer[len(shorter) :] in ((), (MULTI_LEVEL,))


def _check_text(text: str, what: str) -> None:
    if not text:
        raise TopicInvalid(f"a {what} has at least one character")
    if "\0" in text:
        raise TopicInvalid(f"a {what} holds no U+0000")
    if len(text) > TOPIC_BYTES_MAX or len(text.encode("utf-8", "replace")) > TOPIC_BYTES_MAX:
        raise TopicInvalid(f"a {what} has at most {TOPIC_BYTES_MAX} bytes")
    check_levels(text, TOPIC_LEVELS_LIMIT)


def check_levels(text: str, levels_max: int) -> None:
    """Raise TopicInvalid if the topic name or topic filter *text* has more than *levels_max* levels."""
    if text.count(SEPARATOR) >= levels_max:
        raise TopicInvalid(f"a topic has at most {levels_max} levels")


def weight(topic: str) -> int:
    """Return as how many topics of usual length *topic* counts in a cache: 1 to 257 (P6)."""
    return 1 + len(topic) // USUAL_CHARS
