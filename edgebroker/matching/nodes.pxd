# C types for nodes.py; the meaning is there.
cimport cython

from edgebroker.matching.spans cimport Spans


cdef class Nodes:
    cdef readonly dict domains
    cdef readonly list ranks, stars, tables, spans, parents, labels, members, yeses, maybes, fans, free

    @cython.locals(table=dict, members=dict)
    cpdef Py_ssize_t new(self, Py_ssize_t rank) except -1
    cpdef release(self, Py_ssize_t node)
    @cython.locals(spans=Spans)
    cpdef Py_ssize_t child(self, Py_ssize_t node, label) except -1
    @cython.locals(spans=Spans)
    cpdef link(self, Py_ssize_t node, label, Py_ssize_t child)
    @cython.locals(spans=Spans, node=Py_ssize_t)
    cpdef unlink(self, Py_ssize_t child)
    @cython.locals(spans=Spans, child=Py_ssize_t)
    cpdef find(self, Py_ssize_t node, key, list found)
    cpdef bint is_bare(self, Py_ssize_t node) except -1
