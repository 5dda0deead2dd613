"""The constants of the tree's growth, the same for both kernels."""

from __future__ import annotations

from typing import Final

STAR: Final = 0
"""The set of cells of the `*` edge: its leaves do not test the attribute, or accept most of its values."""
BUCKET_LIMIT: Final = 4096
"""The most leaves in a bucket."""
CUT_FIRST: Final = 24
"""The least leaves of a bucket with columns. Fewer are tested one by one, about 10 ns each."""
SAMPLE_MAX: Final = 512
"""Leaves examined to choose columns and forks. Their quantiles are within a few hundredths of those of all leaves."""
COLUMNS_MAX: Final = 16
"""Columns of a bucket: the attributes that most of its leaves test. Tests of other attributes are verified."""
COLUMN_SHARE_MIN: Final = 16
"""An attribute has a column if at least one leaf in this many tests it."""
COLLAPSE_SHARE: Final = 4
"""A fork becomes a bucket again when it has fewer leaves than this fraction of a full bucket: 1 / COLLAPSE_SHARE."""
VISIT_SHARE: Final = 0.375
"""The cost of visiting one more bucket, in scans of a full one: finding eight cells takes about 100 ns, in which a
thousand leaves can be skipped.
"""
SPLIT_GAIN_MIN: Final = 0.75
"""A full bucket becomes a fork if searching that costs at most this fraction of searching two buckets."""
SPLIT_ATTRIBUTES_MAX: Final = 4
"""Attributes tried for a fork: those that most leaves test."""
SPLIT_CUTS: Final = (1, 3, 7)
"""Numbers of cuts tried for a fork on numbers with too many bounds for elementary cells."""
CAPACITY_WORDS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes of a bucket's rows, in words of 64 leaves."""
REPLANT_MARGIN: Final = 0.10
"""Hysteresis of the attribute order: the share of `*` at the root must exceed that of another attribute by this."""
REPLANT_STEP: Final = 32
"""Leaves moved in one step of a reordering, about 0.1 ms."""
REVIEW_SHARE: Final = 2
"""The order of a tree is reviewed after as many changes as it has leaves, and at least this many full buckets."""
