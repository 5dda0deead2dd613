"""The payload options of a bridge rule, and their syntax: select, rename, convert, batches.

    sensors/# out 1 select=temp,position.lat rename=temp:temperature convert=cbor
    sensors/# out 1 batch_messages=20 batch_s=10
    sensors/# in 1 unbatch=true

In a table they are fields of the rule. This module stays apart from `transform`, which every bridge would load else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import RuleInvalid
from edgebroker.limits import KIB

FORMS: Final = ("json", "cbor")
UNFIT_ACTIONS: Final = ("drop", "pass")
BATCH_MESSAGES: Final = range(2, 1_001)
BATCH_S: Final = range(1, 3_601)
BATCH_BYTES: Final = range(256, 256 * KIB + 1)
BATCH_S_DEFAULT: Final = 10
BATCH_BYTES_DEFAULT: Final = 64 * KIB
BATCH_TOPIC: Final = "batch"
FIELDS_MAX: Final = 64
"""That a rule may name in `select`, and in `rename`."""
_NAME: Final = re.compile(r'(?:"[^"]*"|[^",:])+')
_BOUNDS: Final = {"batch_messages": BATCH_MESSAGES, "batch_s": BATCH_S, "batch_bytes": BATCH_BYTES}


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """What one rule says."""

    select: tuple[str, ...] = ()
    """Fields of the payload that go on, named as in filters; none: all."""
    rename: tuple[tuple[str, str], ...] = ()
    """Fields of the payload that are called otherwise then: (name, new name)."""
    convert: str = ""
    """What the payload becomes: "json" or "cbor"; empty: it stays what it is."""
    unfit: str = ""
    """What becomes of payloads that cannot be transformed: "drop", also if empty, or "pass"."""
    batch_messages: int = 0
    """So many go on together, as one message; 0: each by itself."""
    batch_s: int = 0
    """The longest that one waits for others, in seconds; 0: BATCH_S_DEFAULT."""
    batch_bytes: int = 0
    """The most that they have together; 0: BATCH_BYTES_DEFAULT."""
    batch_topic: str = ""
    """What they are published under there, behind the prefix; empty: BATCH_TOPIC."""
    unbatch: bool = False
    """Whether what comes in comes together, and is to be taken apart."""

    @property
    def transforms(self) -> bool:
        """Whether payloads become others."""
        return bool(self.select or self.rename or self.convert)

    def check(self) -> None:
        """Raise RuleInvalid for what cannot be."""
        for name, value, known in (("convert", self.convert, FORMS), ("unfit", self.unfit, UNFIT_ACTIONS)):
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
        for name, bounds in _BOUNDS.items():
            if (value := getattr(self, name)) and value not in bounds:
                raise RuleInvalid(f"`{name}` is {value}", f"write {bounds[0]:,} to {bounds[-1]:,}")
        if not self.batch_messages and (self.batch_s or self.batch_bytes or (self.batch_topic and not self.unbatch)):
            raise RuleInvalid("a batch without `batch_messages`", "say how many it has, as batch_messages = 20")
        if '"' in self.batch_topic:
            raise RuleInvalid("`batch_topic` with a double quote in it", "choose another topic")
        if self.select or self.rename:
            from edgebridge.bridge.field_tree import build_field_tree  # 1 MiB, for who names fields

            build_field_tree(self.select, self.rename)

    def words(self) -> list[str]:
        """As `read_words` reads them."""
        words = []
        if self.select:
            words.append("select=" + ",".join(self.select))
        if self.rename:
            words.append("rename=" + ",".join(f"{name}:{new}" for name, new in self.rename))
        for name in ("convert", "unfit", *_BOUNDS):
            if value := getattr(self, name):
                words.append(f"{name}={value}")
        if self.batch_topic:
            words.append(f'batch_topic="{self.batch_topic}"')
        return words + (["unbatch=true"] if self.unbatch else [])


def read_payload_options(words: Iterable[str]) -> dict[str, Any]:
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


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        raise RuleInvalid(f"`{name}` is {value[:40]!r}", f"write a number, as {name}={_BOUNDS[name][0]}")
    return int(value)


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
    "batch_messages": _number,
    "batch_s": _number,
    "batch_bytes": _number,
    "batch_topic": _word,
    "unbatch": _switch,
}
"""The fields that a line may say by name."""
