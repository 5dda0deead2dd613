"""Topic names and topic filters (MQTT 5.0 section 4.7), and the code points that no MQTT text should hold (section
1.5.4). A value that exists is valid; nobody checks it again.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import TopicInvalid
from edgebroker.limits import TOPIC_BYTES_MAX, TOPIC_LEVELS_MAX

_CONTROLS: Final = chain(range(0x01, 0x20), range(0x7F, 0xA0))
_NON_CHARACTERS: Final = chain(
    range(0xFDD0, 0xFDF0), (plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))
)
_DISALLOWED: Final = frozenset(map(chr, chain(_CONTROLS, _NON_CHARACTERS)))


def has_disallowed(text: str) -> bool:
    """Whether a control character or a non-character is in *text*.

    Who receives one may take the packet for malformed and close the connection. Mosquitto and its clients do so, and
    what a session sends again closes the next one too: such a message would keep all behind it from them.
    """
    return not (text.isprintable() or _DISALLOWED.isdisjoint(text))  # none of them is printable


SEPARATOR = "/"
SINGLE_LEVEL = "+"
MULTI_LEVEL = "#"
USUAL_CHARS = 256
"""Topics of real hierarchies have 20 to 80; an attacker's has up to TOPIC_BYTES_MAX."""


def parse_topic_name(text: str, allows_all: bool = False) -> str:
    """*text* itself if it is a topic name: not empty, no wildcard, no U+0000, within the limits, and no code point that
    its readers may refuse, unless that *allows_all*.

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
        """Read *text*. Raises TopicInvalid: empty, too long, U+0000, or a wildcard where none may stand."""
        _check_text(text, "topic filter")
        levels = tuple(text.split(SEPARATOR))
        for position, level in enumerate(levels):
            if MULTI_LEVEL in level and (level != MULTI_LEVEL or position != len(levels) - 1):
                raise TopicInvalid(f"'#' must be the whole last level: {text[:80]!r}")
            if SINGLE_LEVEL in level and level != SINGLE_LEVEL:
                raise TopicInvalid(f"'+' must be a whole level: {text[:80]!r}")
        return cls(text, levels)

    def matches(self, topic: str) -> bool:
        """Whether the topic name *topic* is meant. The reference; the broker asks the tree instead.

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
        """The levels of the longest filter that matches the same topics: no topic is empty, so `#` is `+/#`.

        Two filters match the same topics only if these are equal.
        """
        if self.levels in ((MULTI_LEVEL,), ("", MULTI_LEVEL)):
            return (*self.levels[:-1], SINGLE_LEVEL, MULTI_LEVEL)
        return self.levels

    def covers(self, other: TopicFilter) -> bool:
        """Whether every topic name that *other* matches is matched by this filter. Exact."""
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
        """Whether some topic name is matched by both filters. Exact, but for topics beyond TOPIC_BYTES_MAX."""
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
    if text.count(SEPARATOR) >= TOPIC_LEVELS_MAX:
        raise TopicInvalid(f"a {what} has at most {TOPIC_LEVELS_MAX} levels")


def weight(topic: str) -> int:
    """For how many of usual length *topic* counts where topics are remembered: up to 257 (P6)."""
    return 1 + len(topic) // USUAL_CHARS
