# C types for outbox.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport Entry


cdef class Allowance:
    cdef public long long bytes, bytes_max, messages, messages_max


cdef class Outbox:
    cdef public long long bytes_max, messages_max, dropped
    cdef public object policy
    cdef object _entries
    cdef long long _bytes
    cdef Allowance _allowance
    cdef public dict groups
    cdef dict _last
    @cython.locals(allowance=Allowance)
    cpdef bint has_room(self, Py_ssize_t size) except -1
    cpdef Entry superseded_by(self, Entry entry)
    cpdef Entry make_room(self, Entry entry)
    @cython.locals(allowance=Allowance)
    cpdef bint has_more(self, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef bint offer(self, Entry entry, bint is_promised=*) except -1
    cpdef restore(self, Entry entry)
    @cython.locals(entry=Entry)
    cpdef Entry take(self)
    cpdef clear(self)
    cdef _left(self, Entry entry)
