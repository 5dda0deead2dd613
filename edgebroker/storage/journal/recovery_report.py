"""The report of recovery: where the journal continues, and which files and records are damaged."""

from __future__ import annotations

from dataclasses import field

from edgebroker.dataclasses import dataclass


@dataclass(slots=True)
class JournalSegment:
    """A file with records."""

    name: str
    bytes: int
    sequence: int
    first_lsn: int
    is_sound: bool = True
    """False: a write or a sync failed, so the file is not reused."""
    is_damaged: bool = False
    """Whether recovery found damage in it: it is moved to quarantine, not reused."""


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """A range that was on the disk once and is not intact any more. All other records are used."""

    name: str
    """The file; empty if the file itself is missing."""
    offset: int
    first_lsn: int
    """The first and the last lost record, both 0 if none is lost."""
    last_lsn: int
    what: str
    is_open_ended: bool = False
    """Whether records behind `last_lsn` may be lost too: how many is not known."""

    @property
    def records(self) -> int:
        """The number of lost records."""
        return self.last_lsn - self.first_lsn + 1 if self.first_lsn else 0

    def __str__(self) -> str:
        where = f"{self.name or 'no file'} at {self.offset}" if self.name else "missing"
        return f"{where}: {self.what}{self.loss}"

    @property
    def loss(self) -> str:
        """The lost records as text that follows `what`; empty if none is lost."""
        if not self.first_lsn:
            return "; lost is what was written there" if self.is_open_ended else ""
        lost = f"; lost are the records {self.first_lsn} to {self.last_lsn}"
        return f"{lost}, and those that were written behind them" if self.is_open_ended else lost


@dataclass(frozen=True, slots=True)
class TornCommit:
    """The last commit of a run that did not end cleanly, as far as it did not reach the disk. None of it was
    acknowledged.

    Corruption of exactly this commit would look the same, so it is reported.
    """

    name: str
    offset: int
    first_lsn: int
    """The first record that is not used; 0 if that is unknown."""
    last_lsn: int


@dataclass(slots=True)
class RecoveryReport:
    """The state of a journal after recovery; the next run's `Journal` begins with it."""

    store: bytes
    """Empty if there are files but none of them is a segment: then the next run begins a new journal."""
    lsn: int = 0
    """The last record that is used."""
    replay_from: int = 1
    """The first record that was given to the owner."""
    proven_from: int = 1
    """The last "replay from" that is known to have been synced: earlier records are not needed in any case."""
    records: int = 0
    """The number of records given to the owner."""
    used_bytes: int = 0
    """Bytes of the frames that were read."""
    snapshot_bytes: int = 0
    next_sequence: int = 1
    is_clean: bool = False
    """Whether the last run ended cleanly, with everything on the disk."""
    unproven: list[bytes] = field(default_factory=list)
    """The records of the last commit, which may not have been synced, so the next run writes them again."""
    segments: list[JournalSegment] = field(default_factory=list)
    """In order of their sequence; the last ones may be empty."""
    free: dict[str, int] = field(default_factory=dict)
    """Files with only zeros, allocated in advance, and their sizes."""
    strangers: list[str] = field(default_factory=list)
    """Files that do not belong to this journal: they are moved to quarantine."""
    damage: list[CorruptRange] = field(default_factory=list)
    torn: TornCommit | None = None
    quarantined: int = 0
    """Files moved to quarantine by earlier runs, if the runtime sets it."""
