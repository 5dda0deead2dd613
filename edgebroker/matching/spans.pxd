# C types for spans.py; the meaning is there.
cimport cython

from edgebroker.matching.cells cimport Cells


cdef class Spans:
    cdef public Py_ssize_t some
    cdef readonly dict edges, several, patterns
    cdef readonly Cells numbers, strings

    cpdef find(self, key, list found)
    cdef _find_like(self, str text, list found)
