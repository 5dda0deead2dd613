"""Section `log`."""

from __future__ import annotations

from pathlib import Path

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Folder, Whole


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The delivery log; none is written without `dir`."""

    dir: Path | None = key(None, Folder())
    sample_qos0: int = key(1, Whole(1, 1_000_000))
    segment_bytes_max: int = key(limits.LOG_SEGMENT_BYTES_MAX, Whole(64 * limits.KIB, 64 * limits.MIB))
    bytes_max: int = key(limits.LOG_BYTES_MAX, Whole(0, 1024 * 1024 * limits.MIB))
    segment_age_s_max: int = key(limits.LOG_SEGMENT_AGE_S_MAX, Whole(1, 7 * 24 * 3_600))
