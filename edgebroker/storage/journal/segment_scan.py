"""The scan of all segment headers in a folder: which files are segments of one journal, and in which order."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from edgebroker.limits import KIB
from edgebroker.storage.journal.format import (
    CONTROL_FILE,
    FRAME,
    FRAMES_AT,
    SECTOR_BYTES,
    FrameHead,
    SegmentHeader,
    decode_control,
    decode_frame,
    decode_header,
    find_frame,
    marks,
    salt_of,
)
from edgebroker.storage.journal.recovery_report import CorruptRange, TornCommit

ZEROS = bytes(64 * KIB)


class SegmentSource(Protocol):
    """The files of a journal, provided by the runtime or a test."""

    def names(self) -> list[str]:
        """Return the files whose names end with `.ebj`."""

    def head(self, name: str) -> bytes:
        """Return the first FRAMES_AT bytes of a file, or as many as there are."""

    def read(self, name: str) -> bytes:
        """Return the whole file, but at most JOURNAL_SEGMENT_BYTES_MAX bytes of it."""

    def control(self) -> bytes:
        """Return the first FRAMES_AT bytes of the control file, or as many as there are."""


class SegmentScan:
    """The result of the scan. A file with damaged headers is identified by its frames."""

    def __init__(self, source: SegmentSource) -> None:
        self.segments: list[tuple[str, SegmentHeader]] = []
        """In order of their sequence."""
        self.free: dict[str, int] = {}
        """Files without content, and their sizes."""
        self.strangers: list[str] = []
        """Files that do not belong to this journal."""
        self.damage: list[CorruptRange] = []
        self.torn: TornCommit | None = None
        self.last_sequence = 0
        """The highest sequence found; none is used twice."""
        control_data = source.control()  # first: a gateway that runs writes it after the segment that it names
        self.control = decode_control(control_data)
        """The record of the control file; None if there is none, none is intact, or it is of another journal."""
        if self.control is None and not is_empty(control_data):
            self.damage.append(CorruptRange(CONTROL_FILE, 0, 0, 0, "it is damaged, and names no newest segment"))
        headers: dict[str, SegmentHeader] = {}
        headless: dict[str, bytes] = {}
        for name in sorted(source.names()):
            head = source.head(name)
            header = decode_header(head)
            if header is None:
                headless[name] = head
            else:
                headers[name] = header
        stores = Counter(header.store for header in headers.values())
        self.store = max(sorted(stores), key=lambda store: stores[store]) if stores else b""
        if self.control is not None:
            self.store = self.store or self.control.header.store
            if self.control.header.store != self.store:
                self.control = None
        if self.control is not None:
            self.last_sequence = self.control.header.sequence
        self._sequences: set[int] = set()
        for name, header in headers.items():
            if header.store != self.store:
                self._set_aside(name, "a segment of another journal")
            elif header.sequence in self._sequences:
                self._set_aside(name, f"segment {header.sequence} is there twice")
            else:
                self._add(name, header)
        for name, head in headless.items():
            self._scan_frames(name, head, source.read(name))
        self.segments.sort(key=lambda found: found[1].sequence)
        self.is_newest_missing = False
        """Whether neither the segment that the control file names nor a later one is there."""
        if self.control is not None and max(self._sequences, default=0) < self.control.header.sequence:
            self.is_newest_missing = True
            self._set_newest_aside(self.control.name)

    def _set_newest_aside(self, name: str) -> None:
        """Take *name*, the file of the segment that is missing, neither for free room nor for a torn commit, and let
        `lost_newest` alone report it.
        """
        self.damage = [damage for damage in self.damage if damage.name != name]
        if self.free.pop(name, None) is not None:
            self.strangers.append(name)
        if self.torn is not None and self.torn.name == name:
            self.torn = None

    def lost_newest(self, lsn: int, newest: str = "", *, is_begun: bool = False) -> CorruptRange | None:
        """Return the loss of what the control file names; None if nothing is lost.

        lsn: the last record that was found. newest: the file of the segment that the control file names. is_begun:
        whether the first commit is intact there: without it, records that earlier segments have too prove nothing.
        """
        control = self.control
        if control is None or not (self.is_newest_missing or lsn < control.last_lsn or (newest and not is_begun)):
            return None
        first, last = (lsn + 1, control.last_lsn) if lsn < control.last_lsn else (0, 0)
        sequence, name = control.header.sequence, control.name
        if not self.is_newest_missing:
            what = f"segment {sequence} has less than was synced"
            return CorruptRange(newest, FRAMES_AT if newest else 0, first, last, what, True)
        if name in self.strangers:
            what = f"of segment {sequence}, the newest one, no header and no frame is intact"
            return CorruptRange(name, 0, first, last, what, True)
        return CorruptRange("", 0, first, last, f"segment {sequence}, the newest one, was in {name} and is gone", True)

    def _add(self, name: str, header: SegmentHeader) -> None:
        self._sequences.add(header.sequence)
        self.last_sequence = max(self.last_sequence, header.sequence)
        self.segments.append((name, header))

    def _scan_frames(self, name: str, head: bytes, data: bytes) -> None:
        """Classify a file without an intact header: in allocation, the torn beginning of a segment, or a damaged
        segment.
        """
        if is_empty(data):
            self.free[name] = len(data)
            return
        found = self._newest_frame(data)
        if found is None:
            if any(head) or next(marks(data, FRAMES_AT + SECTOR_BYTES), None) is not None:
                self._set_aside(name, "no header and no frame is intact")
            else:  # the first commit into a new file, of which only a few sectors reached the disk
                self.strangers.append(name)
                self.torn = self.torn or TornCommit(name, 0, 0, 0)
            return
        at, frame = found
        salt = salt_of(self.store, frame.sequence)
        is_only = at == FRAMES_AT and find_frame(data, at + SECTOR_BYTES, salt, frame.sequence) is None
        if is_only and frame.sequence > self.last_sequence:  # the first commit, whose header did not reach the disk
            self.last_sequence = frame.sequence
            self.strangers.append(name)
            self.torn = TornCommit(name, at, frame.first_lsn, frame.first_lsn + frame.count - 1)
        elif frame.sequence in self._sequences:
            self._set_aside(name, f"no header, and segment {frame.sequence} is there already")
        else:
            size = max(len(data), FRAMES_AT + SECTOR_BYTES)
            self._add(name, SegmentHeader(self.store, frame.sequence, frame.first_lsn, size, 0))

    def _newest_frame(self, data: bytes) -> tuple[int, FrameHead] | None:
        """Return the first intact frame of the latest use of a file."""
        best: tuple[int, FrameHead] | None = None
        for at in marks(data, FRAMES_AT) if self.store else ():
            sequence = FRAME.unpack_from(data, at)[2]
            head = decode_frame(data, at, salt_of(self.store, sequence), sequence)
            if head is not None and (best is None or head.sequence > best[1].sequence):
                best = at, head
        return best

    def _set_aside(self, name: str, what: str) -> None:
        """Report the file *name*, which does not belong to the journal."""
        self.strangers.append(name)
        self.damage.append(CorruptRange(name, 0, 0, 0, what))


def is_empty(data: bytes) -> bool:
    """Return whether *data* contains only zeros. Takes 1 ms for 8 MiB; `any` would take 80 ms."""
    return all(data.startswith(ZEROS[: len(data) - at], at) for at in range(0, len(data), len(ZEROS)))
