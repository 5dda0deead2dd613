# C types for session.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport Inflight
from edgebridge.session.outbox cimport Outbox


cdef class Session:
    cdef public str client_id, user
    cdef public Outbox outbox
    cdef public object connection, bill, claims, replays, rights, will
    cdef public object expiry_s, gone_at
    cdef public Inflight inflight
    cdef public set received
    cdef public dict asked
    cdef public bint waits
    cdef public long long number, last_copy, patience_us
    cdef public Py_ssize_t subscribed
    @cython.locals(inflight=Inflight)
    cpdef bint takes_at_once(self) except -1
    cpdef bint has_room(self, Py_ssize_t size) except -1
    cpdef bint refuses(self, Py_ssize_t size) except -1
