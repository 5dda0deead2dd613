# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""An index of leaves by hash: open addressing, eight bytes an entry, in segments that grow one at a time.

An entry holds half of the hash beside the leaf, so that growing and closing gaps look at nothing else. What was asked
for and what was found are compared by the caller.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    SEGMENTS = 64  # the topmost bits of a hash; one grows in 20 us at 100,000 subscriptions


cdef inline uint32_t place_of(uint64_t entry, uint32_t size) noexcept:
    """Where *entry*, half a hash and a leaf, belongs."""
    return <uint32_t>(((entry >> 32) * size) >> 32)


cdef class Index:
    """Leaves by hash; several may have the same."""

    def __cinit__(self):
        self.tables = <uint64_t**>PyMem_Calloc(SEGMENTS, sizeof(uint64_t*))
        self.sizes = <uint32_t*>PyMem_Calloc(SEGMENTS, sizeof(uint32_t))
        self.counts = <uint32_t*>PyMem_Calloc(SEGMENTS, sizeof(uint32_t))
        if not self.tables or not self.sizes or not self.counts:
            raise MemoryError

    def __dealloc__(self):
        cdef int segment
        if self.tables:
            for segment in range(SEGMENTS):
                PyMem_Free(self.tables[segment])
        PyMem_Free(self.tables)
        PyMem_Free(self.sizes)
        PyMem_Free(self.counts)

    cdef int64_t seek(self, uint64_t hashed, uint32_t* place) noexcept:
        """The next leaf with this hash, or -1.  place: where to go on; SEEK_START to begin."""
        cdef uint64_t* table = self.tables[hashed >> 58]
        cdef uint32_t size = self.sizes[hashed >> 58]
        cdef uint32_t at
        if not size:
            return -1
        at = place_of(hashed << 32, size) if place[0] == 0xFFFFFFFF else (place[0] + 1) % size
        while table[at]:
            if table[at] >> 32 == hashed & 0xFFFFFFFF:
                place[0] = at
                return <int64_t>(table[at] & 0xFFFFFFFF) - 1
            at += 1
            if at == size:
                at = 0
        return -1

    cdef int add(self, uint64_t hashed, uint32_t leaf) except -1:
        """Enter *leaf*."""
        cdef int segment = hashed >> 58
        if (self.counts[segment] + 1) * 5 > self.sizes[segment] * 4:
            self.grow(segment)
        put(self.tables[segment], self.sizes[segment], hashed << 32 | (leaf + 1))
        self.counts[segment] += 1
        return 0

    cdef int remove(self, uint64_t hashed, uint32_t leaf) except -1:
        """Take out *leaf*, which is here with this hash. Entries that were pushed along move back."""
        cdef uint64_t* table = self.tables[hashed >> 58]
        cdef uint32_t size = self.sizes[hashed >> 58]
        cdef uint32_t hole = place_of(hashed << 32, size)
        cdef uint32_t at, home
        while table[hole] != (hashed << 32 | (leaf + 1)):
            if not table[hole]:
                raise KeyError(leaf)
            hole += 1
            if hole == size:
                hole = 0
        at = hole
        while True:
            at += 1
            if at == size:
                at = 0
            if not table[at]:
                break
            home = place_of(table[at], size)
            if (at + size - home) % size >= (at + size - hole) % size:
                table[hole] = table[at]
                hole = at
        table[hole] = 0
        self.counts[hashed >> 58] -= 1
        return 0

    cdef int grow(self, int segment) except -1:
        cdef uint32_t size = self.sizes[segment]
        cdef uint32_t larger = size + size // 4 + 8
        cdef uint64_t* old = self.tables[segment]
        cdef uint64_t* table = <uint64_t*>PyMem_Calloc(larger, sizeof(uint64_t))
        cdef uint32_t at
        if not table:
            raise MemoryError
        for at in range(size):
            if old[at]:
                put(table, larger, old[at])
        self.tables[segment] = table
        self.sizes[segment] = larger
        PyMem_Free(old)
        return 0

    cdef size_t size(self) noexcept:
        """Bytes taken."""
        cdef int segment
        cdef size_t total = 0
        for segment in range(SEGMENTS):
            total += 16 + self.sizes[segment] * sizeof(uint64_t)
        return total


cdef void put(uint64_t* table, uint32_t size, uint64_t entry) noexcept:
    cdef uint32_t at = place_of(entry, size)
    while table[at]:
        at += 1
        if at == size:
            at = 0
    table[at] = entry
