"""The report of recovery: where the journal continues, and which files and records are damaged."""

from __future__ import annotations

from dataclasses import field

from edgebroker.dataclasses import dataclass


@dataclass(slots=True)
class JournalSegment:
    """One file in use, or found."""

    name: str
    bytes: int
    sequence: int
    first_lsn: int
    is_sound: bool = True
    """False: a write or a sync failed, so the file is not used again."""
    is_damaged: bool = False
    """Recovery found damage in it: it is set aside, not used again."""


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """Something that was on the disk once and is not intact any more. Everything else is used."""

    name: str
    """The file; empty if the file itself is missing."""
    offset: int
    first_lsn: int
    """The first and the last record that is lost, both 0 if none is."""
    last_lsn: int
    what: str

    @property
    def records(self) -> int:
        """How many records are lost."""
        return self.last_lsn - self.first_lsn + 1 if self.first_lsn else 0

    def __str__(self) -> str:
        where = f"{self.name or 'no file'} at {self.offset}" if self.name else "missing"
        lost = f"; lost are the records {self.first_lsn} to {self.last_lsn}" if self.first_lsn else ""
        return f"{where}: {self.what}{lost}"


@dataclass(frozen=True, slots=True)
class TornCommit:
    """The last commit of a run that did not end cleanly, as far as it did not reach the disk. Nobody was promised it.

    If bits were flipped in exactly this commit, it looks the same; so it is told.
    """

    name: str
    offset: int
    first_lsn: int
    """The first record that is not used; 0 if even that is not known."""
    last_lsn: int


@dataclass(slots=True)
class RecoveryReport:
    """A journal as recovery left it; the next run's `Journal` begins with it."""

    store: bytes
    """Empty if there are files and not one of them is a segment: then the next run begins a new journal."""
    lsn: int = 0
    """The last record that is used."""
    replay_from: int = 1
    """The first record that was given to the owner."""
    proven_from: int = 1
    """The last "replay from" that is known to have been synced: what lies before is not needed, whatever comes."""
    records: int = 0
    """How many records were given to the owner."""
    used_bytes: int = 0
    """Bytes of frames that were read."""
    snapshot_bytes: int = 0
    next_sequence: int = 1
    is_clean: bool = False
    """The last run ended on purpose, with everything on the disk."""
    unproven: list[bytes] = field(default_factory=list)
    """The records of the last commit: perhaps they were never synced, so the next run writes them again."""
    segments: list[JournalSegment] = field(default_factory=list)
    """In order of their sequence; the last ones may hold nothing of use."""
    free: dict[str, int] = field(default_factory=dict)
    """Files in which there is nothing but zeros, room that was made, and how long they are."""
    strangers: list[str] = field(default_factory=list)
    """Files that are no part of this journal: they are set aside."""
    damage: list[CorruptRange] = field(default_factory=list)
    torn: TornCommit | None = None
    quarantined: int = 0
    """Files that were set aside by earlier runs, if a world says so."""
