"""C types of the leaves, and of the event that is being looked at."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    LINK_WORDS_MAX = 16  # LINKS_MAX / 64

cdef enum ValueKind:
    IS_ABSENT
    IS_COMPOSITE
    IS_FALSE
    IS_TRUE
    IS_STRING
    IS_NUMBER

cdef struct Value:
    PyObject* object  # borrowed from the event
    double number  # the nearest float
    int32_t string  # UNKNOWN if no test names it
    uint32_t stamp  # the event it belongs to
    uint8_t kind
    uint8_t inside  # it lies between two floats

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

cdef struct Leaf:
    PyObject* members  # owned: nothing, the number of the only member, or Members
    uint32_t code  # where its tests are, in units of four bytes
    uint32_t home  # the number of its bucket, 0 if in none
    uint16_t units  # how long its code is
    uint16_t position  # in its bucket
    uint16_t link  # of the only member
    uint8_t several  # whether a member may have other leaves too
    uint8_t many  # whether members are Members

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

cdef class Members:
    cdef dict links  # number -> link
    cdef PyObject** numbers  # the keys, borrowed, for quick taking
    cdef Py_ssize_t room
    cdef dict counts  # link -> members
    cdef uint64_t words[LINK_WORDS_MAX]

    cdef int join(self, object number, int link) except -1
    cdef int leave(self, object number) except -1

cdef class NumberIndex:
    cdef uint32_t** tables
    cdef uint32_t* sizes
    cdef uint32_t* counts

cdef class Leaves:
    cdef readonly object names
    cdef readonly object strings
    cdef readonly object others
    cdef public long long steps
    cdef int link_words
    cdef Leaf* leaves
    cdef uint32_t leaves_used, leaves_room, leaves_free, leaves_live
    cdef uint32_t* pool
    cdef uint32_t pool_used, pool_room
    cdef uint32_t* pool_free  # by length: the first free stretch, linked through its first unit
    cdef NumberIndex index
    cdef dict scattered  # number -> its leaves, if it is not the only member of its only leaf
    cdef PyObject** homes  # borrowed: buckets by number
    cdef uint32_t homes_used, homes_room
    cdef list homes_free
    # the event that is being looked at
    cdef dict event
    cdef dict string_numbers
    cdef list name_values
    cdef Value* values
    cdef uint32_t values_room
    cdef uint32_t now
    cdef uint32_t* verdict_stamps
    cdef uint8_t* verdicts
    cdef uint32_t verdicts_room

    cdef int encode(self, object test, uint32_t* code) except -1
    cdef object decode(self, uint32_t* code)
    cdef uint32_t room_for(self, uint32_t units) except? 0xFFFFFFFF
    cdef int more_leaves(self) except -1
    cdef object members_bytes(self)
    cdef int index_add(self, object number, uint32_t leaf) except -1
    cdef int index_grow(self, int segment) except -1
    cdef int64_t index_place(self, object number, uint64_t hashed) except -2
    cdef int64_t index_find(self, object number) except -2
    cdef int index_remove(self, object number) except -1
    cdef int fill_string(self, Value* value, object text) except -1
    cdef int fill_large(self, Value* value, object number) except -1
    cdef uint32_t register(self, object bucket) except 0
    cdef void unregister(self, uint32_t number) noexcept
    cdef int links_into(self, uint32_t leaf, uint64_t* words) except -1
    cdef int look_at(self, object attributes) except -1
    cdef int fill(self, uint32_t attribute) except -1
    cdef int passes(self, uint32_t leaf) except -1
    cdef int other_passes(self, uint32_t test, Value* value) except -1

cdef inline Value* value_of(Leaves leaves, uint32_t attribute) except NULL:
    cdef Value* value = &leaves.values[attribute]
    if value.stamp != leaves.now:
        leaves.fill(attribute)
    return value
