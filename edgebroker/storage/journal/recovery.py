"""Recovery: one pass over the segments gives every intact record to its owner, in order, once, and reports the rest.
Salvage finds records behind damaged bytes.

The order of writes decides what is damage. A frame is written when the one before it is synced, and a segment begins
when all of the one before it is synced. So everything with an intact frame or segment behind it was on the disk: if it
is not intact now, that is damage. Only the last frame of the last segment may be torn. The run that follows writes that
frame's records again in a new segment, so a segment is valid only up to the first record of the next one.
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
"""Bytes that all searches of one recovery may checksum: 0.1 s. Without it, bytes crafted to look like records would
take hours.
"""
SEARCH_STEP_BYTES = 32
"""The cost of examining one more offset, in bytes that could be checksummed in that time."""
SEARCH_PLACES = 16 * KIB
"""Offsets examined together."""


class Salvage:
    """Searches for records behind damage. Their total cost is bounded."""

    def __init__(self) -> None:
        self._bytes_left = SEARCH_BYTES_MAX
        self._trusted = (0, 0)  # end and limit of the frame whose lengths were verified

    def behind(self, data: bytes, at: int, end: int, lsn: int, limit: int, salt: int) -> tuple[int, int]:
        """Return the LSN and the offset of the next record to try behind the damaged record *lsn* at *at*, in a frame
        up to *end* whose last record is *limit* - 1; *limit* and *end* if there is none.

        If the lengths from here lead exactly to the end, they are right, and the result is the next intact record.
        Otherwise it is the first of a row of intact records that ends where the frame ends, numbered from there.
        """
        if self._trusted == (end, limit) or self._count(data, at, end, limit - lsn) == limit - lsn:
            self._trusted = (end, limit)
            return skip_broken(data, at, end, lsn, limit, salt)
        last, count_max = end - RECORD_BYTES, limit - lsn - 1
        states = bytearray(end - at)
        for begin in range(at + 1, last, SEARCH_PLACES) if count_max else ():
            stop = min(begin + SEARCH_PLACES, last)
            self._bytes_left -= SEARCH_STEP_BYTES * (stop - begin)
            if self._bytes_left <= 0:
                break
            offset, count, self._bytes_left = find_row(
                data, begin, stop, end, count_max, salt, states, self._bytes_left
            )
            if count:
                return limit - count, offset
        return limit, end

    def _count(self, data: bytes, at: int, end: int, count_max: int) -> int:
        """Return the number of records by the lengths from *at*, if they end at *end*; 0 if they do not."""
        count = 0
        while at < end and count < count_max:
            if at + RECORD_BYTES > end:
                return 0
            at += RECORD_BYTES + RECORD.unpack_from(data, at)[1]
            count += 1
        return count if at == end else 0

    def headless(self, data: bytes, at: int, end: int, lsn: int, limit: int, salt: int) -> list[bytes]:
        """Return records from *lsn* to before *limit* between *at* and *end*, where no frame's head is intact.

        Those behind the first head are certainly numbered from *lsn*; those behind further heads only if no record is
        missing.
        """
        found: list[bytes] = []
        numbered = 0
        while at < end and lsn < limit:
            begin = at + FRAME_BYTES
            lsn, behind = read_records(data, begin, end, lsn, limit, salt, found)
            if behind == begin:
                break
            numbered = numbered or len(found)
            at = behind + -behind % SECTOR_BYTES
        return found if lsn == limit else found[:numbered]


Apply: TypeAlias = Callable[[int, bytes], object]
"""Is called with the LSN and the bytes of a record."""
ApplyRow: TypeAlias = Callable[[int, list[bytes]], object]
"""Is called with the LSN of the first and the bytes of successive records, at most those of one segment."""
DAMAGE_MAX = 1_000
"""Ranges in a report; further ones are merged into the last."""


def recover(source: SegmentSource, apply: Apply) -> RecoveryReport | None:
    """Give every intact record to *apply*, in order. Returns None if there is no journal and no file that could have
    been one.

    Faults of the files are reported, not raised, except JournalDamaged for another version. Exceptions of *source* and
    *apply* propagate.
    """

    def apply_row(lsn: int, records: list[bytes]) -> None:
        for number, record in enumerate(records, lsn):
            apply(number, record)

    return recover_rows(source, apply_row)


def recover_rows(source: SegmentSource, apply_row: ApplyRow) -> RecoveryReport | None:
    """As `recover`, in rows: a call for each record would take longer than decoding it."""
    scan = SegmentScan(source)
    if not scan.segments:
        loss = scan.lost_newest(0)
        if loss is not None:
            scan.damage.append(loss)
        if not scan.strangers and not scan.damage:
            return None
        return RecoveryReport(b"", free=scan.free, strangers=scan.strangers, damage=scan.damage, torn=scan.torn)
    return RecoveryPass(source, scan, apply_row).run()


class RecoveryPass:
    """The pass over the segments."""

    def __init__(self, source: SegmentSource, scan: SegmentScan, apply_row: ApplyRow) -> None:
        headers = [header for _, header in scan.segments]
        if scan.control is not None:
            headers.append(scan.control.header)
        newest = max(headers, key=lambda header: header.replay_from)
        self.report = RecoveryReport(
            scan.store,
            replay_from=max(newest.replay_from, 1),
            snapshot_bytes=newest.snapshot_bytes,
            next_sequence=scan.last_sequence + 1,
            free=scan.free,
            strangers=scan.strangers,
            damage=scan.damage,
            torn=scan.torn,
        )
        self._source = source
        self._scan = scan
        self._segments = scan.segments
        self._apply_row = apply_row
        self._next = 0  # the next expected record; those before `replay_from` are skipped
        self._salvage = Salvage()
        self._data = ("", b"")

    def run(self) -> RecoveryReport:
        """Read all segments from `replay_from` on."""
        report, segments = self.report, self._segments
        tail = self._find_tail()
        for index, (name, header) in enumerate(segments):
            segment = JournalSegment(name, header.bytes, header.sequence, header.first_lsn)
            report.segments.append(segment)
            following = segments[index + 1][1].first_lsn if index + 1 < len(segments) else None
            if following is not None and following > header.first_lsn:
                self._mark_proven(header)
            if following is not None and following <= report.replay_from and index < tail:
                continue  # a snapshot has replaced it
            if following is not None and following <= header.first_lsn and index < tail:
                continue  # its first write failed; the next one has its records
            before = len(report.damage)
            self._read_segment(name, header, following, index >= tail)
            segment.is_damaged = any(damage.name == name for damage in report.damage[before:])
        report.lsn = max(self._next, report.replay_from) - 1
        self._compare_with_control()
        return report

    def _compare_with_control(self) -> None:
        """Report what was synced by the control file, and is not there."""
        report, control = self.report, self._scan.control
        if control is None:
            return
        newest, is_begun = "", False
        for name, header in self._segments:
            if header.sequence == control.header.sequence:
                newest, is_begun = name, self._begins_intact(name, header)
        loss = self._scan.lost_newest(report.lsn, newest, is_begun=is_begun)
        if loss is None:
            return
        torn = report.torn
        if torn is not None and (torn.name == loss.name or 0 < torn.first_lsn <= control.last_lsn):
            report.torn = None  # it was synced
        self._damage(loss.name, loss.offset, loss.first_lsn, loss.last_lsn, loss.what, is_open_ended=True)
        for segment in report.segments:
            segment.is_damaged = segment.is_damaged or segment.name == loss.name

    def _is_known_synced(self, sequence: int, end_lsn: int) -> bool:
        """Return whether the records before *end_lsn* in segment *sequence* were synced, by the control file.

        In earlier segments than the newest one these are all before its first: what is unproven is in it again.
        """
        control = self._scan.control
        if control is None or sequence > control.header.sequence:
            return False
        is_newest = sequence == control.header.sequence
        return end_lsn <= (control.last_lsn + 1 if is_newest else control.header.first_lsn)

    def _find_tail(self) -> int:
        """Return the first of the segments that may end in a torn frame.

        A segment replaces the unproven end of the one before it if its first frame is whole, or if it was synced, which
        a later segment that continues behind it proves.
        """
        segments = self._segments
        index = len(segments) - 1
        while index > 0 and not self._begins_intact(*segments[index]):
            index -= 1
            if segments[index][1].first_lsn < segments[index + 1][1].first_lsn:
                break
        return index

    def _begins_intact(self, name: str, header: SegmentHeader) -> bool:
        """Return whether the first frame of the segment is whole, or was synced."""
        data = self._read(name)
        head = decode_frame(data, FRAMES_AT, header.salt, header.sequence)
        if head is not None:
            begin, limit = FRAMES_AT + FRAME_BYTES, head.first_lsn + head.count
            lsn, _ = read_records(data, begin, begin + head.bytes, head.first_lsn, limit, header.salt, [])
            if lsn == limit or self._is_known_synced(header.sequence, limit):
                return True
        return find_frame(data, FRAMES_AT + SECTOR_BYTES, header.salt, header.sequence) is not None

    def _read(self, name: str) -> bytes:
        """Return the bytes of a file; the last one is cached."""
        if self._data[0] != name:
            self._data = name, self._source.read(name)
        return self._data[1]

    def _read_segment(self, name: str, header: SegmentHeader, following: int | None, is_tail: bool) -> None:
        """Read one segment; *following* is the first LSN of the next, None if this is the last.

        In a segment of the tail, records that the next ones repeat are read too, because those may not have them.
        """
        data = self._read(name)
        salt, sequence = header.salt, header.sequence
        if not self._next:
            self._next = min(header.first_lsn, self.report.replay_from)
        if header.replay_from:  # an intact header, not one derived from frames
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
                and not (head.count and self._is_known_synced(sequence, end_lsn))
            ):
                self._read_last_frame(name, data, at, head, salt)
                self.report.is_clean = following is None and bool(head.flags & CLEAN)
                at = len(data) if self._next < end_lsn else behind
                break
            self._read_frame(name, data, at, head, salt)
            at = behind
        if frames > 1:
            self._mark_proven(header)
        control = self._scan.control
        is_synced = frames > 1 or (control is not None and control.header.sequence == sequence)
        if is_synced and len(data) < header.bytes:  # its size was synced together with the first frame
            what = f"the file ends here, and had {header.bytes:,} bytes"
            self._damage(name, len(data), 0, 0, what, is_open_ended=True)
        if following is not None and self._next < following:
            self._read_headless(name, data, at, len(data), following, salt)
            at = len(data)
        if is_tail:
            self._read_torn(name, data, at, header)
            if not is_synced:
                return  # the commit that began the segment may be torn, the header with it
        for copy in bad_header_copies(data, header):
            self._damage(name, copy, 0, 0, "a copy of the header is damaged")

    def _mark_proven(self, header: SegmentHeader) -> None:
        """Record that the header is synced, because a frame follows the first one of this segment."""
        self.report.proven_from = max(self.report.proven_from, header.replay_from)

    # -- frames ---------------------------------------------------------------------------------------------------

    def _read_frame(self, name: str, data: bytes, at: int, head: FrameHead, salt: int) -> None:
        """Read a frame that was synced."""
        self._expect(head.first_lsn, name, at)
        self.report.used_bytes += after_frame(at, head) - at
        lsn, limit = head.first_lsn, head.first_lsn + head.count
        offset, end = at + FRAME_BYTES, at + FRAME_BYTES + head.bytes
        needed = max(self.report.replay_from, self._next)
        self._next = max(limit, self._next)
        if limit <= needed:
            return  # all of it lies before the snapshot, or was read already
        while True:
            first, records = lsn, list[bytes]()
            lsn, offset = read_records(data, offset, end, lsn, limit, salt, records)
            self._apply_needed(first, records, needed)
            if lsn == limit:
                break
            bad, bad_at = lsn, offset
            lsn, offset = self._salvage.behind(data, offset, end, lsn, limit, salt)
            if lsn > needed:
                self._damage(name, bad_at, max(bad, needed), lsn - 1, "the checksum is wrong")

    def _read_last_frame(self, name: str, data: bytes, at: int, head: FrameHead, salt: int) -> None:
        """Read a frame that may not have been synced, so the next run writes its records again."""
        self._expect(head.first_lsn, name, at)
        self.report.used_bytes += after_frame(at, head) - at
        limit = head.first_lsn + head.count
        end = at + FRAME_BYTES + head.bytes
        offset = self._read_unproven(data, at + FRAME_BYTES, end, head.first_lsn, limit, salt)
        if self._next < limit:
            self.report.torn = TornCommit(name, offset, self._next, limit - 1)

    def _read_torn(self, name: str, data: bytes, at: int, header: SegmentHeader) -> None:
        """Read the first records behind the last intact frame, where the head of a further frame may be damaged."""
        first = header.first_lsn if at == FRAMES_AT else self._next
        before = self._next
        offset = self._read_unproven(data, at + FRAME_BYTES, len(data), first, NUMBER_END, header.salt)
        # A segment begins with a frame. A further frame has the sequence of this use of the file, and the next LSN;
        # remnants of an earlier use have smaller ones.
        is_begun = at == FRAMES_AT
        if not is_begun and at + FRAME_BYTES <= len(data):
            _, _, sequence, lsn, _, _ = FRAME.unpack_from(data, at)
            is_begun = sequence == header.sequence or lsn == before
        if self._next > before or is_begun:
            self.report.torn = TornCommit(name, offset, self._next, 0)

    def _read_unproven(self, data: bytes, at: int, end: int, first: int, limit: int, salt: int) -> int:
        """Read records from *first* on, except those of the previous segment. Returns the offset behind them."""
        records: list[bytes] = []
        _, offset = read_records(data, at, end, first, limit, salt, records)
        records = records[self._next - first :]
        self.report.unproven += records
        self._apply_needed(self._next, records, self.report.replay_from)
        self._next += len(records)
        return offset

    def _read_headless(self, name: str, data: bytes, at: int, end: int, limit: int, salt: int) -> None:
        """Read records between *at* and *end*, where the heads of frames are damaged; the record behind them is
        *limit*.
        """
        if limit <= self._next:
            return
        records = self._salvage.headless(data, at, end, self._next, limit, salt)
        self._apply_needed(self._next, records, self.report.replay_from)
        self._next += len(records)
        self._damage(name, at, 0, 0, "the head of a frame is damaged")
        self._expect(limit, name, at)

    def _apply_needed(self, first: int, records: list[bytes], needed: int) -> None:
        """Give the owner those of *records*, which begin with *first*, that are numbered *needed* or more."""
        if first < needed:
            records = records[needed - first :]
            first = needed
        if records:
            self.report.records += len(records)
            self._apply_row(first, records)

    # -- the report -------------------------------------------------------------------------------------------------

    def _expect(self, lsn: int, name: str = "", at: int = 0) -> None:
        """Set the next record to *lsn*; report missing ones before it as lost."""
        if lsn > self._next:
            self._damage(name, at, self._next, lsn - 1, "nothing intact is there")
            self._next = lsn

    def _damage(self, name: str, at: int, first: int, last: int, what: str, *, is_open_ended: bool = False) -> None:
        if first and last < self.report.replay_from:
            return  # a snapshot has replaced it
        damage = self.report.damage
        if len(damage) >= DAMAGE_MAX:
            final = damage[-1]
            first, last = final.first_lsn or first, max(final.last_lsn, last)
            is_open_ended = is_open_ended or final.is_open_ended
            what = "more is damaged than can be listed"
            damage[-1] = CorruptRange(final.name, final.offset, first, last, what, is_open_ended)
        else:
            first = max(first, self.report.replay_from) if first else 0
            damage.append(CorruptRange(name, at, first, last, what, is_open_ended))
