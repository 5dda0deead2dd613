"""Section `http`."""

from __future__ import annotations

from dataclasses import dataclass

from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Text, Whole


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where metrics, health and status are answered; nowhere without `port`."""

    host: str = key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int | None = key(None, Whole(0, 65_535))
