"""Where clients are sent when this gateway is not for them any more (MQTT 5.0 section 4.11)."""

from __future__ import annotations

from typing import Literal

from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass

Reason = Literal[ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED]


@dataclass(frozen=True, slots=True)
class Redirect:
    """`reason` says whether it is for now or for good; `reference` lists `host` or `host:port`, apart by blanks."""

    reason: Reason
    reference: str

    @property
    def why(self) -> str:
        """In words, for who reads reason strings and not references."""
        lasts = "has moved to" if self.reason == ReasonCode.SERVER_MOVED else "sends its clients for now to"
        return f"this server {lasts} {self.reference}"
