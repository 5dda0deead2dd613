"""C types of buckets."""

from libc.stdint cimport uint32_t, uint64_t

from edgebroker.matching.compiled.columns cimport Column
from edgebroker.matching.compiled.nodes cimport TreeNode

cdef enum:
    WORDS_MAX = 64  # BUCKET_LIMIT / 64
    COLUMNS_ROOM = 16  # COLUMNS_MAX
    ROWS_ROOM = 17  # the live ones, and one row of each column
    LIVE = 0  # the rows before those of the columns
    LOOSE = 1
    CERTAIN = 2
    FIRST_ROW = 3

cdef class Bucket(TreeNode):
    cdef uint32_t number
    cdef uint32_t* slots  # leaf by position
    cdef uint64_t* rows
    cdef uint64_t* reach  # of 64 leaves: their links, one bit each, folded to one word; may name some that have left
    cdef int room  # words of a row
    cdef int rows_used
    cdef Column* columns
    cdef int columns_used
    cdef tuple cuts  # the cells of the columns
    cdef readonly int fresh

    cpdef int place(self, uint32_t leaf) except -1
    cdef int more_room(self) except -1
    cdef int reach_out(self, int position, uint32_t leaf) except -1
    cdef int enter(self, int position, uint32_t leaf) except -1
    cdef bint is_settled(self, uint32_t* test) except -1
    cdef int collect_links(self, int row, uint64_t* words, uint64_t* enough) except -1
    cdef int narrow(self, uint64_t* left) except -1
