"""Section `mqtt`."""

from __future__ import annotations

from dataclasses import dataclass

from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Choice


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """What the standard leaves to the server. The front end's terms have the same names."""

    sharing: str = key("fair", Choice(("fair", "sticky")))
