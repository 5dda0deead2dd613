# C types for fan_out.py; the meaning is there.
from edgebroker.node.routes cimport Route, Routes


cdef class FanOut:
    cdef public bint is_federated, is_reserved, is_uniform, needs_slow_path
    cdef public list readers, labels
    cdef public Py_ssize_t readers_v311
    cdef public Route route
    cdef public str topic


cdef class FanOutCache:
    cdef readonly Routes routes
    cdef long long _epoch
    cdef public bint is_federated
    cdef public dict cached
    cpdef invalidate(self)
    cpdef refresh(self)
    cpdef FanOut fan_out(self, bytes octets)
