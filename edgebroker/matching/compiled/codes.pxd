"""The code of predicates: runs of units of four bytes.

A test is its head (attribute << 8 | kind << 4 | flags) and what it compares with. Equal predicates have equal code,
because names, strings and rare tests are interned.
"""

from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static const double edgebroker_divisors[] = {1.0, 10.0, 100.0, 1000.0, 10000.0};
    """
    const double* DIVISORS "edgebroker_divisors"

cdef enum TestKind:
    TESTS_NULL
    TESTS_NOT_NULL
    TESTS_BOOLEAN  # flags: ACCEPTS_FALSE, ACCEPTS_TRUE
    TESTS_STRING  # one string; then its number
    TESTS_OTHER  # anything else; then the number of the ElementaryTest
    TESTS_RANGE  # one interval between floats; flags: HAS_LOW to HIGH_CLOSED; then a double for each bound
    TESTS_SHORT  # and the next four: the same, then for each bound a signed unit, to be divided by 1, 10, ... 10,000

cdef enum:
    ACCEPTS_FALSE = 1
    ACCEPTS_TRUE = 2
    HAS_LOW = 1
    HAS_HIGH = 2
    LOW_CLOSED = 4
    HIGH_CLOSED = 8
    TEST_UNITS_MAX = 5
    SCALES = 5  # decimals that a short range may have, and none

cdef inline uint32_t attribute_of(uint32_t head) noexcept:
    return head >> 8

cdef inline int kind_of(uint32_t head) noexcept:
    return (head >> 4) & 15

cdef inline int flags_of(uint32_t head) noexcept:
    return head & 15

cdef inline int length_of(uint32_t head) noexcept:
    """Units that a test takes."""
    cdef int kind = (head >> 4) & 15
    if kind < TESTS_RANGE:
        return 2 if kind >= TESTS_STRING else 1
    if kind == TESTS_RANGE:
        return 1 + 2 * (head & HAS_LOW) + (head & HAS_HIGH)
    return 1 + (head & HAS_LOW) + ((head & HAS_HIGH) >> 1)

cdef inline void bounds_of(uint32_t* test, double* low, double* high) noexcept:
    """Read those bounds of a range that it has."""
    cdef uint32_t head = test[0]
    cdef int kind = (head >> 4) & 15
    cdef double divisor
    if kind == TESTS_RANGE:
        if head & HAS_LOW:
            memcpy(low, test + 1, 8)
        if head & HAS_HIGH:
            memcpy(high, test + 1 + 2 * (head & HAS_LOW), 8)
        return
    divisor = DIVISORS[kind - TESTS_SHORT]
    if head & HAS_LOW:
        low[0] = <int32_t>test[1] / divisor
    if head & HAS_HIGH:
        high[0] = <int32_t>test[1 + (head & HAS_LOW)] / divisor

cdef class Interning:
    cdef readonly object names
    cdef readonly object strings
    cdef readonly object others
    cdef dict name_numbers
    cdef list name_uses
    cdef dict string_numbers
    cdef list string_uses

    cdef uint32_t take_name(self, object name) except? 0xFFFFFFFF
    cdef uint32_t take_string(self, object text) except? 0xFFFFFFFF
    cdef int encode(self, object test, uint32_t* code) except -1
    cdef object decode(self, uint32_t* code)
    cdef int release(self, uint32_t* code) except -1
