"""Surveys: how the leaves of a bucket use attributes, from which columns and forks are chosen."""

from __future__ import annotations

from edgebroker.matching.cells import Cells, high_cut, holes_of, low_cut, points_of
from edgebroker.matching.outcomes import AttributeUse
from edgebroker.matching.reference.buckets import Bucket, edge_of
from edgebroker.predicate import ValueType


def survey(bucket: Bucket) -> dict[int, AttributeUse]:
    """How each attribute is used in the sample, as far as the path to the bucket does not settle it."""
    counts: dict[int, int] = {}
    cuts: dict[int, list[float]] = {}
    strings: dict[int, dict[int, None]] = {}
    booleans: set[int] = set()
    for leaf in bucket.sample():
        for test in bucket.leaves.predicate(leaf):
            attribute = bucket.leaves.names.numbers[test.attribute]
            if bucket.is_settled(attribute, test):
                continue
            counts[attribute] = counts.get(attribute, 0) + 1
            if test.kind is ValueType.NUMBER:
                found = cuts.setdefault(attribute, [])
                for interval in test.intervals:
                    found += [cut for cut in (low_cut(interval)[0], high_cut(interval)[0]) if cut is not None]
            elif test.kind is ValueType.STRING:
                named = points_of(test) or holes_of(test) or ()
                numbers = bucket.leaves.strings.numbers
                strings.setdefault(attribute, {}).update(dict.fromkeys(numbers[text] for text in named))
            elif test.kind is ValueType.BOOLEAN:
                booleans.add(attribute)
    return {
        attribute: AttributeUse(
            tested,
            cuts.get(attribute),
            list(strings[attribute]) if attribute in strings else None,
            attribute in booleans,
        )
        for attribute, tested in counts.items()
    }


def spread(bucket: Bucket, cells: Cells) -> dict[int, int]:
    """How many leaves of the sample cover which set of *cells*; STAR: those that do not test the attribute."""
    sets: dict[int, int] = {}
    for leaf in bucket.sample():
        covered = edge_of(bucket.leaves, leaf, cells).cells
        sets[covered] = sets.get(covered, 0) + 1
    return sets
