# C types for annotation.py; the meaning is there.
cimport cython

from edgebroker.matching.nodes cimport Nodes
from edgebroker.matching.spans cimport Spans


cpdef reannotate(Nodes nodes, Py_ssize_t node, lost=*)
@cython.locals(parent=Py_ssize_t)
cpdef reannotate_above(Nodes nodes, Py_ssize_t node, lost=*)
@cython.locals(star=Py_ssize_t, spans=Spans, table=dict)
cdef _combined(Nodes nodes, Py_ssize_t node)
@cython.locals(child=Py_ssize_t)
cdef _recount(Nodes nodes, Py_ssize_t node, lost)
