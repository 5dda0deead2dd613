"""What the subscribers of the federation ask for: little, by content, of what devices of all sites publish."""

from __future__ import annotations

from typing import Final

from edgebridge.wire.dialect import V5, V311
from edgebroker.cli.demo.wishes import Carrier, Wish

WISHES: Final = (
    Wish("cold", "cold-chain/#", 1, V5, "temperature < 3", Carrier.PROPERTY),
    Wish("damp", "cold-chain/#", 2, V5, "humidity > 72", Carrier.PROPERTY),
    Wish("warm", "cold-chain/#", 1, V311, "temperature > 9"),
    Wish("truck-3", "cold-chain/truck-3/#", 2, V311, "humidity > 64"),
    Wish("late", "cold-chain/+/unit-01", 1, V5, "door_open AND temperature > 9"),
)
"""Dealt to the sites in turn, and there to gateways in turn."""
