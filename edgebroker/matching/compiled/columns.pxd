"""The cells of one attribute with C types."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from edgebroker.matching.compiled.codes cimport Interning
from edgebroker.matching.compiled.events cimport IS_ABSENT, IS_FALSE, IS_NUMBER, IS_STRING, IS_TRUE, Value

cdef enum:
    INSIDE = -1  # instead of a cell: the value lies between two floats
    STRING_SLOTS = 64  # twice as many as strings with cells of their own
    SHARED_CELLS = 32

cdef struct Column:
    double* cuts
    int32_t* strings  # open addressing: STRING_SLOTS numbers, then their cells; NULL if no string has its own cell
    uint32_t attribute
    uint32_t first_row  # of a bucket's column
    uint16_t cuts_used
    uint8_t count
    uint8_t false_cell
    uint8_t true_cell
    uint8_t other_string
    uint8_t first_string
    uint8_t first_number
    uint8_t shared  # strings share cells

cdef struct Covered:
    uint64_t cells
    int exact

cdef int open_column(Column* column, object cells) except -1
cdef void close_column(Column* column) noexcept
cdef int cover(Column* column, object cells, Interning interning, uint32_t* test, Covered* covered) except -1
cdef size_t column_bytes(Column* column) noexcept

cdef inline int string_cell(Column* column, int32_t string) noexcept:
    cdef uint32_t slot
    if string < 0:
        return column.other_string
    if column.shared:
        return column.first_string + string % SHARED_CELLS
    if column.strings == NULL:
        return column.other_string
    slot = (<uint32_t>string * <uint32_t>0x9E3779B1) >> 26
    while column.strings[slot] != string:
        if column.strings[slot] < 0:
            return column.other_string
        slot = (slot + 1) % STRING_SLOTS
    return column.strings[STRING_SLOTS + slot]

cdef inline int cell_of(Column* column, Value* value) noexcept:
    """The cell of *value*, or INSIDE."""
    cdef int cut, cell
    cdef double number
    if value.kind == IS_NUMBER:
        if value.inside:
            return INSIDE
        number = value.number
        cell = 0
        for cut in range(column.cuts_used):  # 24 at most: adding up comparisons is faster than bisection
            cell += column.cuts[cut] <= number
        return column.first_number + cell
    if value.kind == IS_STRING:
        return string_cell(column, value.string)
    if value.kind == IS_ABSENT:
        return 0
    if value.kind == IS_TRUE:
        return column.true_cell
    return column.false_cell if value.kind == IS_FALSE else 1
