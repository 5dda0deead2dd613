# C types for outbox.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport Entry


cdef class Allowance:
    cdef public long long bytes, bytes_max, messages, messages_max


cdef class Outbox:
    cdef public long long age_us, bytes_max, dropped, expiring, looks_at, messages_max
    cdef public object cause, policy
    cdef public bint is_live_first
    cdef object _entries
    cdef long long _bytes, _messages
    cdef Allowance _allowance
    cdef public dict dropped_by, groups
    cpdef count_dropped(self, cause, long long count)
    @cython.locals(allowance=Allowance)
    cpdef bint has_room(self, Py_ssize_t size) except -1
    @cython.locals(allowance=Allowance)
    cpdef bint could_hold(self, Py_ssize_t size) except -1
    cpdef bint refuses(self, Py_ssize_t size) except -1
    cpdef Entry superseded_by(self, Entry entry)
    cpdef Entry make_room(self, Entry entry)
    @cython.locals(allowance=Allowance)
    cpdef bint has_more(self, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef bint offer(self, Entry entry, bint is_promised=*) except -1
    cpdef restore(self, Entry entry)
    cpdef succeed(self, Outbox old)
    cpdef _fill(self, list entries)
    @cython.locals(allowance=Allowance)
    cpdef _came(self, Entry entry, Py_ssize_t size)
    @cython.locals(entry=Entry)
    cpdef Entry take(self)
    cpdef clear(self)
    cpdef resumed(self)
    @cython.locals(size=Py_ssize_t, allowance=Allowance)
    cpdef _left(self, Entry entry)
