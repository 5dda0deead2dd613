"""Problems of settings as an operator reads them, and the bridge entries that are set aside because of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edgebroker.dataclasses import dataclass
from edgebroker.errors import SettingsInvalid

if TYPE_CHECKING:
    from edgebroker.runtime.settings.bridge_section import BridgeSettings


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. `line` counts from 1 and is 0 where there is no line; `key` is `section.name` or empty."""

    file: str
    line: int
    key: str
    reason: str
    mend: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(filter(None, (place, self.key, self.reason))) + (f"; {self.mend}" if self.mend else "")


class SettingsRefused(SettingsInvalid):
    """Settings with problems: `problems` has all of them, the message one line for each."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class ProblemCollector:
    """What is refused inside is added to `problems`, and what stands behind is looked at all the same."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SettingsRefused):
            self.problems += error.problems
            return True
        return False


@dataclass(frozen=True, slots=True)
class InvalidEntry:
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
