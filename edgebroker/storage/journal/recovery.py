"""One pass over the segments: every record that is intact goes to its owner, in order, once; the rest is reported.

What decides is the count of records. The frames of a segment are written one after the other, each when the one
before is synced, and a segment begins when all of the one before it is. So whatever has an intact frame or segment
behind it was on the disk: if it is not intact now, that is damage. Only the last frame of the last segment may be
torn. And since the run that follows writes that frame's records again in a new segment, a segment counts only up to
the first record of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .format import (
    CLEAN,
    FRAME,
    FRAME_BYTES,
    FRAMES_AT,
    NUMBER_END,
    SECTOR_BYTES,
    FrameHead,
    Header,
    after_frame,
    bad_header_copies,
    decode_frame,
    find_frame,
)
from .found import Damage, Found, Segment, Torn
from .reading import read_records
from .salvage import Salvage
from .survey import Source, Survey

Apply: TypeAlias = Callable[[int, bytes], object]
"""Takes the LSN and the bytes of a record."""
ApplyRow: TypeAlias = Callable[[int, list[bytes]], object]
"""Takes the LSN of the first and the bytes of records that follow one another, at most those of a segment."""
DAMAGE_MAX = 1_000
"""Places in a report; a disk that bad is told as one."""


def recover(source: Source, apply: Apply) -> Found | None:
    """Give every intact record to *apply*, in order. None if there is no journal and nothing
    that could have been one.

    Nothing that is wrong with the files is raised, except JournalDamaged for another version; it is in the
    report. What *source* and *apply* raise goes through.
    """

    def apply_row(lsn: int, records: list[bytes]) -> None:
        for number, record in enumerate(records, lsn):
            apply(number, record)

    return recover_rows(source, apply_row)


def recover_rows(source: Source, apply_row: ApplyRow) -> Found | None:
    """`recover`, in rows: a call for each record takes longer than to read it."""
    survey = Survey(source)
    if not survey.segments:
        if not survey.strangers:
            return None
        return Found(b"", free=survey.free, strangers=survey.strangers, damage=survey.damage, torn=survey.torn)
    return Replay(source, survey, apply_row).run()


class Replay:
    """The pass itself."""

    def __init__(self, source: Source, survey: Survey, apply_row: ApplyRow) -> None:
        newest = max((header for _, header in survey.segments), key=lambda header: header.replay_from)
        self.found = Found(
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

    def run(self) -> Found:
        """Read everything from `replay_from` on."""
        found, segments = self.found, self._segments
        tail = self._find_tail()
        for index, (name, header) in enumerate(segments):
            segment = Segment(name, header.bytes, header.sequence, header.first_lsn)
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

    def _begins_well(self, name: str, header: Header) -> bool:
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

    def _read_segment(self, name: str, header: Header, following: int | None, is_tail: bool) -> None:
        """Read one segment; *following* is the first LSN of the next, None if this is the last.

        In a segment of the tail, what *following* and the next ones repeat is read too: perhaps they do not have it.
        """
        data = self._read(name)
        salt, sequence = header.salt, header.sequence
        if not self._next:
            self._next = min(header.first_lsn, self.found.replay_from)
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
                self.found.is_clean = following is None and bool(head.flags & CLEAN)
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

    def _proved(self, header: Header) -> None:
        """Something was written behind the first frame of this segment, so it was synced, and the header with it."""
        self.found.proven_from = max(self.found.proven_from, header.replay_from)

    # -- frames ---------------------------------------------------------------------------------------------------

    def _read_frame(self, name: str, data: bytes, at: int, head: FrameHead, salt: int) -> None:
        """A frame that was synced."""
        self._expect(head.first_lsn, name, at)
        self.found.used_bytes += after_frame(at, head) - at
        lsn, limit = head.first_lsn, head.first_lsn + head.count
        spot, end = at + FRAME_BYTES, at + FRAME_BYTES + head.bytes
        needed = max(self.found.replay_from, self._next)
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
        self.found.used_bytes += after_frame(at, head) - at
        limit = head.first_lsn + head.count
        end = at + FRAME_BYTES + head.bytes
        spot = self._read_unproven(data, at + FRAME_BYTES, end, head.first_lsn, limit, salt)
        if self._next < limit:
            self.found.torn = Torn(name, spot, self._next, limit - 1)

    def _read_torn(self, name: str, data: bytes, at: int, header: Header) -> None:
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
            self.found.torn = Torn(name, spot, self._next, 0)

    def _read_unproven(self, data: bytes, at: int, end: int, first: int, limit: int, salt: int) -> int:
        """Records from *first* on, except those that the segment before had already. Returns where they end."""
        records: list[bytes] = []
        _, spot = read_records(data, at, end, first, limit, salt, records)
        records = records[self._next - first :]
        self.found.unproven += records
        self._apply_needed(self._next, records, self.found.replay_from)
        self._next += len(records)
        return spot

    def _read_headless(self, name: str, data: bytes, at: int, end: int, limit: int, salt: int) -> None:
        """Between *at* and *end* the heads of frames are bad; the record behind them is *limit*."""
        if limit <= self._next:
            return
        records = self._salvage.headless(data, at, end, self._next, limit, salt)
        self._apply_needed(self._next, records, self.found.replay_from)
        self._next += len(records)
        self._damage(name, at, 0, 0, "the head of a frame is damaged")
        self._expect(limit, name, at)

    def _apply_needed(self, first: int, records: list[bytes], needed: int) -> None:
        """Give the owner those of *records*, the first of which is *first*, that are numbered *needed* or more."""
        if first < needed:
            records = records[needed - first :]
            first = needed
        if records:
            self.found.records += len(records)
            self._apply_row(first, records)

    # -- the report -------------------------------------------------------------------------------------------------

    def _expect(self, lsn: int, name: str = "", at: int = 0) -> None:
        """The next record is *lsn*: what is missing before it is lost."""
        if lsn > self._next:
            self._damage(name, at, self._next, lsn - 1, "nothing intact is there")
            self._next = lsn

    def _damage(self, name: str, at: int, first: int, last: int, what: str) -> None:
        if first and last < self.found.replay_from:
            return  # not needed since a snapshot
        damage = self.found.damage
        if len(damage) >= DAMAGE_MAX:
            final = damage[-1]
            first, last = final.first_lsn or first, max(final.last_lsn, last)
            damage[-1] = Damage(final.name, final.offset, first, last, "more is damaged than can be listed")
        else:
            damage.append(Damage(name, at, max(first, self.found.replay_from) if first else 0, last, what))
