# C types for input_coalescing.py; the meaning is there.
cimport cython

cdef int NAPPED, PIECES_MAX, REST, TRIALS, TURNS


cdef class InputCoalescer:
    cdef long long _may_nap_from, _nap_us, _packets, _since, _unnapped_packets, _unnapped_us
    cdef int _judged, _turns, _worse
    cdef public long long nap_us
    cpdef observe_turn(self, long long packets, bint is_hurried, long long now)
    cdef _begin(self, int turns, long long now)
    cdef _judge(self, long long packets, long long elapsed_us, long long now)
