# C types for outbox.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport QueueEntry


cdef class Allowance:
    cdef public long long bytes, bytes_max, messages, messages_max


cdef class SessionOutbox:
    cdef public long long age_us, bytes_max, dropped, expiring, next_expiry_check_at, messages_max
    cdef public object cause, policy
    cdef public bint is_live_first
    cdef object _entries
    cdef readonly list _head
    cdef public list pages
    cdef public long long paged_bytes, paged_messages
    cdef long long _bytes, _messages
    cdef Allowance _allowance
    cdef public dict dropped_by, groups
    cpdef count_dropped(self, cause, long long count)
    @cython.locals(allowance=Allowance)
    cpdef bint has_room(self, Py_ssize_t size) except -1
    @cython.locals(allowance=Allowance)
    cpdef bint could_hold(self, Py_ssize_t size) except -1
    cpdef bint is_ready(self) except -1
    cpdef bint refuses(self, Py_ssize_t size) except -1
    cpdef QueueEntry superseded_by(self, QueueEntry entry)
    cpdef QueueEntry make_room(self, QueueEntry entry)
    @cython.locals(allowance=Allowance)
    cpdef bint has_shared_room(self, Py_ssize_t size) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef bint enqueue(self, QueueEntry entry, bint is_promised=*) except -1
    cpdef restore(self, QueueEntry entry)
    cpdef move_from(self, SessionOutbox old)
    cpdef _fill(self, list entries)
    cpdef _came(self, QueueEntry entry, Py_ssize_t size)
    @cython.locals(entry=QueueEntry)
    cpdef QueueEntry dequeue(self)
    cpdef list clear(self)
    cpdef bint can_page(self) except -1
    cpdef QueueEntry _take_first_of_tail(self)
    cpdef add_page(self, page)
    cpdef remove_page(self, page)
    @cython.locals(entry=QueueEntry)
    cpdef page_in(self, list entries)
    cpdef restore_head(self, QueueEntry entry)
    cpdef resume(self)
    @cython.locals(size=Py_ssize_t)
    cpdef _left(self, QueueEntry entry)
