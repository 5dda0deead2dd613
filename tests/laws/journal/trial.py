"""One life of a journal after another on a disk that misbehaves, and what must be true of every crash's image."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from edgebroker.storage.journal.format import FRAME, FRAME_BYTES, FRAME_MARK, MAGIC, RECORD_BYTES, SECTOR_BYTES
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import recover
from edgebroker.storage.journal.recovery_report import JournalSegment, RecoveryReport
from edgebroker.storage.journal.work import DiskWork, WorkPurpose, Write
from edgelab.simworld.disk import Disk, DiskFailed, DiskFile

STORE = bytes(range(16))
SMALL = JournalOptions(
    segment_bytes=8_192, batch_bytes=3_000, batch_records=20, snapshot_min_bytes=16_384, bytes_max=1 << 20
)
FULL = "No space left on device"


class Broken(AssertionError):
    """A law of the journal does not hold."""


@dataclass
class Place:
    """Where a record was written."""

    name: str
    begin: int
    end: int
    frame: int
    """Where its frame begins."""


@dataclass
class Trial:
    """The owner of a journal: it knows what it appended, what it was promised, and what was lost to flipped bits."""

    random: Random
    disk: Disk
    journal: Journal
    now: int = 0
    said: dict[int, bytes] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    """Records that an earlier recovery reported as damaged."""
    places: defaultdict[int, list[Place]] = field(default_factory=lambda: defaultdict(list))
    promised: int = 0
    """What an earlier life said was synced."""
    replay_from: int = 1
    """What a synced header says."""
    forgotten: dict[int, bytes] = field(default_factory=dict)
    """What the life before appended and the start of this one did not find. It was never promised. As long as this life
    has not synced anything it may come back: a file that was removed is there again, if only the process had died."""
    replaced: defaultdict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """What earlier lives appended and later ones replaced. If the segment with the replacement is lost, it is there."""
    newest: JournalSegment | None = None
    """The segment that this life began last, if the control file was synced after it."""
    taken_images: int = 0
    """Images of which the newest segment was taken away."""
    images: int = 0
    damaged_images: int = 0
    refusals: int = 0
    lives: int = 1
    snapshots: dict[int, int] = field(default_factory=dict)
    """First record of a complete snapshot -> its last."""
    state_first: int = 0
    stating: int = 0
    """Records of the snapshot being made that are still to come; 0 if none is."""

    # -- the life of a journal ----------------------------------------------------------------------------------

    def live(self, steps: int, crashes: int) -> None:
        """Do *steps* random things, and look at *crashes* images on average."""
        share = crashes / steps
        for _ in range(steps):
            self.step()
            if self.random.random() < share:
                self.crash_somehow()

    def step(self) -> None:
        journal, random = self.journal, self.random
        self.now += random.choice((0, 300, 2_000, 7_000, 60_000))
        for _ in range(random.choice((0, 1, 1, 2, 5))):
            self.append()
        if self.stating:
            for _ in range(min(self.stating - 1, 3)):
                self.append()
                self.stating -= 1
            if self.stating == 1:
                journal.end_snapshot(self.now)
                self.snapshots[self.state_first] = journal.lsn
                self.stating = 0
        elif journal.wants_snapshot:
            self.state_first = journal.begin_snapshot(self.now)
            assert self.state_first == journal.lsn + 1
            self.stating = random.choice((1, 4, 12))
        due = journal.due()
        if due is not None and due <= self.now:
            work = journal.next_work(self.now)
            if work is not None:
                self.carry_out(work)
        self.refusals += journal.is_refusing

    def append(self) -> None:
        size = self.random.choice((1, 10, 40, 56, 120, 120, 400, 1_500, 9_000 if self.random.random() < 0.05 else 30))
        record = struct.pack("<BQ", 7, self.journal.lsn + 1) + self.random.randbytes(size)
        lsn = self.journal.append(record, self.now)
        self.said[lsn] = record

    def carry_out(self, work: DiskWork) -> None:
        """Do what the journal wants; a crash may end its life at any point."""
        journal = self.journal
        for operation in work.operations:
            if self.random.random() < 0.02:
                self.crash_somehow()
            if self.journal is not journal:
                return
            if isinstance(operation, Write):
                self.locate(operation)
            try:
                self.disk.do(operation)
            except DiskFailed as error:
                if self.random.random() < 0.3:
                    self.crash_somehow()
                if self.journal is journal:
                    journal.failed(work, str(error), self.now)
                    assert journal.is_refusing or work.upto == 0
                return
        if self.random.random() < 0.02:
            self.crash_somehow()
        if self.journal is journal:
            before = journal.synced
            journal.done(work, self.now)
            assert journal.synced == (work.upto or before)
            if work.purpose is WorkPurpose.BATCH:  # the first of a life begins a segment
                self.forgotten = {}
                self.replay_from = journal.replay_from
                self.newest = None if self.disk.is_control_stale else journal.segments.live[-1]

    def locate(self, write: Write) -> None:
        """Note where the records of a frame lie."""
        at = write.data.index(FRAME_MARK) if write.data.startswith(MAGIC) else 0
        _, _, _, lsn, count, _ = FRAME.unpack_from(write.data, at)
        frame = write.offset + at
        spot = frame + FRAME_BYTES
        for number in range(lsn, lsn + count):
            end = spot + RECORD_BYTES + len(self.said[number])
            self.places[number].append(Place(write.name, spot, end, frame))
            spot = end

    # -- its crashes ----------------------------------------------------------------------------------------------

    def crash_somehow(self) -> None:
        """One image: after a kill or a power cut, perhaps with flipped bits; perhaps life goes on from there."""
        random = self.random
        image = self.disk.killed() if random.random() < 0.25 else self.disk.crash()
        flips: list[tuple[str, int]] = []
        if random.random() < 0.4 and image.files:
            for _ in range(random.choice((1, 1, 1, 2, 8))):
                name = random.choice(sorted(image.files))
                bits = 8 * len(image.files[name].platter)
                if bits:
                    flips.append((name, random.randrange(bits)))
                    image.flip(*flips[-1])
        is_taken = not flips and self.newest is not None and self.newest.name in image.files and random.random() < 0.1
        if is_taken and self.newest is not None:
            self.take(image, self.newest.name)
        given: dict[int, bytes] = {}
        found = self.check(image, given, flips, is_taken)
        if found is not None and random.random() < 0.08:
            self.go_on(image, found, given, bool(flips) or is_taken)

    def take(self, image: Disk, name: str) -> None:
        """Delete the file *name*, or leave an empty file, zeros, its header, or its header and zeros of it."""
        self.taken_images += 1
        file = image.files[name]
        size = len(file.cache)
        head = file.cache[: 2 * SECTOR_BYTES]
        content = self.random.choice((b"", bytes(size), head, head.ljust(size, b"\0")))
        image.files[name] = DiskFile(bytearray(content), bytearray(content))
        if self.random.random() < 0.3:
            del image.files[name]

    def check(
        self, image: Disk, given: dict[int, bytes], flips: list[tuple[str, int]], is_taken: bool = False
    ) -> RecoveryReport | None:
        """Whether what recovery says of *image*, whose records it adds to *given*, keeps every law."""
        self.images += 1
        order: list[int] = []

        def apply(lsn: int, record: bytes) -> None:
            order.append(lsn)
            given[lsn] = record

        found = recover(image, apply)
        synced = max(self.promised, self.journal.synced)
        if found is None:
            if flips or not synced:
                return None
            raise Broken("a journal with synced records is not found")
        if order != sorted(given):
            raise Broken(f"records come twice or out of order: {order}")
        for lsn, record in given.items():
            is_replaced = is_taken and record in self.replaced[lsn]
            if record not in (self.said.get(lsn), self.forgotten.get(lsn)) and not is_replaced:
                raise Broken(f"record {lsn} was never appended like that")
        if found.records != len(given) or (given and max(given) > found.lsn):
            raise Broken(f"the report says {found.records} records up to {found.lsn}, {len(given)} came")
        whole = found.replay_from == 1 or self.snapshots.get(found.replay_from, 1 << 63) <= found.lsn
        is_intact = not flips and not is_taken and not self.lost
        if is_intact and not whole:
            raise Broken(f"replay begins at {found.replay_from}, and there is no whole snapshot: {self.snapshots}")
        if not flips and not self.lost and found.store and found.replay_from < self.replay_from:
            raise Broken(f"replay begins at {found.replay_from}, a synced header says {self.replay_from}")
        missing = {lsn for lsn in range(found.replay_from, synced + 1) if lsn not in given}
        untold = {lsn for lsn in missing if not told(found, lsn)}
        if untold:
            raise Broken(f"records {sorted(untold)} were synced, and are neither there nor reported")
        self.damaged_images += bool(found.damage)
        last = max((segment.sequence for segment in found.segments), default=0)
        if is_taken and self.newest is not None and last <= self.newest.sequence and not found.damage:
            raise Broken(f"{self.newest.name}, the newest segment, was taken away, and nothing is reported")
        if is_intact and (found.damage or missing):
            raise Broken(f"nothing was flipped, and there is damage: {list(map(str, found.damage))}, {missing}")
        if len(flips) == 1 and not self.lost:
            self.check_one_flip(found, missing, *flips[0])
        return found

    def check_one_flip(self, found: RecoveryReport, missing: set[int], name: str, bit: int) -> None:
        """A single flipped bit costs the record it is in, and in a torn commit what follows it."""
        torn = found.torn.first_lsn if found.torn is not None else found.lsn + 1
        hit = {
            lsn: place.frame
            for lsn, places in self.places.items()
            for place in places
            if place.name == name and place.begin <= bit >> 3 < place.end
        }
        for lsn in missing - set(hit):
            behind = any(
                (place.name, place.frame) == (name, frame)
                for other, frame in hit.items()
                for place in self.places[lsn]
                if other < lsn
            )
            if not behind or lsn < torn:
                raise Broken(f"record {lsn} at {self.places[lsn]} is missing; bit {bit} of {name} is elsewhere")

    def go_on(self, image: Disk, found: RecoveryReport, given: dict[int, bytes], is_flipped: bool) -> None:
        """The next life begins on *image*, of which recovery has *given* the records."""
        self.lives += 1
        old = self.journal
        before = {**self.forgotten, **self.said, **given}
        self.forgotten = {lsn: record for lsn, record in before.items() if lsn > found.lsn}
        self.said = {lsn: record for lsn, record in before.items() if lsn <= found.lsn}
        for lsn, record in self.forgotten.items():
            self.replaced[lsn].add(record)
        for lsn in [lsn for lsn in self.places if lsn > found.lsn]:
            del self.places[lsn]
        self.replay_from = min(self.replay_from, found.replay_from)
        self.lost = {
            lsn for lsn in self.lost if lsn >= self.replay_from
        }  # a header that is not synced may be gone again
        self.lost |= {lsn for lsn in range(self.replay_from, found.lsn + 1) if told(found, lsn)}
        if found.damage or is_flipped:  # it may be told again until a snapshot makes the bad place superfluous
            self.lost.add(found.lsn)
        image.write_fails, image.sync_fails = self.disk.write_fails, self.disk.sync_fails
        self.disk = image
        self.stating = 0
        self.newest = None
        self.snapshots = {first: last for first, last in self.snapshots.items() if last <= found.lsn}
        self.promised = min(max(self.promised, old.synced), found.lsn)
        store = found.store or self.random.randbytes(len(STORE))
        self.journal = Journal(store, old.options, found, skip=self.random.randrange(1000))


def told(found: RecoveryReport, lsn: int) -> bool:
    """Whether the report says that record *lsn* is lost."""
    torn = found.torn
    return (
        not found.store
        or any(damage.first_lsn <= lsn <= damage.last_lsn for damage in found.damage)
        or (lsn > found.lsn and any(damage.is_open_ended for damage in found.damage))
        or (torn is not None and (torn.first_lsn == 0 or torn.first_lsn <= lsn))
    )


def trial_of(seed: int) -> Trial:
    """A new journal on a new disk; both depend on *seed* alone."""
    random = Random(seed)
    disk = Disk(random, random.choice((1 << 40, 1 << 40, 60_000)))
    disk.write_fails = random.choice((0.0, 0.0, 0.02))
    disk.sync_fails = random.choice((0.0, 0.0, 0.05))
    return Trial(random, disk, Journal(STORE, SMALL))
