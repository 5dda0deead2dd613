"""Records in the bytes of a frame: the careful way around what is damaged."""

from __future__ import annotations

from edgebroker.limits import KIB, MIB

from .format import FRAME_BYTES, RECORD, RECORD_BYTES, SECTOR_BYTES
from .reading import find_row, read_records, skip_broken

SEARCH_BYTES_MAX = 64 * MIB
"""What all searches of one recovery may checksum: 0.1 s. Bytes made to look like records would take hours else."""
SEARCH_STEP_BYTES = 32
"""What it costs to look at one more place, in bytes that could be checksummed in that time."""
SEARCH_PLACES = 16 * KIB
"""So many are looked at together."""


class Salvage:
    """Searches behind damaged places. What they may cost is bounded over all of them."""

    def __init__(self) -> None:
        self._bytes_left = SEARCH_BYTES_MAX
        self._trusted = (0, 0)  # end and limit of the frame whose lengths were found to be right

    def behind(self, data: bytes, at: int, end: int, lsn: int, limit: int, salt: int) -> tuple[int, int]:
        """Where to go on behind the damaged record *lsn* at *at*, in a frame up to *end* whose last is *limit* - 1.

        Returns the LSN and the offset of the next record that is worth a try; *limit* and *end* if there is none.
        If the lengths from here on lead exactly to the end, they are right, and it is the next one that is intact. Else
        the LSN of an intact row of records that ends where the frame ends is counted from there.
        """
        if self._trusted == (end, limit) or self._count(data, at, end, limit - lsn) == limit - lsn:
            self._trusted = (end, limit)
            return skip_broken(data, at, end, lsn, limit, salt)
        last, most = end - RECORD_BYTES, limit - lsn - 1
        told = bytearray(end - at)
        for begin in range(at + 1, last, SEARCH_PLACES) if most else ():
            stop = min(begin + SEARCH_PLACES, last)
            self._bytes_left -= SEARCH_STEP_BYTES * (stop - begin)
            if self._bytes_left <= 0:
                break
            spot, count, self._bytes_left = find_row(data, begin, stop, end, most, salt, told, self._bytes_left)
            if count:
                return limit - count, spot
        return limit, end

    def _count(self, data: bytes, at: int, end: int, most: int) -> int:
        """How many records the lengths from *at* say there are, if they end at *end*; 0 if they do not."""
        count = 0
        while at < end and count < most:
            if at + RECORD_BYTES > end:
                return 0
            at += RECORD_BYTES + RECORD.unpack_from(data, at)[1]
            count += 1
        return count if at == end else 0

    def headless(self, data: bytes, at: int, end: int, lsn: int, limit: int, salt: int) -> list[bytes]:
        """Records from *lsn* to before *limit* between *at* and *end*, where no frame's head is intact.

        Those behind the first head are surely numbered from *lsn*. Those behind further heads only if no record is
        missing in all.
        """
        found: list[bytes] = []
        sure = 0
        while at < end and lsn < limit:
            begin = at + FRAME_BYTES
            lsn, behind = read_records(data, begin, end, lsn, limit, salt, found)
            if behind == begin:
                break
            sure = sure or len(found)
            at = behind + -behind % SECTOR_BYTES
        return found if lsn == limit else found[:sure]
