"""Section `notices`."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import Applied, key
from edgebroker.world.valuekinds import Choice


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """The operator's log, on standard error."""

    level: str = key("warning", Choice(("error", "warning", "info", "debug")), Applied.LIVE)
    format: str = key("text", Choice(("text", "json")))
