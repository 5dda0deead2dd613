# C types for connection.py; the meaning is there.
cimport cython

from edgebridge.session.session cimport Session

cdef Py_ssize_t CONTROL_BYTES, OWED_BYTES_MAX


cdef class OutBatch:
    cdef public str publisher, topic, label
    cdef public long long first
    cdef public Py_ssize_t count, payload_bytes
    cdef public object accepted_at, trace
    cdef public bint has_rows
    cdef public int origin
    cpdef OutBatch part(self, Py_ssize_t start, Py_ssize_t count)
    @cython.locals(first="long long", count=Py_ssize_t)
    cpdef end(self, log, str subscriber, fate, cause, now)


cdef class DurabilityBarrier:
    cdef public long long lsn
    cdef public Py_ssize_t packets, bytes, messages, batches


cdef class Connection:
    cdef public dict aliases
    cdef public object meter, certificate, listener_context
    cdef public bint closing, is_dirty, is_held, is_deferred, is_packet_timed, is_resumed, is_v5, paused, has_problem_information
    cdef public bytes final_packet
    cdef public object out_aliases
    cdef public object dialect, job, disconnect_reason, last_received_at, keep_alive, number, peer, state, transport, verdict
    cdef public list dirty, barriers, out, out_batches, pending
    cdef public Py_ssize_t out_bytes, out_bytes_max, out_messages, packet_bytes_max, pending_bytes, pending_wanted
    cdef public Py_ssize_t alias_bytes, job_bytes, owed_bytes, transport_bytes
    cdef public object packet_begun_at
    cdef public Session session
    cdef public set inherited_qos2_ids
    cpdef list take_out(self)
    cpdef bint release_barriers(self, long long synced) except -1
    cpdef tuple take_written(self)
    cpdef send(self, bytes packet)
    cpdef close(self)
    cpdef Py_ssize_t count_waiting(self, int first=*) except -1
    cpdef bint has_room_for(self, Py_ssize_t size) except -1
    cpdef bint fits(self, bytes packet) except -1
