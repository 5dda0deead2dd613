# C types for publication.py; the meaning is there.
cimport cython



cdef class Publication:
    cdef public str publisher, topic
    cdef public bytes payload
    cdef public int qos, origin
    cdef public bint retain
    cdef public object accepted_at, properties, expires_at, user, content_type, trace
    cdef public Py_ssize_t properties_bytes
    cdef public long long number, stated, stored
    cpdef Py_ssize_t held_bytes(self) except -1
    cpdef bint has_expired(self, now) except -1


@cython.locals(made=Publication)
cpdef Publication plain(str publisher, str topic, bytes payload, int qos, accepted_at)
