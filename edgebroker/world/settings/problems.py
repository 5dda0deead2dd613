"""What is wrong with settings, as an operator reads it."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.errors import SettingsInvalid


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


class Collecting:
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
