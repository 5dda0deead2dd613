"""The radio between a device and its broker: delay, low rate, legal limits of transmission, and lost connections."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

from edgebroker.instants import SECOND, Duration, Instant

BITS: Final = 8


@dataclass(frozen=True, slots=True)
class RadioKind:
    """The properties of a kind of radio. Ranges are minimum and maximum, inclusive, drawn anew each time."""

    always_on: bool = True
    """False: it is switched on for messages, and off again after the last one."""
    latency_us: tuple[Duration, Duration] = (0, 0)
    """Latency in each direction."""
    bits_per_s: int | None = None
    """Rate; None: unlimited."""
    duty: float = 1.0
    """The share of the time in which it may transmit; EU 868 MHz, sub-band h1.4: 0.01."""
    lost_every_us: Duration | None = None
    """Mean time after which a connection is lost (exponential). None: never."""
    outage_us: tuple[Duration, Duration] = (0, 0)
    """How long there is no network after that."""
    listen_us: Duration = SECOND
    """How long a radio that is not always on stays on after the last message: images may arrive."""

    def airtime_us(self, count: int) -> Duration:
        """Returns the duration of a transmission of *count* bytes."""
        return 0 if self.bits_per_s is None else count * BITS * SECOND // self.bits_per_s

    def next_loss(self, random_source: Random, now: Instant) -> Instant | None:
        """Returns when a connection that begins now will be lost; None: never."""
        return None if self.lost_every_us is None else now + round(random_source.expovariate(1 / self.lost_every_us))


WIRED: Final = RadioKind()
"""No radio: a cable."""


class RadioPath:
    """Bytes in one direction, in order.

    Airtime counts when it is used: what was lost before its transmission causes no silence.
    """

    def __init__(self, kind: RadioKind, random_source: Random) -> None:
        self._kind = kind
        self._random = random_source
        self._pieces: deque[tuple[Instant, Instant, bytes]] = deque()  # (begin of transmission, arrival, bytes)
        self.free_at: Instant = 0
        """When the radio may transmit again, after all queued bytes."""
        self.arrived_at: Instant = 0
        """When the last sent bytes arrive."""
        self.octets = 0
        """Number of bytes sent or queued."""
        self.airtime_us: Duration = 0
        """Their airtime."""

    @property
    def due(self) -> Instant | None:
        """When the next bytes arrive; None: there are none."""
        return self._pieces[0][1] if self._pieces else None

    def send(self, chunk: bytes, now: Instant) -> None:
        """Sends *chunk* as soon as the radio may transmit."""
        kind = self._kind
        airtime = kind.airtime_us(len(chunk))
        start = max(now, self.free_at)
        self.free_at = start + round(airtime / kind.duty)  # the duty cycle requires silence after a transmission
        least, most = kind.latency_us
        latency = self._random.randint(least, most) if most else 0
        self.arrived_at = max(self.arrived_at, start + airtime + latency)
        self._pieces.append((start, self.arrived_at, chunk))
        self.octets += len(chunk)
        self.airtime_us += airtime

    def arrived(self, now: Instant) -> bytes:
        """Returns the bytes that have arrived by *now*."""
        pieces, chunks = self._pieces, []
        while pieces and pieces[0][1] <= now:
            chunks.append(pieces.popleft()[2])
        return b"".join(chunks)

    def lose_all(self, now: Instant) -> None:
        """Drops all bytes on their way. The silence for airtime used by *now* remains."""
        while self._pieces:
            piece = self._pieces.pop()
            start, _, chunk = piece
            unused = self._unused(piece, now)
            if unused:
                airtime = self._kind.airtime_us(len(chunk))
                self.free_at = start + round((airtime - unused) / self._kind.duty)
                self.airtime_us -= unused
                self.octets -= len(chunk) * unused // airtime
        self.arrived_at = 0

    def spent_us(self, now: Instant) -> Duration:
        """Returns the airtime used by *now*."""
        return self.airtime_us - sum(self._unused(piece, now) for piece in self._pieces)

    def _unused(self, piece: tuple[Instant, Instant, bytes], now: Instant) -> Duration:
        """Returns the airtime of a piece that is not used by *now*."""
        airtime = self._kind.airtime_us(len(piece[2]))
        return airtime - min(max(now - piece[0], 0), airtime)
