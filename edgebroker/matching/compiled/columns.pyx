# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Cells with C types: where a value lies, and which cells a test covers. `matching.cells` says what that means."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport INFINITY, nextafter
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from edgebroker.matching.compiled.codes cimport (
    ACCEPTS_FALSE,
    ACCEPTS_TRUE,
    HAS_HIGH,
    HAS_LOW,
    HIGH_CLOSED,
    LOW_CLOSED,
    TESTS_BOOLEAN,
    TESTS_NOT_NULL,
    TESTS_NULL,
    TESTS_RANGE,
    TESTS_STRING,
    Interning,
    bounds_of,
    flags_of,
    kind_of,
)


cdef int open_column(Column* column, object cells) except -1:
    """Make *column*, which holds nothing, the C form of *cells*."""
    cdef int cut
    cdef uint32_t slot
    cdef int32_t string
    memset(column, 0, sizeof(Column))
    column.attribute = cells.attribute
    column.count = cells.count
    column.false_cell = cells.false_cell
    column.true_cell = cells.true_cell
    column.other_string = cells.other_string
    column.first_string = cells.first_string
    column.first_number = cells.first_number
    column.shared = cells.strings_shared
    column.cuts_used = len(cells.cuts)
    if column.cuts_used:
        column.cuts = <double*>PyMem_Malloc(column.cuts_used * sizeof(double))
        if not column.cuts:
            raise MemoryError
        for cut in range(column.cuts_used):
            column.cuts[cut] = cells.cuts[cut]
    if cells.strings:
        column.strings = <int32_t*>PyMem_Malloc(2 * STRING_SLOTS * sizeof(int32_t))
        if not column.strings:
            raise MemoryError
        memset(column.strings, 0xFF, 2 * STRING_SLOTS * sizeof(int32_t))
        for cell, number in enumerate(cells.strings, cells.first_string):
            string = number
            slot = (<uint32_t>string * <uint32_t>0x9E3779B1) >> 26
            while column.strings[slot] >= 0:
                slot = (slot + 1) % STRING_SLOTS
            column.strings[slot] = string
            column.strings[STRING_SLOTS + slot] = cell
    return 0


cdef void close_column(Column* column) noexcept:
    PyMem_Free(column.cuts)
    PyMem_Free(column.strings)
    column.cuts = NULL
    column.strings = NULL


cdef size_t column_bytes(Column* column) noexcept:
    """Bytes taken beside the struct itself."""
    return column.cuts_used * sizeof(double) + (2 * STRING_SLOTS * sizeof(int32_t) if column.strings else 0)


cdef int cover(Column* column, object cells, Interning interning, uint32_t* test, Covered* covered) except -1:
    """The cells of *column* that *test* accepts.  cells: what the column was made from."""
    cdef uint32_t head = test[0]
    cdef int kind = kind_of(head)
    cdef int flags = flags_of(head)
    cdef int cell
    if kind >= TESTS_RANGE:
        cover_range(column, test, covered)
    elif kind == TESTS_STRING:
        cell = string_cell(column, test[1])
        covered.cells = <uint64_t>1 << cell
        covered.exact = not column.shared and cell != column.other_string
    elif kind == TESTS_NULL:
        covered.cells = 1
        covered.exact = 1
    elif kind == TESTS_NOT_NULL:
        covered.cells = ((<uint64_t>1 << column.count) - 1) & ~<uint64_t>1
        covered.exact = 1
    elif kind == TESTS_BOOLEAN:
        covered.cells = <uint64_t>1 << column.false_cell if flags & ACCEPTS_FALSE else 0
        covered.cells |= <uint64_t>1 << column.true_cell if flags & ACCEPTS_TRUE else 0
        covered.exact = column.false_cell != 1
    else:
        found = cells.cover(interning.others.values[test[1]], interning.strings.values, interning.string_numbers)
        covered.cells = found.cells
        covered.exact = found.exact
    return 0


cdef void cover_range(Column* column, uint32_t* test, Covered* covered) noexcept:
    cdef int flags = flags_of(test[0])
    cdef double low = 0.0
    cdef double high = 0.0
    cdef int first = 0
    cdef int last = column.cuts_used
    cdef int cut
    covered.exact = 1
    if column.first_number == 1:
        covered.cells = 2
        covered.exact = 0
        return
    bounds_of(test, &low, &high)
    if flags & HAS_LOW:
        if not flags & LOW_CLOSED:
            low = nextafter(low, INFINITY)
        for cut in range(column.cuts_used):
            first += column.cuts[cut] <= low
        covered.exact = first > 0 and column.cuts[first - 1] == low
    if flags & HAS_HIGH:
        if flags & HIGH_CLOSED:
            high = nextafter(high, INFINITY)
        last = 0
        for cut in range(column.cuts_used):
            last += column.cuts[cut] < high
        if not (last < column.cuts_used and column.cuts[last] == high):
            covered.exact = 0
    covered.cells = ((<uint64_t>1 << (last + 1)) - (<uint64_t>1 << first)) << column.first_number
