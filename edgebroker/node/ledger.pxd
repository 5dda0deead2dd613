# C types for ledger.py; the meaning is there.
cimport cython

from edgebroker.publication cimport Publication


cdef class Ledger:
    cdef readonly object log
    cdef public long long published, filtered, matched, delivered, expired
    cdef public dict dropped
    cdef dict _drops
    cdef str _run_publisher
    cdef long long _run_first, _run_count, _sample_qos0
    cdef int _run_origin
    cpdef set_log(self, log)
    cpdef long long accept(
        self, now, str publisher, Py_ssize_t count, str topic, int qos, Py_ssize_t payload_bytes, Py_ssize_t copies,
        no_copies_cause=*, trace=*, event=*, int origin=*,
    ) except -1
    @cython.locals(step="long long")
    cpdef bint is_sampled(self, long long first, Py_ssize_t count) except -1
    @cython.locals(count="long long")
    cpdef end_run(self, now)
    cpdef made(self, now, str publisher, str subscriber, long long first, Py_ssize_t count, int qos, int origin=*)
    cpdef deliver(self, now, Publication publication, str subscriber, str text, int qos)
    cpdef expire(self, now, Publication publication, str subscriber, str text, int qos)
    cpdef drop(self, now, Publication publication, str subscriber, str text, int qos, cause)
    cpdef leave(self, now, Publication publication, str subscriber, str text, int qos)
    cpdef count_dropped(self, str subscriber, cause, Py_ssize_t count)
