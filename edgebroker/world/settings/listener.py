"""Section `listener`: one `[listener]`, or a `[[listener]]` for each."""

from __future__ import annotations

from dataclasses import dataclass

from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Text, Whole


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where devices connect."""

    host: str = key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int = key(1883, Whole(0, 65_535))
