"""The kinds of value that a scenario file has, beside those of settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgebroker.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration
from edgebroker.world.valuekinds import Kind, Unusable, toml_name

UNITS: Final = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_SPAN: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time, kept in microseconds; `least` is 0 where nothing is a length too."""

    least: Duration = 1
    most: Duration = 366 * DAY

    def read(self, value: object, folder: Path) -> Duration:
        if not isinstance(value, str):
            raise Unusable(f"is {toml_name(value)}", f"write {self}, in quotes")
        found = _SPAN.fullmatch(value)
        if not found:
            raise Unusable(f"is {value!r}", f"write {self}")
        length = round(float(found[1]) * UNITS[found[2]])
        if not self.least <= length <= self.most:
            raise Unusable(f"is {value!r}", f"write {self}")
        return length

    def __str__(self) -> str:
        return f'a length of {shown(self.least)} to {shown(self.most)}, like "500ms", "10s", "5m", "2h" or "1d"'


@dataclass(frozen=True, slots=True)
class Number:
    """A number with or without a fraction, from `least` to `most`, both included."""

    least: float
    most: float

    def read(self, value: object, folder: Path) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Unusable(f"is {toml_name(value)}", f"write a number, {self}, without quotes")
        if not self.least <= value <= self.most:
            raise Unusable(f"is {value:g}", f"write a number, {self}")
        return float(value)

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class Between:
    """[least, most] of one kind, or one value that is both; kept as a pair."""

    kind: Kind

    def read(self, value: object, folder: Path) -> tuple[object, object]:
        ends = value if isinstance(value, list) else [value, value]
        if len(ends) != 2:
            raise Unusable(f"has {len(ends)} entries", f"write {self}")
        least, most = (self.kind.read(end, folder) for end in ends)
        if least > most:  # type: ignore[operator]  # both are of one kind
            raise Unusable("begins above its end", "write the least first")
        return least, most

    def __str__(self) -> str:
        return f"one value or [least, most], each {self.kind}"


def shown(length: Duration) -> str:
    """A length in the largest unit that it is a whole number of."""
    for unit, worth in reversed(UNITS.items()):
        if length >= worth and length % worth == 0:
            return f"{length // worth}{unit}"
    return f"{length / MILLISECOND:g}ms"
