# C types for keeping.py; the meaning is there.


cdef class Keeping:
    cdef public object journal, wake, clock
    cdef public long long awaited, synced, last_session
    cdef public bint is_refusing, is_taking
    cdef public list waiting
    cdef object _timers, _sender
    cdef list _held
    cdef long long _taken
    cdef int _sender_packet_id
    cdef object _planned, _committed_at
