"""One figure of an experiment beside what was published and what is accepted as the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Finding:
    """A quantity. Texts are for people; `measured` must lie between `low` and `high` if the finding is judged."""

    name: str
    published: str
    measured: float
    style: str = "{:,.4g}"
    """How to write a figure."""
    low: float = -inf
    high: float = inf

    @property
    def is_judged(self) -> bool:
        """Whether anything is asked of it."""
        return (self.low, self.high) != (-inf, inf)

    @property
    def is_met(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def accepted(self) -> str:
        """The range in words."""
        low, high = self.style.format(self.low), self.style.format(self.high)
        if not self.is_judged:
            return ""
        if self.low == self.high:
            return low
        if self.low == -inf:
            return f"<= {high}"
        return f">= {low}" if self.high == inf else f"{low} .. {high}"

    @property
    def text(self) -> str:
        """The figure in words."""
        return self.style.format(self.measured)


def unmet(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are not as asked."""
    return [finding for finding in findings if not finding.is_met]
