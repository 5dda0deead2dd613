"""What of the settings cannot be used and stops nothing else: a bridge with a slip in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.problems import Problem

if TYPE_CHECKING:
    from edgebroker.world.settings.bridge import BridgeSettings


@dataclass(frozen=True, slots=True)
class Aside:
    """One entry of a section that may stand several times, or all that a file has of them."""

    name: str
    """What the entry is called; empty: nobody knows, and there may be several."""
    problems: tuple[Problem, ...]
    given: Mapping[str, object] = field(default_factory=dict)
    """Those of its keys that can be read."""
    settings: BridgeSettings | None = None
    """All of it, where only a file that it names is wrong, or another bridge is the same client."""
    is_double: bool = False
    """Whether a bridge that runs is the same client; only an operator says that this one is to take its place."""

    def __str__(self) -> str:
        return f"{self.label}: {'; '.join(map(str, self.problems))}"

    @property
    def label(self) -> str:
        """What people call it."""
        return f"bridge {self.name}" if self.name else "a bridge without a name that can be read"

    def rows(self) -> Iterator[dict[str, Any]]:
        """For programs: one for each problem."""
        for one in self.problems:
            yield {
                "bridge": self.name or None,
                "file": one.file,
                "line": one.line,
                "key": one.key,
                "reason": one.reason,
                "mend": one.mend,
            }
