"""What became of one line of Mosquitto's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .conffile import Line


class Verdict(Enum):
    """How a line fared; the value is its heading in the report, in this order."""

    TRANSLATED = "translated"
    DIFFERS = "translated with a difference"
    NEEDLESS = "not needed here"
    MISSING = "no equivalent here"
    UNKNOWN = "not understood"

    @property
    def is_loss(self) -> bool:
        """Whether a gateway with the settings written lacks something that was asked for."""
        return self in (Verdict.MISSING, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line's verdict. `keys` are those of our settings that it set, `note` says what differs or what to do."""

    line: Line
    verdict: Verdict
    note: str = ""
    keys: tuple[str, ...] = ()
