"""Mistakes that a journal could have. The law of crashes must notice each of them."""

from __future__ import annotations

from typing import Any

import pytest

from edgebroker.storage.journal import format as format_module
from edgebroker.storage.journal import journal as journal_module
from edgebroker.storage.journal import segment_scan as segment_scan_module
from edgebroker.storage.journal import segments as segments_module
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.recovery import RecoveryPass, Salvage, recover
from edgebroker.storage.journal.recovery_report import RecoveryReport
from edgebroker.storage.journal.segment_scan import SegmentScan
from edgebroker.storage.journal.segments import Segments
from edgebroker.storage.journal.work import DiskWork, Fill, Remove, SyncControl, WriteControl

from . import trial


def never_syncs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_module, "Sync", lambda name: Fill(name, 0, 0))


def never_syncs_the_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segments_module, "SyncFolder", lambda: Remove("nothing"))


def has_one_salt(patch: pytest.MonkeyPatch) -> None:
    for module in (format_module, journal_module, segment_scan_module):
        patch.setattr(module, "salt_of", lambda store, sequence: 0)


def frees_too_early(patch: pytest.MonkeyPatch) -> None:
    retire = Segments.retire
    patch.setattr(Segments, "retire", lambda self, replay_from: retire(self, replay_from + 3))


def names_a_snapshot_that_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def rotate(self: Any, now: int) -> None:
        if self._is_snapshot_complete:
            self._rotates = True
            self.commit_by = min(self.commit_by, now)

    patch.setattr(Journal, "_rotate_if_synced", rotate)
    patch.setattr(
        Journal,
        "_next_replay_from",
        lambda self: self._snapshot_first if self._is_snapshot_complete else self.replay_from,
    )


def forgets_what_failed(patch: pytest.MonkeyPatch) -> None:
    fail = Journal._batch_failed

    def forgetting(self: Any, reason: str, now: int) -> None:
        self._in_flight = []
        fail(self, reason, now)

    patch.setattr(Journal, "_batch_failed", forgetting)


def believes_what_is_unproven(patch: pytest.MonkeyPatch) -> None:
    def believing(source: Any, apply: Any) -> RecoveryReport | None:
        found = recover(source, apply)
        if found is not None:
            found.unproven = []
        return found

    patch.setattr(trial, "recover", believing)


def lets_a_torn_segment_replace_the_one_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecoveryPass, "_begins_intact", lambda self, name, header: True)


def believes_every_length(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Salvage, "_count", lambda self, data, at, end, most: most)


def keeps_silent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecoveryPass, "_damage", lambda self, name, at, first, last, what, **more: None)


def names_the_newest_segment_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    batch = Journal._batch

    def early(self: Any) -> DiskWork:
        work = batch(self)
        control = tuple(one for one in work.operations if isinstance(one, WriteControl | SyncControl))
        rest = tuple(one for one in work.operations if one not in control)
        return DiskWork(work.purpose, control + rest, work.upto)

    patch.setattr(Journal, "_batch", early)


def never_names_the_newest_segment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_module, "SyncControl", lambda: Remove("nothing"))
    patch.setattr(journal_module, "WriteControl", lambda data: Remove("nothing"))


def never_syncs_the_control_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_module, "SyncControl", lambda: Remove("nothing"))


def takes_zeros_for_free_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentScan, "lost_newest", lambda self, lsn: None)


FAULTS = (
    never_syncs,
    never_syncs_the_folder,
    has_one_salt,
    frees_too_early,
    names_a_snapshot_that_is_not_synced,
    forgets_what_failed,
    believes_what_is_unproven,
    lets_a_torn_segment_replace_the_one_before,
    believes_every_length,
    keeps_silent,
    names_the_newest_segment_before_it_is_synced,
    never_names_the_newest_segment,
    never_syncs_the_control_file,
    takes_zeros_for_free_room,
)
