"""How a Python of ours starts another one: with the packages of this one, and nothing from the folder it stands in."""

from __future__ import annotations

import sys
from pathlib import Path

import edgebroker


def python() -> list[str]:
    """The words before `-m MODULE`.

    `python -m` puts the current folder first: a `json.py` there, of whoever calls us, would be taken for Python's own.
    Only where that folder is where this package comes from (the source tree, not installed) it has to stay.
    """
    source = Path(edgebroker.__file__).resolve().parent.parent
    return [sys.executable] if Path.cwd() == source else [sys.executable, "-P"]
