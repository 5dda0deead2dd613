"""Errors in settings as an operator reads them, and the entries of bridges that are not used because of them."""

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
    """One error. `line` counts from 1 and is 0 if unknown; `key` is `section.name` or empty; `mend` is the remedy."""

    file: str
    line: int
    key: str
    reason: str
    mend: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(filter(None, (place, self.key, self.reason))) + (f"; {self.mend}" if self.mend else "")


class SettingsRefused(SettingsInvalid):
    """Raised for settings with errors: `problems` has all of them, the message has one line for each."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class ProblemCollector:
    """A context that appends the problems of a SettingsRefused to `problems`; the code after it runs all the same."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SettingsRefused):
            self.problems += error.problems
            return True
        return False


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An entry of a list section that cannot be used; without a name, it may stand for several entries."""

    name: str
    """The name of the entry; empty if it cannot be read."""
    problems: tuple[Problem, ...]
    given: Mapping[str, object] = field(default_factory=dict)
    """The valid keys of the entry."""
    settings: BridgeSettings | None = None
    """The whole entry, if only a file that it names is invalid, or another bridge has its client identifier."""
    is_double: bool = False
    """Whether a running bridge has the same client identifier; only an operator may replace that bridge by this one."""

    def __str__(self) -> str:
        return f"{self.label}: {'; '.join(map(str, self.problems))}"

    @property
    def label(self) -> str:
        """The name of the entry in messages."""
        return f"bridge {self.name}" if self.name else "a bridge without a name that can be read"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for JSON output for each problem."""
        for one in self.problems:
            yield {
                "bridge": self.name or None,
                "file": one.file,
                "line": one.line,
                "key": one.key,
                "reason": one.reason,
                "mend": one.mend,
            }
