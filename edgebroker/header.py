"""The header of an event on its way between gateways: its publisher, the clusters that it still has to reach, the
sessions that it belongs to.

The fields for relocation (`trace`) and dissemination (`group`, `view`) are part of the format from the start, so that
gateways that do not use them forward them unchanged.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import HeaderInvalid

LAYOUT: Final = Struct(">IIIBHHIHHHI")
"""31 bytes in network byte order; `published_ms` is split into its upper 16 and its lower 32 bits."""
HOSTED_BITS: Final = 22
"""The bits of the number that a gateway gives to a publisher or an advertisement. The gateway's own number stands in
front of them.
"""
HOSTED_MAX: Final = (1 << HOSTED_BITS) - 1

PUBLISHED_MS_MAX: Final = (1 << 48) - 1


def hosted(gateway: int, number: int) -> int:
    """Return the federation-wide id of publisher or advertisement *number* (0 to HOSTED_MAX) of gateway *gateway*."""
    return gateway << HOSTED_BITS | number


def host_of(hosted_number: int) -> int:
    """Return the number of the gateway that allocated *hosted_number*."""
    return hosted_number >> HOSTED_BITS


@dataclass(slots=True)
class EventHeader:
    """All that a gateway knows about an event besides topic and payload. Times are those of the publisher's gateway.

    Treat a header as immutable. It is not declared frozen because one is created for each event that crosses a link,
    and creating a frozen one takes four times as long (2 us).
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
        """The sort key by age: the newer event has the greater one. Within one millisecond the publishers' numbers
        decide, so that all gateways agree.
        """
        return self.published_ms, self.publisher, self.sequence

    def followed_ms(self, eid: tuple[int, int], ms: int) -> int:
        """Return the publication time, in milliseconds, of an event *eid* that replaces this one: *ms*, or later if
        needed so that the replacement counts as newer.
        """
        ms = max(ms, self.published_ms)
        return ms if (ms, *eid) > self.age else min(ms + 1, PUBLISHED_MS_MAX)

    def pack(self) -> bytes:
        """Return the header as `LAYOUT.size` bytes. Raises HeaderInvalid if a field needs more bits than the layout
        has.
        """
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
        """Read the output of `pack`. Raises HeaderInvalid if *data* is too short or too long."""
        if len(data) != LAYOUT.size:
            raise HeaderInvalid(f"a header has {LAYOUT.size} bytes, not {len(data)}")
        *fields, high, low = LAYOUT.unpack(data)
        return cls(*(*fields, high << 32 | low))
