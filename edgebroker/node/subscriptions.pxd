# C types for subscriptions.py; the meaning is there.


cdef class Copy:
    cdef public object receiver
    cdef public tuple subscriptions
    cdef public str label
    cdef public int qos
    cdef public tuple identifiers
    cdef public bint has_no_local, retain_as_published
    cpdef without_own(self, str publisher)
