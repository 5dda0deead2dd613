# C types for search.py; the meaning is there.
cimport cython

from edgebroker.matching.nodes cimport Nodes
from edgebroker.matching.spans cimport Spans


@cython.locals(
    ranks=list, stars=list, tables=list, spans=list, members=list, stack=list,
    visited=Py_ssize_t, node=Py_ssize_t, rank=Py_ssize_t, table=dict, wide=Spans,
)
cpdef Py_ssize_t collect(Nodes nodes, Py_ssize_t root, Py_ssize_t skipped, list keys, list found) except -1
