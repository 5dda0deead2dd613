"""Where the trees of a trial come from: which kernel, and how much they keep in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import pytest

from edgebroker.matching import content, reference
from edgebroker.matching.kernel import kernel
from edgebroker.matching.pst import Pst

from .cases import Case

Planting = Callable[[Case], Sequence[Pst]]
"""Makes new trees for a case, all empty."""

COMPILED: ModuleType | None = kernel if kernel.KIND == "compiled" else None
CRAMPED_MAX = 32
CRAMPED = {"CUT_FIRST": 4, "COLUMNS_MAX": 3, "SPLIT_GAIN_MIN": 0.95, "REPLANT_STEP": 2}
"""Instead of the constants in `edgebroker.matching.content` where buckets hold at most CRAMPED_MAX: these have columns,
some too few, divide whenever that gains anything, and are reordered in as many steps as a large tree."""


def one_tree(case: Case) -> Sequence[Pst]:
    """The matcher as this process runs it."""
    return (Pst(bucket_max=case.bucket_max),)


def twins(case: Case) -> Sequence[Pst]:
    """The matcher on both kernels."""
    return (Pst(reference, case.bucket_max), Pst(COMPILED, case.bucket_max))


@contextmanager
def growing(case: Case) -> Iterator[None]:
    """Trees that grow meanwhile grow as *case* asks."""
    with pytest.MonkeyPatch.context() as patch:
        if case.bucket_max <= CRAMPED_MAX:
            for name, number in CRAMPED.items():
                patch.setattr(content, name, number)
        yield
