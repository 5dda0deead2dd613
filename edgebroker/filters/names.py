"""Attribute names: what a filter may call a part of an event, and where that part is found.

A *payload* name is a path of keys and indices: `temp`, `pos.lat`, `tags[0]`, `"odd key".x`. A *reserved* name begins
with `$` and speaks of the publication itself. Every name has one canonical spelling, which is the key of
`edgebroker.predicate.Attributes`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.errors import FilterInvalid
from edgebroker.limits import TOPIC_LEVELS_MAX

KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"))
"""Words that are no attribute names unless quoted, in upper case."""

WORD: Final = r"[^\W\d]\w*"
QUOTED: Final = r'"(?:[^"]|"")*+"'
PATH: Final = rf"(?:\$?{WORD}|{QUOTED})(?:\.(?:{WORD}|{QUOTED})|\[[0-9]+\])*"
"""A whole name. Blanks inside belong to no name: `pos . lat` is three things."""

_WORD = re.compile(WORD)
_PATH = re.compile(PATH)
_STEP = re.compile(rf"\.?(?:(?P<word>\$?{WORD})|(?P<quoted>{QUOTED}))|\[(?P<index>[0-9]+)\]")
_LEVEL = re.compile(r"\$level([1-9][0-9]{0,3})")

Step: TypeAlias = str | int
"""A key of an object, or an index into an array."""


class AttributeSource(Enum):
    """Where the value of an attribute comes from."""

    PAYLOAD = "payload"
    TOPIC = "$topic"
    LEVEL = "$level"
    QOS = "$qos"
    RETAIN = "$retain"
    SIZE = "$size"
    CLIENT = "$client"
    USER = "$user"


_PLAIN = {
    source.value: source
    for source in (
        AttributeSource.TOPIC,
        AttributeSource.QOS,
        AttributeSource.RETAIN,
        AttributeSource.SIZE,
        AttributeSource.CLIENT,
    )
}
_KNOWN = (*_PLAIN, "$level1", "$user")


@dataclass(frozen=True, slots=True)
class AttributeName:
    """One name. `steps`: the path (PAYLOAD), the level's number from 1 (LEVEL), the key (USER), else nothing."""

    canonical: str
    source: AttributeSource
    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, text: str, column: int = 1) -> AttributeName:
        """Read *text*, which stands at *column* of a filter. Raises FilterInvalid."""
        if _PATH.fullmatch(text) is None:
            raise FilterInvalid(f"{text[:40]!r} is no attribute name", column)
        steps: list[Step] = []
        for found in _STEP.finditer(text):
            if found["index"] is not None:
                steps.append(int(found["index"]))
            else:
                steps.append(found["word"] if found["word"] is not None else unquoted(found["quoted"]))
        if text.startswith("$"):
            return _reserved(steps, column)
        first = str(steps[0])
        if not text.startswith('"') and first.upper() in KEYWORDS:
            raise FilterInvalid(
                f"{first.upper()} is a keyword; as a name it is quoted: {quoted(first)}{text[len(first) :][:40]}",
                column,
            )
        return cls.payload(*steps)

    @classmethod
    def payload(cls, *steps: Step) -> AttributeName:
        """The name of what lies at the end of *steps* in the payload; the first step is a key."""
        return cls(_spelled(steps), AttributeSource.PAYLOAD, steps)


def quoted(key: str) -> str:
    """*key* in double quotes, as it can always be written."""
    return '"' + key.replace('"', '""') + '"'


def unquoted(text: str) -> str:
    """The key that *text*, in double quotes, stands for."""
    return text[1:-1].replace('""', '"')


def _spelled(steps: tuple[Step, ...]) -> str:
    first, *rest = steps
    text = _key(str(first), may_be_keyword=False)
    for step in rest:
        text += f"[{step}]" if isinstance(step, int) else "." + _key(step, may_be_keyword=True)
    return text


def _key(key: str, *, may_be_keyword: bool) -> str:
    plain = _WORD.fullmatch(key) is not None and (may_be_keyword or key.upper() not in KEYWORDS)
    return key if plain else quoted(key)


def _reserved(steps: list[Step], column: int) -> AttributeName:
    word, *rest = steps
    assert isinstance(word, str)  # the pattern lets no index stand first
    if word == AttributeSource.USER.value:
        if len(rest) != 1 or not isinstance(rest[0], str):
            raise FilterInvalid("$user takes exactly one key, the user property's name: $user.key", column)
        return AttributeName(f"$user.{_key(rest[0], may_be_keyword=True)}", AttributeSource.USER, (rest[0],))
    level = _LEVEL.fullmatch(word)
    number = int(level[1]) if level else 0
    if word not in _PLAIN and not 1 <= number <= TOPIC_LEVELS_MAX:
        raise FilterInvalid(_unknown(word), column)
    if rest:
        raise FilterInvalid(f"{word} is a single value; nothing may follow it", column + len(word))
    if level:
        return AttributeName(word, AttributeSource.LEVEL, (number,))
    return AttributeName(word, _PLAIN[word])


def _unknown(word: str) -> str:
    if word.lower().startswith("$level"):
        return f"topic levels are called $level1 to $level{TOPIC_LEVELS_MAX}, not {word[:40]!r}"
    from difflib import get_close_matches  # 0.2 MiB that only a slip costs

    near = get_close_matches(word[:20].lower(), _KNOWN, n=1)
    advice = f"did you mean {near[0]}?" if near else "known are " + ", ".join(_KNOWN)
    return (
        f"{word[:40]!r} is no reserved name; {advice} A payload key that begins with $ is quoted: {quoted(word[:40])}"
    )
