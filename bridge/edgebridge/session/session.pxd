# C types for session.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport Inflight
from edgebridge.session.queue.outbox cimport SessionOutbox


cdef class Session:
    cdef public str account, client_id, user
    cdef public SessionOutbox outbox
    cdef public object connection, filter_usage, claims, replays, rights, will
    cdef public object bridge_sync, expiry_s, disconnected_at, unsynced
    cdef public Inflight inflight
    cdef public set received, uncleared
    cdef public dict subscription_records
    cdef public bint waits_for_sync
    cdef public long long number, last_copy, sync_delay_us
    cdef public Py_ssize_t subscribed, subscription_bytes, will_bytes
    @cython.locals(inflight=Inflight)
    cpdef bint can_send_now(self) except -1
    cpdef bint has_room(self, Py_ssize_t size) except -1
    cpdef bint must_refuse(self, Py_ssize_t size) except -1
