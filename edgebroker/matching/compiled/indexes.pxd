"""C types of the index."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef class Index:
    cdef uint64_t** tables
    cdef uint32_t* sizes
    cdef uint32_t* counts

    cdef int64_t seek(self, uint64_t hashed, uint32_t* place) noexcept
    cdef int add(self, uint64_t hashed, uint32_t leaf) except -1
    cdef int remove(self, uint64_t hashed, uint32_t leaf) except -1
    cdef int grow(self, int segment) except -1
    cdef size_t size(self) noexcept
