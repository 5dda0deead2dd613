# C types for publication.py; the meaning is there.


cdef class Publication:
    cdef public str publisher, topic
    cdef public bytes payload
    cdef public int qos
    cdef public bint retain
    cdef public object accepted_at, number, properties, expires_at, user, content_type
    cpdef bint has_expired(self, now) except -1
