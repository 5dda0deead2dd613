"""Recovery: one pass over the segments gives every intact record to its owner, in order, once, and reports the
rest. Salvage finds records behind damaged bytes.

What decides is the count of records. The frames of a segment are written one after the other, each when the one
before is synced, and a segment begins when all of the one before it is. So whatever has an intact frame or segment
behind it was on the disk: if it is not intact now, that is damage. Only the last frame of the last segment may be
torn. And since the run that follows writes that frame's records again in a new segment, a segment counts only up to
the first record of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from edgebroker.limits import KIB, MIB
from edgebroker.storage.journal.format import (
    CLEAN,
    FRAME,
    FRAME_BYTES,
    FRAMES_AT,
    NUMBER_END,
    RECORD,
    RECORD_BYTES,
    SECTOR_BYTES,
    FrameHead,
    SegmentHeader,
    after_frame,
    bad_header_copies,
    decode_frame,
    find_frame,
)
from edgebroker.storage.journal.record_reader import find_row, read_records, skip_broken
from edgebroker.storage.journal.recovery_report import CorruptRange, JournalSegment, RecoveryReport, TornCommit
from edgebroker.storage.journal.segment_scan import SegmentScan, SegmentSource

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


Apply: TypeAlias = Callable[[int, bytes], object]
"""Takes the LSN and the bytes of a record."""
ApplyRow: TypeAlias = Callable[[int, list[bytes]], object]
"""Takes the LSN of the first and the bytes of records that follow one another, at most those of a segment."""
DAMAGE_MAX = 1_000
"""Places in a report; a disk that bad is told as one."""


def recover(source: SegmentSource, apply: Apply) -> RecoveryReport | None:
    """Give every intact record to *apply*, in order. None if there is no journal and nothing
    that could have been one.

    Nothing that is wrong with the files is raised, except JournalDamaged for another version; it is in the
    report. What *source* and *apply* raise goes through.
    """

    def apply_row(lsn: int, records: list[bytes]) -> None:
        for number, record in enumerate(records, lsn):
            apply(number, record)

    return recover_rows(source, apply_row)


def recover_rows(source: SegmentSource, apply_row: ApplyRow) -> RecoveryReport | None:
    """`recover`, in rows: a call for each record takes longer than to read it."""
    survey = SegmentScan(source)
    if not survey.segments:
        if not survey.strangers:
            return None
        return RecoveryReport(b"", free=survey.free, strangers=survey.strangers, damage=survey.damage, torn=survey.torn)
    return RecoveryPass(source, survey, apply_row).run()


class RecoveryPass:
    """The pass itself."""

    def __init__(self, source: SegmentSource, survey: SegmentScan, apply_row: ApplyRow) -> None:
        newest = max((header for _, header in survey.segments), key=lambda header: header.replay_from)
        self.report = RecoveryReport(
            survey.store,
            replay_from=max(newest.replay_from, 1),
            snapshot_bytes=newest.snapshot_bytes,
            next_sequence=survey.last_sequence + 1,
            free=survey.free,
            strangers=survey.strangers,
            damage=survey.damage,
            torn=survey.torn,
        )
        self._source = source
        self._segments = survey.segments
        self._apply_row = apply_row
        self._next = 0  # the record that is expected next; those before `replay_from` are passed over
        self._salvage = Salvage()
        self._data = ("", b"")

    def run(self) -> RecoveryReport:
        """Read everything from `replay_from` on."""
        found, segments = self.report, self._segments
        tail = self._find_tail()
        for index, (name, header) in enumerate(segments):
            segment = JournalSegment(name, header.bytes, header.sequence, header.first_lsn)
            found.segments.append(segment)
            following = segments[index + 1][1].first_lsn if index + 1 < len(segments) else None
            if following is not None and following > header.first_lsn:
                self._proved(header)
            if following is not None and following <= found.replay_from and index < tail:
                continue  # not needed since a snapshot
            if following is not None and following <= header.first_lsn and index < tail:
                continue  # begun and failed; the next one has its records
            before = len(found.damage)
            self._read_segment(name, header, following, index >= tail)
            segment.is_damaged = any(damage.name == name for damage in found.damage[before:])
        found.lsn = max(self._next, found.replay_from) - 1
        return found

    def _find_tail(self) -> int:
        """The first of the segments that may end in a torn frame.

        A segment takes the place of what is not proven in the one before it if its first frame is whole, or if it was
        synced, which a later segment that goes on behind it proves.
        """
        segments = self._segments
        index = len(segments) - 1
        while index > 0 and not self._begins_well(*segments[index]):
            index -= 1
            if segments[index][1].first_lsn < segments[index + 1][1].first_lsn:
                break
        return index

    def _begins_well(self, name: str, header: SegmentHeader) -> bool:
        data = self._read(name)
        head = decode_frame(data, FRAMES_AT, header.salt, header.sequence)
        if head is not None:
            begin, limit = FRAMES_AT + FRAME_BYTES, head.first_lsn + head.count
            lsn, _ = read_records(data, begin, begin + head.bytes, head.first_lsn, limit, header.salt, [])
            if lsn == limit:
                return True
        return find_frame(data, FRAMES_AT + SECTOR_BYTES, header.salt, header.sequence) is not None

    def _read(self, name: str) -> bytes:
        """The bytes of a file; those of the last one asked for are kept."""
        if self._data[0] != name:
            self._data = name, self._source.read(name)
        return self._data[1]

    def _read_segment(self, name: str, header: SegmentHeader, following: int | None, is_tail: bool) -> None:
        """Read one segment; *following* is the first LSN of the next, None if this is the last.

        In a segment of the tail, what *following* and the next ones repeat is read too: perhaps they do not have it.
        """
        data = self._read(name)
        salt, sequence = header.salt, header.sequence
        if not self._next:
            self._next = min(header.first_lsn, self.report.replay_from)
        if header.replay_from:  # its own word, not a guess from its frames
            self._expect(header.first_lsn)
        at, frames = FRAMES_AT, 0
        while True:
            head = decode_frame(data, at, salt, sequence)
            if head is None:
                found = find_frame(data, at + SECTOR_BYTES, salt, sequence, self._next)
                if found is None:
                    break
                self._read_headless(name, data, at, found[0], found[1].first_lsn, salt)
                at, head = found
            if following is not None and head.first_lsn >= following and not is_tail:
                break
            if head.first_lsn < self._next and not (is_tail and at == FRAMES_AT):
                self._damage(name, at, 0, 0, "the records are numbered backwards")
                at = len(data)
                break
            frames += 1
            behind = after_frame(at, head)
            end_lsn = head.first_lsn + head.count
            if (
                is_tail
                and find_frame(data, behind, salt, sequence, end_lsn) is None
                and not (following is not None and head.first_lsn < following)
            ):
                self._read_last_frame(name, data, at, head, salt)
                self.report.is_clean = following is None and bool(head.flags & CLEAN)
                at = len(data) if self._next < end_lsn else behind
                break
            self._read_frame(name, data, at, head, salt)
            at = behind
        if frames > 1:
            self._proved(header)
            if len(data) < header.bytes:  # all of its room was synced together with the first frame
                self._damage(name, len(data), 0, 0, f"the file ends here, and had {header.bytes:,} bytes")
        if following is not None and self._next < following:
            self._read_headless(name, data, at, len(data), following, salt)
            at = len(data)
        if is_tail:
            self._read_torn(name, data, at, header)
            if frames <= 1:
                return  # the commit that began the segment may be torn, the header with it
        for copy in bad_header_copies(data, header):
            self._damage(name, copy, 0, 0, "a copy of the header is damaged")

    def _proved(self, header: SegmentHeader) -> None:
        """Something was written behind the first frame of this segment, so it was synced, and the header with it."""
        self.report.proven_from = max(self.report.proven_from, header.replay_from)

    # -- frames ---------------------------------------------------------------------------------------------------

    def _read_frame(self, name: str, data: bytes, at: int, head: FrameHead, salt: int) -> None:
        """A frame that was synced."""
        self._expect(head.first_lsn, name, at)
        self.report.used_bytes += after_frame(at, head) - at
        lsn, limit = head.first_lsn, head.first_lsn + head.count
        spot, end = at + FRAME_BYTES, at + FRAME_BYTES + head.bytes
        needed = max(self.report.replay_from, self._next)
        self._next = max(limit, self._next)
        if limit <= needed:
            return  # all of it lies before the snapshot, or was given
        while True:
            first, records = lsn, list[bytes]()
            lsn, spot = read_records(data, spot, end, lsn, limit, salt, records)
            self._apply_needed(first, records, needed)
            if lsn == limit:
                break
            bad, bad_at = lsn, spot
            lsn, spot = self._salvage.behind(data, spot, end, lsn, limit, salt)
            if lsn > needed:
                self._damage(name, bad_at, max(bad, needed), lsn - 1, "the checksum is wrong")

    def _read_last_frame(self, name: str, data: bytes, at: int, head: FrameHead, salt: int) -> None:
        """A frame that perhaps was never synced, so the next run writes its records again."""
        self._expect(head.first_lsn, name, at)
        self.report.used_bytes += after_frame(at, head) - at
        limit = head.first_lsn + head.count
        end = at + FRAME_BYTES + head.bytes
        spot = self._read_unproven(data, at + FRAME_BYTES, end, head.first_lsn, limit, salt)
        if self._next < limit:
            self.report.torn = TornCommit(name, spot, self._next, limit - 1)

    def _read_torn(self, name: str, data: bytes, at: int, header: SegmentHeader) -> None:
        """Behind the last intact frame: if the head of one more is bad, its first records may be good."""
        first = header.first_lsn if at == FRAMES_AT else self._next
        before = self._next
        spot = self._read_unproven(data, at + FRAME_BYTES, len(data), first, NUMBER_END, header.salt)
        # A segment begins with a frame. If one more was begun, its sequence is that of this life of the file, and its
        # LSN is the next; an earlier life has smaller ones.
        is_begun = at == FRAMES_AT
        if not is_begun and at + FRAME_BYTES <= len(data):
            _, _, sequence, lsn, _, _ = FRAME.unpack_from(data, at)
            is_begun = sequence == header.sequence or lsn == before
        if self._next > before or is_begun:
            self.report.torn = TornCommit(name, spot, self._next, 0)

    def _read_unproven(self, data: bytes, at: int, end: int, first: int, limit: int, salt: int) -> int:
        """Records from *first* on, except those that the segment before had already. Returns where they end."""
        records: list[bytes] = []
        _, spot = read_records(data, at, end, first, limit, salt, records)
        records = records[self._next - first :]
        self.report.unproven += records
        self._apply_needed(self._next, records, self.report.replay_from)
        self._next += len(records)
        return spot

    def _read_headless(self, name: str, data: bytes, at: int, end: int, limit: int, salt: int) -> None:
        """Between *at* and *end* the heads of frames are bad; the record behind them is *limit*."""
        if limit <= self._next:
            return
        records = self._salvage.headless(data, at, end, self._next, limit, salt)
        self._apply_needed(self._next, records, self.report.replay_from)
        self._next += len(records)
        self._damage(name, at, 0, 0, "the head of a frame is damaged")
        self._expect(limit, name, at)

    def _apply_needed(self, first: int, records: list[bytes], needed: int) -> None:
        """Give the owner those of *records*, the first of which is *first*, that are numbered *needed* or more."""
        if first < needed:
            records = records[needed - first :]
            first = needed
        if records:
            self.report.records += len(records)
            self._apply_row(first, records)

    # -- the report -------------------------------------------------------------------------------------------------

    def _expect(self, lsn: int, name: str = "", at: int = 0) -> None:
        """The next record is *lsn*: what is missing before it is lost."""
        if lsn > self._next:
            self._damage(name, at, self._next, lsn - 1, "nothing intact is there")
            self._next = lsn

    def _damage(self, name: str, at: int, first: int, last: int, what: str) -> None:
        if first and last < self.report.replay_from:
            return  # not needed since a snapshot
        damage = self.report.damage
        if len(damage) >= DAMAGE_MAX:
            final = damage[-1]
            first, last = final.first_lsn or first, max(final.last_lsn, last)
            damage[-1] = CorruptRange(final.name, final.offset, first, last, "more is damaged than can be listed")
        else:
            damage.append(CorruptRange(name, at, max(first, self.report.replay_from) if first else 0, last, what))
