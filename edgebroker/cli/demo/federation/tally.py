"""What came to a gateway from its peers by both accounts: the kernel's and its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

HEADERS_BYTES: Final = 66
"""Of a frame with a segment of TCP: 14 of Ethernet, 20 of IPv4, 20 of TCP and 12 of its timestamps (RFC 7323)."""


class Tally(NamedTuple):
    """The kernel counted so many bytes in so many *frames*; the gateway says that it has *said* bytes.

    They differ by what came twice, by frames that are no segments (ARP), and by the last second of who was killed.
    """

    counted: int
    frames: int
    said: int

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """Of several gateways."""
        return cls(*map(sum, zip((0, 0, 0), *tallies, strict=True)))

    @property
    def payload(self) -> int:
        """What was counted, without the headers of frames."""
        return self.counted - HEADERS_BYTES * self.frames

    @property
    def is_possible(self) -> bool:
        """Nothing came to the gateway by another way than the one that was counted."""
        return self.said <= self.counted

    def __str__(self) -> str:
        more = f"{(self.payload - self.said) / self.said:+.1%}" if self.said else "-"
        return (
            f"{self.frames:,} frames, {self.counted:,} bytes; less {HEADERS_BYTES} of headers each {self.payload:,}"
            f" ({more} of the {self.said:,} that the gateways say)"
        )

    def as_object(self) -> dict[str, Any]:
        """For `--json`."""
        return {"bytes": self.counted, "frames": self.frames, "payload_bytes": self.payload, "said_bytes": self.said}
