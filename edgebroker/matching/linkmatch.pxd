# C types for linkmatch.py; the meaning is there.
cimport cython

from edgebroker.matching.nodes cimport Nodes
from edgebroker.matching.spans cimport Spans


@cython.locals(
    ranks=list, stars=list, tables=list, spans=list, yeses=list, maybes=list, stack=list, children=list,
    steps=Py_ssize_t, node=Py_ssize_t, wide=Spans, table=dict,
)
cpdef close_links(Nodes nodes, Py_ssize_t root, list keys, open_)
