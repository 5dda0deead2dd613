"""What cannot be understood is kept beside what is begun in its place: somebody may want to look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DAMAGED: Final = ".damaged"


def set_aside(file: Path) -> str:
    """Move *file* out of the way, over one that was damaged before; what became of it."""
    target = file.with_name(file.name + DAMAGED)
    try:
        file.replace(target)
    except OSError as error:
        return f"it cannot be set aside, and will be written over: {error.strerror}"
    return f"it is set aside as {target.name}"
