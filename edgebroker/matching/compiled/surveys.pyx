# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Surveys with C types. The interface is that of the reference."""

from libc.math cimport INFINITY, nextafter
from libc.stdint cimport uint32_t

from edgebroker.matching.compiled.buckets cimport Bucket
from edgebroker.matching.compiled.codes cimport (
    HAS_HIGH,
    HAS_LOW,
    HIGH_CLOSED,
    LOW_CLOSED,
    TESTS_BOOLEAN,
    TESTS_OTHER,
    TESTS_RANGE,
    TESTS_STRING,
    attribute_of,
    bounds_of,
    flags_of,
    kind_of,
    length_of,
)
from edgebroker.matching.compiled.columns cimport Column, Covered, close_column, cover, open_column

from edgebroker.matching.cells import high_cut, holes_of, low_cut, points_of
from edgebroker.matching.outcomes import AttributeUse
from edgebroker.predicate import ValueType

cdef object NUMBER_KIND = ValueType.NUMBER


def survey(Bucket bucket):
    """How each attribute is used in the sample, as far as the path to the bucket does not settle it."""
    cdef uint32_t* at
    cdef uint32_t* end
    cdef uint32_t head, leaf
    cdef int kind, flags
    cdef double low = 0.0
    cdef double high = 0.0
    counts, cuts, strings, booleans = {}, {}, {}, set()
    for leaf in bucket.sample():
        at = &bucket.leaves.pool[bucket.leaves.leaves[leaf].code]
        end = at + bucket.leaves.leaves[leaf].units
        while at < end:
            head = at[0]
            if not bucket.is_settled(at):
                kind, flags = kind_of(head), flags_of(head)
                attribute = attribute_of(head)
                counts[attribute] = counts.get(attribute, 0) + 1
                if kind >= TESTS_RANGE:
                    found = cuts.get(attribute)
                    if found is None:
                        found = cuts[attribute] = []
                    bounds_of(at, &low, &high)
                    if flags & HAS_LOW:
                        found.append(low if flags & LOW_CLOSED else nextafter(low, INFINITY))
                    if flags & HAS_HIGH:
                        found.append(nextafter(high, INFINITY) if flags & HIGH_CLOSED else high)
                elif kind == TESTS_STRING:
                    strings.setdefault(attribute, {})[at[1]] = None
                elif kind == TESTS_BOOLEAN:
                    booleans.add(attribute)
                elif kind == TESTS_OTHER:
                    survey_other(bucket, bucket.leaves.interning.others.values[at[1]], attribute, cuts, strings)
            at += length_of(head)
    return {
        attribute: AttributeUse(
            tested,
            cuts.get(attribute),
            list(strings[attribute]) if attribute in strings else None,
            attribute in booleans,
        )
        for attribute, tested in counts.items()
    }


cdef int survey_other(Bucket bucket, object test, object attribute, dict cuts, dict strings) except -1:
    """Add what a rare test uses to *cuts* or *strings*."""
    if test.kind is NUMBER_KIND:
        found = cuts.setdefault(attribute, [])
        for interval in test.intervals:
            found += [cut for cut in (low_cut(interval)[0], high_cut(interval)[0]) if cut is not None]
    else:
        named = points_of(test) or holes_of(test) or ()
        numbers = bucket.leaves.string_numbers
        strings.setdefault(attribute, {}).update(dict.fromkeys([numbers[text] for text in named]))
    return 0


def spread(Bucket bucket, cells):
    """How many leaves of the sample cover which set of *cells*; STAR: those that do not test the attribute."""
    cdef Column column
    cdef Covered covered
    cdef uint32_t leaf
    cdef uint32_t* at
    cdef uint32_t* end
    sets = {}
    open_column(&column, cells)
    try:
        for leaf in bucket.sample():
            at = &bucket.leaves.pool[bucket.leaves.leaves[leaf].code]
            end = at + bucket.leaves.leaves[leaf].units
            covered.cells = 0
            while at < end:
                if attribute_of(at[0]) == column.attribute:
                    cover(&column, cells, bucket.leaves.interning, at, &covered)
                    break
                at += length_of(at[0])
            sets[covered.cells] = sets.get(covered.cells, 0) + 1
    finally:
        close_column(&column)
    return sets
