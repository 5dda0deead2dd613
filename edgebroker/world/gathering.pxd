# C types for gathering.py; the meaning is there.
cimport cython

cdef int NAPPED, PIECES_MAX, REST, TRIALS, TURNS


cdef class Gathering:
    cdef long long _may_nap_from, _nap_us, _packets, _since, _unnapped_packets, _unnapped_us
    cdef int _judged, _turns, _worse
    cdef public long long nap_us
    cpdef turned(self, long long packets, bint is_hurried, long long now)
    cdef _begin(self, int turns, long long now)
    cdef _judge(self, long long packets, long long elapsed_us, long long now)
