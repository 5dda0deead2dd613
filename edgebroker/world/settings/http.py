"""Section `http`."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path

from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import Applied, Conflict, key
from edgebroker.world.valuekinds import File, Switch, Text, Whole


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where metrics, health and status are answered; nowhere without `port`."""

    host: str = key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int | None = key(None, Whole(0, 65_535))
    token_file: Path | None = key(None, File(), Applied.LIVE)
    health_open: bool = key(True, Switch(), Applied.LIVE)

    def unused(self) -> Iterator[str]:
        """Keys that mean nothing here."""
        if self.token_file is None:
            yield "health_open"

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """What does not go together."""
        if "health_open" in given and self.token_file is None:
            yield "health_open", "does nothing without token_file", "set token_file, or leave the line out"
