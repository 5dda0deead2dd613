# C types for input_coalescing.py; the meaning is there.
cimport cython

cdef int BACKOFF, PACKETS_PER_TURN_MAX, SAMPLES_MAX, SLOWER_MAX, TURNS


cdef class InputCoalescer:
    cdef long long _base_packets, _base_us, _blocked_until, _delay_us, _packets, _since
    cdef int _samples, _slower, _turns
    cdef public long long delay_us
    cpdef observe_turn(self, long long packets, bint may_await_reply, long long now)
    cdef _begin(self, int turns, long long now)
    cdef _evaluate(self, long long packets, long long elapsed_us, long long now)
