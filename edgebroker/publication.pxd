# C types for publication.py; the meaning is there.


cdef class Publication:
    cdef public str publisher, topic
    cdef public bytes payload
    cdef public int qos
    cdef public bint retain
    cdef public object accepted_at, number, properties, expires_at, user, content_type, trace
    cdef public Py_ssize_t properties_bytes
    cdef public long long stated, stored
    cpdef Py_ssize_t held_bytes(self) except -1
    cpdef bint has_expired(self, now) except -1
