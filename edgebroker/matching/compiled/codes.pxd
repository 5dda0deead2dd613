"""The code of predicates: runs of units of four bytes.

A test is its head (attribute << 8 | kind << 4 | flags) and what it compares with. Equal predicates have equal code,
because names, strings and rare tests are interned.
"""

from libc.stdint cimport uint32_t

cdef enum TestKind:
    TESTS_NULL
    TESTS_NOT_NULL
    TESTS_BOOLEAN  # flags: ACCEPTS_FALSE, ACCEPTS_TRUE
    TESTS_RANGE  # one interval between floats; flags: HAS_LOW to HIGH_CLOSED; then a double for each bound
    TESTS_STRING  # one string; then its number
    TESTS_OTHER  # anything else; then the number of the ElementaryTest

cdef enum:
    ACCEPTS_FALSE = 1
    ACCEPTS_TRUE = 2
    HAS_LOW = 1
    HAS_HIGH = 2
    LOW_CLOSED = 4
    HIGH_CLOSED = 8
    TEST_UNITS_MAX = 5

cdef inline uint32_t attribute_of(uint32_t head) noexcept:
    return head >> 8

cdef inline int kind_of(uint32_t head) noexcept:
    return (head >> 4) & 15

cdef inline int flags_of(uint32_t head) noexcept:
    return head & 15

cdef inline int length_of(uint32_t head) noexcept:
    """Units that a test takes."""
    cdef int kind = (head >> 4) & 15
    if kind == TESTS_RANGE:
        return 1 + 2 * (head & HAS_LOW) + (head & HAS_HIGH)
    return 2 if kind >= TESTS_STRING else 1

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
