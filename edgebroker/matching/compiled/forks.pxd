"""C types of forks."""

from libc.stdint cimport uint16_t, uint64_t

from edgebroker.matching.compiled.columns cimport Column, cell_of
from edgebroker.matching.compiled.events cimport value_of
from edgebroker.matching.compiled.nodes cimport TreeNode

cdef class Fork(TreeNode):
    cdef object cut  # the cells, or None
    cdef Column column
    cdef int span_max
    cdef list nodes  # at the ends of value edges
    cdef list stars
    cdef uint64_t* edges
    cdef int edges_room
    cdef uint16_t* kids  # the indices of nodes, cell by cell; in the end all of them
    cdef uint16_t starts[66]

    cdef unsigned long long edge_for(self, unsigned int leaf) except? 0xFFFFFFFFFFFFFFFF
    cdef TreeNode child_at(self, unsigned long long edge)
    cdef int index_kids(self) except -1

cdef inline int branch(Fork fork, int* last, bint* doubtful) except -1:
    """Which kids the event that is looked at reaches: from the returned one on, before *last*.

    If its value lies between two floats, all of them, and what they say becomes *doubtful*: nothing there is settled.
    """
    cdef int cell = cell_of(&fork.column, value_of(fork.leaves.event, fork.column.attribute))
    if cell < 0:
        cell = fork.column.count
        doubtful[0] = True
    last[0] = fork.starts[cell + 1]
    return fork.starts[cell]
