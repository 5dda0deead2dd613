"""The numbers by which the tree grows, the same for both kernels."""

from __future__ import annotations

from typing import Final

STAR: Final = 0
"""The set of cells that stands for the `*` edge: what is there does not test the attribute, or accepts most of it."""
BUCKET_LIMIT: Final = 4096
"""Leaves that a bucket can hold at most."""
CUT_FIRST: Final = 24
"""Leaves from which a bucket has columns. Fewer are tested one by one, about 10 ns each."""
SAMPLE_MAX: Final = 512
"""Leaves looked at to choose columns and forks. Their quantiles lie within a few hundredths of those of all."""
COLUMNS_MAX: Final = 16
"""Columns of a bucket: the attributes that most of its leaves test. What others test is verified."""
COLUMN_SHARE_MIN: Final = 16
"""An attribute has a column if one leaf in so many tests it."""
COLLAPSE_SHARE: Final = 4
"""A fork with fewer than one leaf in so many of a full bucket becomes a bucket again."""
VISIT_SHARE: Final = 0.375
"""What visiting one more bucket costs, in scans of a full one: finding eight cells takes about 100 ns, in which a
thousand leaves are passed over."""
SPLIT_GAIN_MIN: Final = 0.75
"""A full bucket becomes a fork if searching it then costs at most this share of what two buckets would cost."""
SPLIT_ATTRIBUTES_MAX: Final = 4
"""Attributes tried for a fork: those that most leaves test."""
SPLIT_CUTS: Final = (1, 3, 7)
"""Cuts tried for a fork on numbers whose bounds are too many for elementary cells."""
CAPACITY_WORDS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes that a bucket's rows take, in words of 64 leaves."""
REPLANT_MARGIN: Final = 0.10
"""Hysteresis of the attribute order: how much larger the share of `*` at the root must be than at another attribute."""
REPLANT_STEP: Final = 32
"""Leaves moved in one step of a reordering, about 0.1 ms."""
REVIEW_SHARE: Final = 2
"""The order of a tree is looked at when as many changed as it has leaves, and at least so many full buckets."""
