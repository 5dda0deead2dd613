# C types for encoding.py; the meaning is there.
cimport cython

from edgebridge.wire.head cimport publish_head
from edgebroker.publication cimport Publication


cdef class PublishEncoder:
    cdef Publication _publication
    cdef bytes _publisher_properties, _topic, _head, _tail
    cdef int _qos
    cdef bint _is_v5, _retain
    cpdef bytes packet(self, bint is_v5, int qos, int packet_id, now, bint retain, bint dup, tuple identifiers)
    @cython.locals(properties=bytes, payload=bytes)
    cdef _build(self, bint is_v5, int qos, bint retain, bint dup, tuple identifiers, now)
    @cython.locals(said=bytes)
    cpdef bytes properties(self, tuple identifiers, now, int alias=*)


cdef list OCTETS


@cython.locals(encoding=PublishEncoder)
cpdef PublishEncoder verbatim_encoder(Publication publication, bint is_v5, bytes head, bytes tail)
