"""The budget of work for reading the rules of bridges, in steps of about one microsecond.

Each condition has bounds of its own (docs/filters.md). 256 conditions kept a gateway busy for 300 ms while it read
a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from edgebridge.bridge.errors import RuleInvalid
from edgebroker.errors import FilterInvalid, FilterTooComplex
from edgebroker.limits import KIB

STEPS_MAX: Final = 5_000
"""Of all rules of one file: 125 with conditions like `temp > 30 AND site = 'north'`, all different."""
RULE_STEPS: Final = 10
CHARS_PER_STEP: Final = 8
"""Of a rule that is one text."""
FIELD_STEPS: Final = 5
"""One of `select`, or a name of `rename`."""
CONDITION_STEPS: Final = 10
ALTERNATIVE_STEPS: Final = 20
"""An OR or a NOT."""
PART_STEPS: Final = 2
"""A comma, as between the values of IN, or a dot, as in a name."""
CONDITION_CHARS_PER_STEP: Final = 2
WORK_PER_STEP: Final = 1.25
"""Of what it takes to multiply a filter out."""
TOO_COMPLEX_STEPS: Final = 2_600
"""A condition that is refused: 1.3 to 3.5 ms. One bridge that has one leaves half to the others."""
CONDITION_CACHE_CHARS_MAX: Final = 16 * KIB

_ALTERNATIVES: Final = re.compile(r"\b(?:or|not)\b")
_MEND: Final = "write shorter conditions, or equal ones, which count once; docs/bridging.md says what counts"


class RuleBudget:
    """Of one file. Without *steps_max* there is no bound."""

    def __init__(self, steps_max: int | None = None) -> None:
        self._steps = 0
        self._most = steps_max
        self._conditions: set[str] = set()

    def spend(self, steps: int, rule: str) -> None:
        """So many more, for *rule*. Raises RuleInvalid, also for all that comes later, if these are too many."""
        self._steps += steps
        if self._most is not None and self._steps > self._most:
            what = f"with {rule[:40]!r}, the rules of all bridges take more than {self._most:,} steps to read"
            raise RuleInvalid(what, _MEND)

    def spend_condition(self, where: str, rule: str) -> None:
        """See that *where*, of *rule*, is a filter. Raises RuleInvalid."""
        if where in self._conditions:
            return
        parts = where.count(",") + where.count(".")
        self.spend(
            CONDITION_STEPS + ALTERNATIVE_STEPS * len(_ALTERNATIVES.findall(where.lower())) + PART_STEPS * parts, rule
        )
        work = CONDITION_WORK_CACHE.works.get(where)
        if work is None:
            work = self._read(where)
        self.spend(len(where) // CONDITION_CHARS_PER_STEP + int((work - len(where)) / WORK_PER_STEP), rule)
        self._conditions.add(where)

    def spend_fields(self, names: Sequence[str], rule: str) -> None:
        """The *names* of fields are to be read. Raises RuleInvalid."""
        self.spend(
            FIELD_STEPS * len(names) + PART_STEPS * sum(name.count(".") + name.count("[") for name in names), rule
        )

    def _read(self, where: str) -> int:
        from edgebroker.filters import Filter  # 1 MiB, for who has conditions

        try:
            work = Filter.work_of(where)
        except (FilterInvalid, FilterTooComplex) as error:
            if isinstance(error, FilterTooComplex):
                self._steps += TOO_COMPLEX_STEPS
            raise RuleInvalid(f"in the condition, {error}", "docs/filters.md has the language") from None
        CONDITION_WORK_CACHE.add(where, work)
        return work


class ConditionWorkCache:
    """The work of conditions read lately: a bridge that is added is read as it was sent and as it is kept."""

    def __init__(self) -> None:
        self.works: dict[str, int] = {}
        self._chars = 0

    def add(self, where: str, work: int) -> None:
        """One more; all others go if it would be too many."""
        self._chars += len(where)
        if self._chars > CONDITION_CACHE_CHARS_MAX:
            self.clear()
            self._chars = len(where)
        self.works[where] = work

    def clear(self) -> None:
        """None is known."""
        self.works.clear()
        self._chars = 0


CONDITION_WORK_CACHE: Final = ConditionWorkCache()
