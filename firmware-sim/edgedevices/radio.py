"""What lies between a device and its broker: delay, few bits in a second, silence by law, and lost connections."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

from edgebroker.instants import SECOND, Duration, Instant

BITS: Final = 8


@dataclass(frozen=True, slots=True)
class RadioKind:
    """How a kind of radio behaves. Ranges are the least and the most, inclusive, drawn anew each time."""

    always_on: bool = True
    """False: it is switched on when there is something to say, and off again when all is said."""
    latency_us: tuple[Duration, Duration] = (0, 0)
    """How long a byte travels, each way."""
    bits_per_s: int | None = None
    """None: as many as you like."""
    duty: float = 1.0
    """The share of the time in which it may send; EU 868 MHz, sub-band h1.4: 0.01."""
    lost_every_us: Duration | None = None
    """A connection is lost after that long, on average (exponential). None: never."""
    outage_us: tuple[Duration, Duration] = (0, 0)
    """How long there is no network then."""
    listen_us: Duration = SECOND
    """How long a radio that is not always on stays on when all is said: orders may come."""

    def airtime_us(self, count: int) -> Duration:
        """How long *count* bytes are on the air."""
        return 0 if self.bits_per_s is None else count * BITS * SECOND // self.bits_per_s

    def next_loss(self, chance: Random, now: Instant) -> Instant | None:
        """When a connection that begins now will be lost."""
        return None if self.lost_every_us is None else now + round(chance.expovariate(1 / self.lost_every_us))


WIRED: Final = RadioKind()
"""No radio at all."""


class RadioPath:
    """One direction: bytes on their way. Nothing overtakes.

    Airtime is paid for when it is used: what was lost before its turn came costs no silence.
    """

    def __init__(self, kind: RadioKind, chance: Random) -> None:
        self._kind = kind
        self._chance = chance
        self._pieces: deque[tuple[Instant, Instant, bytes]] = deque()  # (when it begins, when it arrives, what)
        self.free_at: Instant = 0
        """When the radio may send again, after all that is on its way."""
        self.arrived_at: Instant = 0
        """When the last bytes that were sent arrive."""
        self.octets = 0
        """Bytes that were ever sent, or are to be."""
        self.airtime_us: Duration = 0
        """How long they are on the air."""

    @property
    def due(self) -> Instant | None:
        """When the next bytes arrive; None: nothing is on its way."""
        return self._pieces[0][1] if self._pieces else None

    def send(self, chunk: bytes, now: Instant) -> None:
        """Send *chunk* as soon as the radio may."""
        kind = self._kind
        airtime = kind.airtime_us(len(chunk))
        start = max(now, self.free_at)
        self.free_at = start + round(airtime / kind.duty)  # after a transmission it has to be silent for long
        least, most = kind.latency_us
        latency = self._chance.randint(least, most) if most else 0
        self.arrived_at = max(self.arrived_at, start + airtime + latency)
        self._pieces.append((start, self.arrived_at, chunk))
        self.octets += len(chunk)
        self.airtime_us += airtime

    def arrived(self, now: Instant) -> bytes:
        """What has arrived by *now*."""
        pieces, found = self._pieces, []
        while pieces and pieces[0][1] <= now:
            found.append(pieces.popleft()[2])
        return b"".join(found)

    def lose_all(self, now: Instant) -> None:
        """What is on its way never arrives. The law's silence lasts, for what has been on the air by *now*."""
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
        """How long bytes have been on the air by *now*."""
        return self.airtime_us - sum(self._unused(piece, now) for piece in self._pieces)

    def _unused(self, piece: tuple[Instant, Instant, bytes], now: Instant) -> Duration:
        """How much of a piece's airtime is still to come."""
        airtime = self._kind.airtime_us(len(piece[2]))
        return airtime - min(max(now - piece[0], 0), airtime)
