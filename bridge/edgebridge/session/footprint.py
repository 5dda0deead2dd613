"""The memory footprint of what clients make a gateway keep: bytes of CPython 3.11 objects for each kind.

Each constant is what the resident set of a process grew by for one such object, when thousands of them were made
through the front end (tests/laws/test_memory_footprint.py repeats that, and allows 30 %). What is shared is not here:
the cache of routes has `limits.ROUTES_MAX` topics, 350 bytes each, and belongs to nobody.
"""

from __future__ import annotations

from enum import StrEnum
from sys import getsizeof
from typing import Final

from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Properties, encode_properties, user_properties
from edgebroker.matching.kernel import kernel
from edgebroker.publication import PROPERTIES_BYTES, USER_PROPERTY_BYTES, Publication


class HeldKind(StrEnum):
    """What memory is held by."""

    BUFFERS = "buffers"
    """Input that is not read yet, output that is not sent yet."""
    CONNECTIONS = "connections"
    SESSIONS = "sessions"
    """With the packet identifiers of unreleased QoS 2 messages."""
    SUBSCRIPTIONS = "subscriptions"
    """With their content filters."""
    TOPIC_ALIASES = "topic_aliases"
    """In both directions."""
    WILLS = "wills"
    QUEUES = "queues"
    """Messages that wait, and those that are sent and not acknowledged."""
    RETAINED = "retained"


CONNECTION_BYTES: Final = 800
"""An accepted connection, with its timer: 1,040 bytes, without the buffers of its socket and of TLS."""
SESSION_BYTES: Final = 2_300
"""A session with its expiry timer: 1,600 bytes while its client is connected, 2,400 when it is gone, and 2,700 when it
was read from a journal; connections that came and went leave gaps between."""
RECEIVED_ID_BYTES: Final = 60
"""The identifier of a QoS 2 message until PUBREL: 53 to 56 bytes."""
QUEUED_BYTES: Final = 350
"""A message in a queue besides what `Publication.held_bytes` counts: 366 bytes with 64 bytes of payload, 440 with a
topic that no other message has. A copy of the same message for another session takes 150 bytes, and counts as much."""
INFLIGHT_BYTES: Final = 400
"""A message that is sent and not acknowledged: the same, and its place by packet identifier."""
RETAINED_BYTES: Final = 540
"""A retained message besides its payload, its properties and twice its topic, which the trie has again: 578 bytes with
a topic of 20 characters and 10 bytes of payload."""
ALIAS_BYTES: Final = 130
"""A topic alias besides its topic."""
WILL_BYTES: Final = 320
"""A will besides its topic, payload and properties: with a delay 620 bytes, of which the properties are 300."""
RECORD_BYTES: Final = 160
"""The journal's record of a subscription besides its text."""

_IS_COMPILED: Final = kernel.__name__.endswith("compiled")
SUBSCRIPTION_BYTES: Final = 480 if _IS_COMPILED else 300
"""A subscription besides its text and levels..."""
LEVEL_BYTES: Final = 22 if _IS_COMPILED else 340
"""...and a level of its topic filter that no other filter has: a node of the topic tree. The compiled tree keeps nodes
in columns; in plain Python each has a dictionary. A filter of 250 characters and 60 levels takes 1,906 bytes compiled,
and 20,896 otherwise."""


def subscription_bytes(text: str) -> int:
    """The footprint of the subscription *text*, without its content filter (`FilterCost.held_bytes`)."""
    return SUBSCRIPTION_BYTES + getsizeof(text) - 49 + LEVEL_BYTES * (text.count("/") + 1)


def alias_bytes(topic: str) -> int:
    """The footprint of a topic alias that stands for *topic*."""
    return ALIAS_BYTES + getsizeof(topic)


def retained_bytes(publication: Publication) -> int:
    """The footprint of *publication* in the retained store."""
    return RETAINED_BYTES + publication.held_bytes() + getsizeof(publication.topic) - 49


def properties_bytes(properties: Properties) -> int:
    """The footprint of *properties* as they are decoded; none take nothing."""
    if not properties:
        return 0
    pairs = len(user_properties(properties))
    return PROPERTIES_BYTES + len(encode_properties(properties)) + USER_PROPERTY_BYTES * pairs


def will_bytes(will: Will | None) -> int:
    """The footprint of *will*; None takes nothing."""
    if will is None:
        return 0
    return WILL_BYTES + getsizeof(will.topic) + len(will.payload) + properties_bytes(will.properties)
