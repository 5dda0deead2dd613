# C types for keeping.py; the meaning is there.


cdef class Keeping:
    cdef public object journal, wake, clock
    cdef public long long awaited, synced, last_session
    cdef public bint is_full, is_refusing, is_taking, is_joined, is_together
    cdef public list waiting
    cdef object _timers, _sender
    cdef list _held, _settled
    cdef dict _promised, _ending
    cdef long long _taken
    cdef int _sender_packet_id
    cdef bint _gathers
    cdef object _groups
    cdef object _place, _planned, _committed_at, _settled_by
