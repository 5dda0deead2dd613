"""What the subscribers of the federation ask for: by content, some per cent of what devices of all sites publish.

As few with every seed: doors that are open warm a whole truck at once, so nobody asks for all that is warm.
"""

from __future__ import annotations

from typing import Final

from edgebridge.wire.dialect import V5, V311
from edgebroker.cli.demo.wishes import Carrier, Wish

WISHES: Final = (
    Wish("cold", "cold-chain/#", 1, V5, "temperature < 3", Carrier.PROPERTY),
    Wish("damp", "cold-chain/#", 2, V5, "humidity > 74", Carrier.PROPERTY),
    Wish("warm", "cold-chain/#", 1, V311, "temperature BETWEEN 5.1 AND 5.4"),
    Wish("truck-3", "cold-chain/truck-3/#", 2, V311, "humidity > 64"),
    Wish("late", "cold-chain/+/unit-01", 1, V5, "door_open AND temperature BETWEEN 6 AND 9"),
)
"""Dealt to the sites in turn, and there to gateways in turn."""
