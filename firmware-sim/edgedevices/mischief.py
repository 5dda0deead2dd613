"""Misbehaviour of badly made devices, towards the broker and themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from edgebroker.instants import HOUR, Duration, Instant

GARBAGE_BYTES: Final = (16, 256)
"""Length of a payload: 16 random bytes are unique, so that an audit can tell payloads apart."""
JUMP_US: Final = (-12 * HOUR, 12 * HOUR)
"""A clock that was set by hand, or to another time zone."""


class Prank(Enum):
    """Kinds of misbehaviour."""

    CLOCK_JUMP = "clock-jump"
    """The device's own clock, and with it `clock_s` in its messages, jumps by up to twelve hours."""
    DUPLICATE_ID = "duplicate-id"
    """It connects with the client identifier of the device before it: each takes over the other's session."""
    DROP = "drop"
    """It drops its connection without DISCONNECT, and reconnects."""
    RECONNECT_STORM = "reconnect-storm"
    """It drops its connection and reconnects at once, without any pause, `times` times."""
    GARBAGE_PAYLOAD = "garbage-payload"
    """The payload of a message is random bytes."""
    GARBAGE_PACKET = "garbage-packet"
    """It writes bytes that are not MQTT; the broker has to end the connection."""


@dataclass(frozen=True, slots=True)
class Mischief:
    """One misbehaviour: once, `at_us` after the device's boot, or repeatedly, every `every_us` on average."""

    prank: Prank
    at_us: Duration | None = None
    every_us: Duration | None = None
    times: int = 1

    def first(self, booted: Instant, chance: Random) -> Instant | None:
        """Returns when it occurs first; None: it does not depend on time."""
        if self.prank is Prank.DUPLICATE_ID:
            return None
        return self.next(booted, chance) if self.at_us is None else booted + self.at_us

    def next(self, now: Instant, chance: Random) -> Instant | None:
        """Returns when it occurs next after *now*; None: never again."""
        return None if self.every_us is None else now + 1 + round(self.every_us * chance.uniform(0.5, 1.5))


BROKEN_PACKETS: Final[tuple[bytes, ...]] = (
    b"\x00\x00",  # packet type 0 does not exist
    b"\x36\x05\x00\x01a\x00\x01",  # PUBLISH with QoS 3
    b"\x30\xff\xff\xff\xff\x01",  # a remaining length of five bytes
    b"\x82\x02\x00\x01",  # SUBSCRIBE without a topic filter
    b"\x30\x04\x00\x09a/",  # a topic that is longer than its packet
    b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",  # a second CONNECT
)
"""Each violates a rule that every broker must enforce (MQTT 3.1.1 and 5.0)."""


def garbage(chance: Random) -> bytes:
    """Returns a random payload."""
    return b"\xff" + chance.randbytes(chance.randint(*GARBAGE_BYTES))
