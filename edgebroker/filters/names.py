"""Attribute names: how a filter names a part of an event, and where that part is.

A *payload* name is a path of keys and indices: `temp`, `pos.lat`, `tags[0]`, `"odd key".x`. A *reserved* name begins
with `$` and is a property of the publication itself. A path with `[*]` in it, `tags[*]`, names any element of an array;
a test of it, spelled as in the filter (`tags[*] = 'x'`), is a boolean attribute by that name, so nothing but the
extractor knows of elements (`edgebroker.filters.elements`). Every name has one canonical spelling, the key of
`edgebroker.predicate.Attributes`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.errors import FilterInvalid
from edgebroker.limits import TOPIC_LEVELS_LIMIT

KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"))
"""Words, in upper case, that must be quoted as attribute names."""

WORD: Final = r"[^\W\d]\w*"
QUOTED: Final = r'"(?:[^"]|"")*+"'
PATH: Final = rf"(?:\$?{WORD}|{QUOTED})(?:\.(?:{WORD}|{QUOTED})|\[(?:[0-9]+|\*)\])*"
"""A whole name. A name contains no blanks: `pos . lat` is three tokens."""

_WORD = re.compile(WORD)
_PATH = re.compile(PATH)
_STEP = re.compile(rf"\.?(?:(?P<word>\$?{WORD})|(?P<quoted>{QUOTED}))|\[(?P<index>[0-9]+|\*)\]")
_LEVEL = re.compile(r"\$level([1-9][0-9]{0,3})")

Step: TypeAlias = str | int
"""A key of an object, or an index into an array."""
ANY_ELEMENT: Final = -1
"""Stands for `[*]` among the steps of a path."""
_ANY_ELEMENT_TEXT: Final = "[*]"


class AttributeSource(Enum):
    """The source of an attribute's value."""

    PAYLOAD = "payload"
    TOPIC = "$topic"
    LEVEL = "$level"
    QOS = "$qos"
    RETAIN = "$retain"
    SIZE = "$size"
    CLIENT = "$client"
    USER = "$user"
    ELEMENT = "element"


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
    """One name. `steps`: the path (PAYLOAD, and ELEMENT with ANY_ELEMENT once), the level's number from 1 (LEVEL), the
    key (USER), else empty.
    """

    canonical: str
    source: AttributeSource
    steps: tuple[Step, ...] = ()

    @classmethod
    def parse(cls, text: str, column: int = 1) -> AttributeName:
        """Parse *text*, which is at *column* of a filter. Raises FilterInvalid."""
        if _PATH.fullmatch(text) is None:
            if is_element_test(text):
                path = cls.parse(_PATH.match(text)[0])  # type: ignore[index]
                return cls(text, AttributeSource.ELEMENT, path.steps)
            raise FilterInvalid(f"{text[:40]!r} is no attribute name", column)
        steps: list[Step] = []
        for found in _STEP.finditer(text):
            if found["index"] is not None:
                steps.append(ANY_ELEMENT if found["index"] == "*" else int(found["index"]))
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
        if ANY_ELEMENT in steps:
            if steps.count(ANY_ELEMENT) > 1:
                raise FilterInvalid(
                    f"{text[:40]!r} has more than one [*]; elements of elements are not looked at", column
                )
            return cls(_spelled(tuple(steps)), AttributeSource.ELEMENT, tuple(steps))
        return cls.payload(*steps)

    @classmethod
    def payload(cls, *steps: Step) -> AttributeName:
        """Return the name of the item at the end of *steps* in the payload; the first step is a key."""
        return cls(_spelled(steps), AttributeSource.PAYLOAD, steps)


def is_element(name: str) -> bool:
    """Return whether *name*, a canonical one, is the path of any element of an array, such as `tags[*]`."""
    return _ANY_ELEMENT_TEXT in name and _ends_at(name) == len(name)


def is_element_test(name: str) -> bool:
    """Return whether *name* is that of an attribute that is a test of any element of an array: `tags[*] = 'x'`."""
    return _ANY_ELEMENT_TEXT in name and 0 < _ends_at(name) < len(name)


def _ends_at(name: str) -> int:
    """Return where the path with `[*]` ends with which *name* begins; 0 if there is none, as in `"a[*]" = 1`."""
    path = _PATH.match(name)
    if path is None or not any(found["index"] == "*" for found in _STEP.finditer(path[0])):
        return 0
    return path.end()


def quoted(key: str) -> str:
    """Return *key* in double quotes, which is always a valid spelling."""
    return '"' + key.replace('"', '""') + '"'


def unquoted(text: str) -> str:
    """Return the key that *text*, in double quotes, stands for."""
    return text[1:-1].replace('""', '"')


def _spelled(steps: tuple[Step, ...]) -> str:
    first, *rest = steps
    text = _key(str(first), may_be_keyword=False)
    for step in rest:
        if step == ANY_ELEMENT:
            text += _ANY_ELEMENT_TEXT
            continue
        text += f"[{step}]" if isinstance(step, int) else "." + _key(step, may_be_keyword=True)
    return text


def _key(key: str, *, may_be_keyword: bool) -> str:
    plain = _WORD.fullmatch(key) is not None and (may_be_keyword or key.upper() not in KEYWORDS)
    return key if plain else quoted(key)


def _reserved(steps: list[Step], column: int) -> AttributeName:
    word, *rest = steps
    assert isinstance(word, str)  # the pattern does not match an index in the first place
    if word == AttributeSource.USER.value:
        if len(rest) != 1 or not isinstance(rest[0], str):
            raise FilterInvalid("$user takes exactly one key, the user property's name: $user.key", column)
        return AttributeName(f"$user.{_key(rest[0], may_be_keyword=True)}", AttributeSource.USER, (rest[0],))
    level = _LEVEL.fullmatch(word)
    number = int(level[1]) if level else 0
    if word not in _PLAIN and not 1 <= number <= TOPIC_LEVELS_LIMIT:
        raise FilterInvalid(_unknown(word), column)
    if rest:
        raise FilterInvalid(f"{word} is a single value; nothing may follow it", column + len(word))
    if level:
        return AttributeName(word, AttributeSource.LEVEL, (number,))
    return AttributeName(word, _PLAIN[word])


def _unknown(word: str) -> str:
    if word.lower().startswith("$level"):
        return f"topic levels are called $level1 to $level{TOPIC_LEVELS_LIMIT}, not {word[:40]!r}"
    from difflib import get_close_matches  # 0.2 MiB, loaded only after a misspelt name

    near = get_close_matches(word[:20].lower(), _KNOWN, n=1)
    advice = f"did you mean {near[0]}?" if near else "known are " + ", ".join(_KNOWN)
    return (
        f"{word[:40]!r} is no reserved name; {advice} A payload key that begins with $ is quoted: {quoted(word[:40])}"
    )
