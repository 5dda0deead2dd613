"""The kernel of this process: the compiled one if it was built, else its twin in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edgebroker.matching import reference as kernel
else:
    try:
        from edgebroker.matching import compiled as kernel
    except ImportError:
        from edgebroker.matching import reference as kernel

IS_COMPILED: Final = kernel.__name__.endswith(".compiled")
"""Whether this process has the compiled modules; there are all of them, or none."""

__all__ = ["kernel", "IS_COMPILED"]
