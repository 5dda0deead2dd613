"""C types of shared leaves' members."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

cdef enum:
    LINK_WORDS_MAX = 16  # LINKS_MAX / 64

cdef class Members:
    cdef dict links  # number -> link
    cdef PyObject** numbers  # the keys, borrowed, for quick taking
    cdef Py_ssize_t room
    cdef dict counts  # link -> members
    cdef uint64_t words[LINK_WORDS_MAX]

    cdef int join(self, object number, int link) except -1
    cdef int leave(self, object number) except -1
