"""C types of forks."""

from libc.stdint cimport uint16_t, uint64_t

from edgebroker.matching.compiled.columns cimport Column
from edgebroker.matching.compiled.nodes cimport Node

cdef class Fork(Node):
    cdef object cut  # the cells, or None
    cdef Column column
    cdef int span_max
    cdef list nodes  # at the ends of value edges
    cdef list stars
    cdef uint64_t* edges
    cdef int edges_room
    cdef uint16_t* kids  # the indices of nodes, cell by cell
    cdef uint16_t starts[65]

    cdef unsigned long long edge_for(self, unsigned int leaf) except? 0xFFFFFFFFFFFFFFFF
    cdef Node child_at(self, unsigned long long edge)
    cdef int index_kids(self) except -1
