# C types for subscriptions.py; the meaning is there.
cimport cython


cdef class Subscriber:
    cdef public str client
    cdef public dict by_text
    cdef public long long chars
    cdef public bint is_gone


cdef class Subscription:
    cdef public object group, number, receiver
    cdef public Subscriber subscriber
    cdef public str client, text, label
    cdef public int qos, identifier
    cdef public bint no_local, retain_as_published
    cdef public long long matched
    cdef object _end
    cdef long long _events
    cdef bint _is_plain
    cdef Copy _alone
    cpdef begin(self, end)
    cpdef finish(self)
    cpdef tuple take_counts(self, dict before=*)
    cpdef Copy alone(self)


cdef class Copy:
    cdef public object receiver
    cdef public tuple subscriptions
    cdef public str label
    cdef public int qos
    cdef public tuple identifiers
    cdef public bint has_no_local, retain_as_published
    cpdef without_own(self, str publisher)


@cython.locals(several=dict, subscription=Subscription, client=str, copy=Copy)
cpdef reach(dict copies, list accepting)
