"""What a rule says about payloads: as words of a line, and whether it can be meant.

sensors/# out 1 select=temp,position.lat rename=temp:temperature convert=cbor
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from edgebridge.upstream.ruleinvalid import RuleInvalid
from edgebroker.dataclasses import dataclass

FORMS: Final = ("json", "cbor")
UNFIT: Final = ("drop", "pass")
FIELDS_MAX: Final = 64
"""That a rule may name in `select`, and in `rename`."""
_NAME: Final = re.compile(r'(?:"[^"]*"|[^",:])+')


@dataclass(frozen=True, slots=True)
class Shape:
    """What one rule says."""

    select: tuple[str, ...] = ()
    """Fields of the payload that go on, named as in filters; none: all."""
    rename: tuple[tuple[str, str], ...] = ()
    """Fields of the payload that are called otherwise then: (name, new name)."""
    convert: str = ""
    """What the payload becomes: "json" or "cbor"; empty: it stays what it is."""
    unfit: str = ""
    """What becomes of payloads that cannot be transformed: "drop", also if empty, or "pass"."""

    @property
    def transforms(self) -> bool:
        """Whether payloads become others."""
        return bool(self.select or self.rename or self.convert)

    def check(self) -> None:
        """Raise RuleInvalid for what cannot be."""
        for name, value, known in (("convert", self.convert, FORMS), ("unfit", self.unfit, UNFIT)):
            if value and value not in known:
                raise RuleInvalid(f"`{name}` is {value!r}", f'write "{known[0]}" or "{known[1]}"')
        if self.unfit and not self.transforms:
            raise RuleInvalid(
                "`unfit` where nothing is transformed", "leave it out, or write select, rename or convert"
            )
        said: tuple[tuple[str, Sequence[object]], ...] = ("select", self.select), ("rename", self.rename)
        for name, fields in said:
            if len(fields) > FIELDS_MAX:
                raise RuleInvalid(f"`{name}` with {len(fields)} fields", f"name at most {FIELDS_MAX}")
        if self.select or self.rename:
            from edgebridge.upstream.plan import plan_of  # 1 MiB, for who names fields

            plan_of(self.select, self.rename)

    def words(self) -> list[str]:
        """As `read_words` reads them."""
        words = []
        if self.select:
            words.append("select=" + ",".join(self.select))
        if self.rename:
            words.append("rename=" + ",".join(f"{name}:{new}" for name, new in self.rename))
        for name in ("convert", "unfit"):
            if value := getattr(self, name):
                words.append(f"{name}={value}")
        return words


def read_words(words: Iterable[str]) -> dict[str, Any]:
    """What words like `convert=cbor` say, by field of a rule. Raises RuleInvalid."""
    said: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        read = _READ.get(name)
        if read is None:
            from difflib import get_close_matches  # 0.2 MiB that only a slip costs

            near = get_close_matches(name, _READ, n=1)
            mend = f"did you mean {near[0]}?" if near else "there are " + ", ".join(_READ)
            raise RuleInvalid(f"a word {name}=", f"{mend} A topic like that is written in double quotes")
        if name in said:
            raise RuleInvalid(f"`{name}` twice", "say it once")
        said[name] = read(name, value)
    return said


def _names(name: str, value: str) -> tuple[str, ...]:
    names: list[str] = _NAME.findall(value)
    if ",".join(names) != value:
        raise RuleInvalid(f"`{name}` is {value[:40]!r}", f"write {name}=temp,position.lat")
    return tuple(names)


def _pairs(name: str, value: str) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = re.findall(rf"({_NAME.pattern}):({_NAME.pattern})", value)
    if ",".join(f"{old}:{new}" for old, new in pairs) != value:
        raise RuleInvalid(f"`{name}` is {value[:40]!r}", f"write {name}=temp:temperature,hum:humidity")
    return tuple(pairs)


def _switch(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise RuleInvalid(f"`{name}` is {value[:40]!r}", "write true or false")
    return value == "true"


def _word(name: str, value: str) -> str:
    return value.strip('"')


_READ: Final[dict[str, Callable[[str, str], Any]]] = {
    "retain": _switch,
    "select": _names,
    "rename": _pairs,
    "convert": _word,
    "unfit": _word,
}
"""The fields that a line may say by name."""
