# C types for encoding.py; the meaning is there.
cimport cython

from edgebroker.publication cimport Publication


cdef class Encoding:
    cdef Publication _publication
    cdef bytes _topic
    cdef dict _parts
    @cython.locals(parts=tuple, head=bytes, tail=bytes)
    cpdef bytes packet(
        self, bint is_v5, int qos, int packet_id, now, bint retain, bint dup, tuple identifiers
    )
    @cython.locals(properties=bytes, payload=bytes, head=bytes)
    cdef tuple _build(self, bint is_v5, int qos, bint retain, bint dup, tuple identifiers, now)
