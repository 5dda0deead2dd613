"""The header with which an event travels between gateways: who published it, what it still has to reach, which sessions
it belongs to.

The fields for relocation (`trace`) and dissemination (`group`, `view`) travel from the start, so that gateways which
do not use them pass them on.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import HeaderInvalid

LAYOUT: Final = Struct(">IIIBHHIHHHI")
"""31 bytes, most significant first; `published_ms` as its upper 16 and its lower 32 bits."""
HOSTED_BITS: Final = 22
"""A number that a gateway gives to a publisher or an advertisement: in front of it, the gateway's own."""
HOSTED_MAX: Final = (1 << HOSTED_BITS) - 1

PUBLISHED_MS_MAX: Final = (1 << 48) - 1


def hosted(gateway: int, number: int) -> int:
    """The number that means *number* (0 to HOSTED_MAX) of the gateway with number *gateway* everywhere."""
    return gateway << HOSTED_BITS | number


def host_of(hosted_number: int) -> int:
    """The number of the gateway that gave *hosted_number*."""
    return hosted_number >> HOSTED_BITS


@dataclass(slots=True)
class EventHeader:
    """What is known of an event besides topic and payload. Times are of the publisher's gateway.

    Nobody changes one. It is not frozen because one is made for each event that crosses a link, and that takes four
    times as long then, 2 us.
    """

    publisher: int
    """32 bits, `hosted`."""
    sequence: int
    """32 bits; counts the publisher's events from 1."""
    adv: int
    """32 bits, `hosted`: the advertisement under which it was published; 0: none."""
    hc: int
    """8 bits: the host cluster, that of the publisher."""
    civ: int = 0
    """16 bits, the cluster index vector: bit j is set if this copy still has to reach cluster j."""
    epoch: int = 0
    """16 bits: how often the host's search tree had changed."""
    trace: int = 0
    """32 bits: the trace session, named by the sequence of its first event; 0: none."""
    group: int = 0
    """16 bits: the dissemination group; 0: none."""
    view: int = 0
    """16 bits: the view of the group."""
    published_ms: int = 0
    """48 bits: milliseconds since 1970."""

    @property
    def eid(self) -> tuple[int, int]:
        """The event's identity: publisher and sequence."""
        return self.publisher, self.sequence

    @property
    def age(self) -> tuple[int, int, int]:
        """The greater one is of what is newer: of two of one millisecond the publishers' numbers decide, anywhere."""
        return self.published_ms, self.publisher, self.sequence

    def followed_ms(self, eid: tuple[int, int], ms: int) -> int:
        """When an event *eid* of *ms* that takes the place of this one counts as published, so that it is newer."""
        ms = max(ms, self.published_ms)
        return ms if (ms, *eid) > self.age else min(ms + 1, PUBLISHED_MS_MAX)

    def pack(self) -> bytes:
        """The header in `LAYOUT.size` bytes. Raises HeaderInvalid: a field has more bits than there are."""
        try:
            return LAYOUT.pack(
                self.publisher,
                self.sequence,
                self.adv,
                self.hc,
                self.civ,
                self.epoch,
                self.trace,
                self.group,
                self.view,
                self.published_ms >> 32,
                self.published_ms & 0xFFFF_FFFF,
            )
        except StructError as error:
            raise HeaderInvalid(f"a field of {self} is out of range: {error}") from None

    @classmethod
    def unpack(cls, data: bytes) -> EventHeader:
        """Read what `pack` wrote. Raises HeaderInvalid: too short or too long."""
        if len(data) != LAYOUT.size:
            raise HeaderInvalid(f"a header has {LAYOUT.size} bytes, not {len(data)}")
        *fields, high, low = LAYOUT.unpack(data)
        return cls(*(*fields, high << 32 | low))
