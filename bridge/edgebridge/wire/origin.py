"""What bridges tell each other in user properties of version 5: who is at the other end, and where a message began.

CONNECT, CONNACK    edgebroker-bridge: GATEWAY          who dials, who answers
PUBLISH             edgebroker-origin: GATEWAY HOPS     who had the message first, and how many bridges it has crossed
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebridge.wire.properties import Properties, user_properties

BRIDGE_PROPERTY: Final = "edgebroker-bridge"
ORIGIN_PROPERTY: Final = "edgebroker-origin"
GATEWAY_CHARS_MAX: Final = 200
"""Of a name in these properties: room for a host name and an identity."""
_HOPS_CHARS_MAX: Final = 3  # nothing crosses a thousand bridges


def _are_hops(said: str) -> bool:
    return said.isascii() and said.isdigit() and len(said) <= _HOPS_CHARS_MAX


class Origin(NamedTuple):
    """Where a message comes from. Without a gateway: from nowhere else."""

    gateway: str = ""
    hops: int = 0

    @classmethod
    def of(cls, properties: Properties) -> Origin:
        """What the properties of a PUBLISH say; what makes no sense says nothing."""
        for name, value in user_properties(properties):
            if name == ORIGIN_PROPERTY:
                gateway, _, hops = value.rpartition(" ")
                if 0 < len(gateway) <= GATEWAY_CHARS_MAX and _are_hops(hops):
                    return cls(gateway, int(hops))
        return cls()

    def pair(self) -> tuple[str, str]:
        """The user property."""
        return ORIGIN_PROPERTY, f"{self.gateway} {self.hops}"
