"""Names that travel: clients and nodes. They are plain text; these aliases say which text is meant."""

from __future__ import annotations

from typing import NewType

ClientId = NewType("ClientId", str)
"""What a client calls itself (MQTT: Client Identifier). Unique in one broker."""

NodeName = NewType("NodeName", str)
"""What an operator calls a gateway."""

SubscriptionNumber = NewType("SubscriptionNumber", int)
"""A broker-local number of one (client, subscription) pair; never used twice in one run."""
