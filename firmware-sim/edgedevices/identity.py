"""Who a device is for its broker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from edgebroker.instants import SECOND, Duration
from edgedevices.message import Body, Form, Message

SESSION_EXPIRY_S: Final = 3_600
"""If a device is killed, the broker forgets its session after an hour (MQTT 5)."""


class Dialect(Enum):
    """Which MQTT a device speaks."""

    V311 = "3.1.1"
    V5 = "5"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who connects, and how. `client_id`: the device's name if it is left out.

    status_topic: retained "online"/"offline" go there, the latter also as the will; None: neither.
    """

    device: str
    dialect: Dialect
    status_topic: str | None = None
    client_id: str | None = None
    lasts: bool = True
    """Whether the session survives connections. It begins and ends empty all the same."""
    keep_alive_us: Duration = 60 * SECOND
    expiry_s: int = SESSION_EXPIRY_S
    asks: tuple[tuple[str, int], ...] = ()
    """(topic filter, QoS) of what it subscribes to."""

    def status(self, word: str) -> Message:
        """The retained status message that says *word*."""
        if self.status_topic is None:
            raise ValueError(f"{self.device} has no status topic")
        body: Body = {"device": self.device, "status": word}
        return Message(self.device, None, self.status_topic, body, Form.JSON, qos=1, retain=True)
