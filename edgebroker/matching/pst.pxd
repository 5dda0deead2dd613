"""C types for pst.py: plain attributes without a dictionary."""

from edgebroker.matching.ends cimport End, Resolution

cdef class Pst:
    cdef readonly object kernel
    cdef readonly object leaves
    cdef readonly object topics
    cdef readonly list ends
    cdef readonly long long epoch
    cdef int _bucket_max
    cdef dict _plain
    cdef long long _filtered
    cdef dict _reordered
    cdef object _match
    cdef object _decide
    cdef object _topic_ends
