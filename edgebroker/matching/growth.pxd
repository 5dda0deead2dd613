# C types for growth.py; the meaning is there.
cimport cython

from edgebroker.matching.nodes cimport Nodes


@cython.locals(at=Py_ssize_t)
cpdef walk(Nodes nodes, edge, path)
@cython.locals(ranks=list, next_=Py_ssize_t, node=Py_ssize_t)
cdef Py_ssize_t _station(Nodes nodes, Py_ssize_t at, label, Py_ssize_t rank) except -1
@cython.locals(at=Py_ssize_t)
cpdef Py_ssize_t leaf_at(Nodes nodes, edge) except -1
@cython.locals(members=dict)
cpdef enter(Nodes nodes, Py_ssize_t leaf, number, link)
