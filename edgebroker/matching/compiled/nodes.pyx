# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What forks and buckets have in common, with C types."""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint64_t
from libc.string cimport memset

from edgebroker.matching.outcomes import TritVector


cdef class TreeNode:
    """A node of a content tree."""

    def __dealloc__(self):
        PyMem_Free(self.trits)

    @property
    def cells(self):
        """Of a fork: what it tells apart. None: nothing."""
        return None

    @property
    def annotation(self):
        """What is known of each link here [LM 2.4]."""
        yes = sum(int(yes_at(self, word)) << 64 * word for word in range(self.words))
        return TritVector(yes, sum(int(maybe_at(self, word)) << 64 * word for word in range(self.words)))

    cdef int widen(self, int words) except -1:
        """Have room for the trits of *words* words of links."""
        if words > self.words:
            grown = <uint64_t*>PyMem_Realloc(self.trits, 2 * words * sizeof(uint64_t))
            if not grown:
                raise MemoryError
            memset(&grown[2 * self.words], 0, 2 * (words - self.words) * sizeof(uint64_t))
            self.trits = grown
            self.words = words
        return 0

    cdef bint take_over(self, uint64_t* yes, uint64_t* reach, int words) except -1:
        """Make the annotation what *yes* and *reach* say; return whether it changed."""
        cdef int word
        cdef bint changed = False
        self.widen(words)
        for word in range(words):
            if self.trits[2 * word] != yes[word] or self.trits[2 * word + 1] != reach[word] & ~yes[word]:
                self.trits[2 * word] = yes[word]
                self.trits[2 * word + 1] = reach[word] & ~yes[word]
                changed = True
        return changed
