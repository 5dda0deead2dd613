"""Which form of the matching engine runs here, and how to run the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from typing import NoReturn

VARIABLE = "EDGEBROKER_KERNEL"
"""`pure` in this environment variable keeps the engine from using its compiled form."""

_ENGINE = "edgebroker.matching"


def kernel() -> str:
    """`compiled` or `pure`: whether a compiled module of the engine has been imported."""
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith(_ENGINE)]
    return "compiled" if any(file and file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files) else "pure"


def restart_pure(arguments: Sequence[str]) -> NoReturn:
    """Become `edgebroker bench ARGUMENTS` with the pure engine.

    The engine is chosen when it is imported, so this needs a new interpreter. It finds packages where this one does.
    """
    path = os.pathsep.join(place or os.getcwd() for place in sys.path)
    environment = {**os.environ, VARIABLE: "pure", "PYTHONPATH": path}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-P", "-m", "edgebroker", "bench", *arguments], environment)
