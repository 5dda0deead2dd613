"""Section `mqtt`."""

from __future__ import annotations

from edgebridge.session.outbox import QueueFull
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Choice, Switch, Text, Whole


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """What the standard leaves to the server. The front end's terms have the same names."""

    keep_alive_s_max: int = key(0, Whole(0, 65_535))
    response_prefix: str | None = key(None, Text(r"[^$+#\s\0][^+#\s\0]{0,255}", "a topic prefix without wildcards"))
    payload_format_checked: bool = key(False, Switch())
    sys_interval_s: int = key(10, Whole(0, 3_600))
    presence: bool = key(False, Switch())
    sparkplug_rebirth_s: int = key(0, Whole(0, 3_600))
    sharing: str = key("fair", Choice(("fair", "sticky")))
    queue_full: str = key("drop-newest", Choice(tuple(QueueFull)))
