"""C types of the leaves."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from edgebroker.matching.compiled.codes cimport Interning
from edgebroker.matching.compiled.events cimport Event
from edgebroker.matching.compiled.indexes cimport Index

cdef struct Leaf:
    PyObject* members  # owned: nothing, the number of the only member, or Members
    uint32_t code  # where its tests are, in units of four bytes
    uint32_t home  # the number of its bucket, 0 if in none
    uint16_t units  # how long its code is
    uint16_t position  # in its bucket
    uint16_t link  # of the only member
    uint8_t several  # whether a member may have other leaves too
    uint8_t many  # whether members are Members

cdef class Leaves:
    cdef readonly Interning interning
    cdef Event event
    cdef dict string_numbers
    cdef public long long steps
    cdef int link_words
    cdef int greatest_link
    cdef Leaf* leaves
    cdef uint32_t leaves_used, leaves_room, leaves_free, leaves_live
    cdef uint32_t* pool
    cdef uint32_t pool_used, pool_room
    cdef uint32_t* pool_free  # by length: the first free stretch, linked through its first unit
    cdef Index by_number  # leaves by their only member
    cdef Index by_code  # listed leaves by predicate and topic filter
    cdef dict scattered  # number -> its leaves, if it is not the only member of its only leaf
    cdef PyObject** homes  # borrowed: buckets by number
    cdef uint32_t homes_used, homes_room
    cdef list homes_free

    cdef uint32_t room_for(self, uint32_t units) except? 0xFFFFFFFF
    cdef int more_leaves(self) except -1
    cdef int64_t find(self, object number) except -2
    cdef int links_into(self, uint32_t leaf, uint64_t* words) except -1
    cdef uint32_t register(self, object bucket) except 0
    cdef void unregister(self, uint32_t number) noexcept

cdef inline int passes(Leaves leaves, uint32_t leaf) except -1:
    """Whether the event that is looked at passes every test of *leaf*."""
    cdef uint32_t* code = &leaves.pool[leaves.leaves[leaf].code]
    return leaves.event.passes(code, code + leaves.leaves[leaf].units)
