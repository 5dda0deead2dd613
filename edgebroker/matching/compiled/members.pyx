# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The members of a leaf that many subscriptions share."""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t


cdef class Members:
    """The members of a leaf that has, or had, several."""

    def __cinit__(self):
        self.links = {}
        self.counts = {}

    def __dealloc__(self):
        PyMem_Free(self.numbers)

    cdef int join(self, object number, int link) except -1:
        cdef Py_ssize_t used = len(self.links)
        if used == self.room:
            grown = <PyObject**>PyMem_Realloc(self.numbers, (used + used // 4 + 4) * sizeof(PyObject*))
            if not grown:
                raise MemoryError
            self.numbers = grown
            self.room = used + used // 4 + 4
        self.links[number] = link
        self.numbers[used] = <PyObject*>number
        self.counts[link] = self.counts.get(link, 0) + 1
        self.words[link >> 6] |= <uint64_t>1 << (link & 63)
        return 0

    cdef int leave(self, object number) except -1:
        cdef int link = self.links[number]
        cdef int left = self.counts[link] - 1
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t last = len(self.links) - 1
        while self.numbers[place] != <PyObject*>number and place < last:
            place += 1
        if self.numbers[place] != <PyObject*>number:  # an equal number, but another object
            place = 0
            while <object>self.numbers[place] != number:
                place += 1
        self.numbers[place] = self.numbers[last]
        del self.links[number]
        if left:
            self.counts[link] = left
        else:
            del self.counts[link]
            self.words[link >> 6] &= ~(<uint64_t>1 << (link & 63))
        return 0
