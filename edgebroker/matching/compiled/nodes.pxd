"""C types of what forks and buckets have in common."""

from libc.stdint cimport uint64_t

from edgebroker.matching.compiled.leaves cimport Leaves

cdef class TreeNode:
    cdef readonly TreeNode parent
    cdef public int end
    cdef readonly unsigned long long edge
    cdef public long long count
    cdef readonly Leaves leaves
    cdef uint64_t* trits  # yes and maybe, word by word in turn
    cdef int words
    cdef bint is_fork

    cdef int widen(self, int words) except -1
    cdef bint take_over(self, uint64_t* yes, uint64_t* reach, int words) except -1

cdef inline uint64_t yes_at(TreeNode node, int word) noexcept:
    return node.trits[2 * word] if word < node.words else 0

cdef inline uint64_t maybe_at(TreeNode node, int word) noexcept:
    return node.trits[2 * word + 1] if word < node.words else 0
