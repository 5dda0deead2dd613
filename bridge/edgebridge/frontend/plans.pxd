# C types for plans.py; the meaning is there.
from edgebroker.node.routes cimport Route, Routes


cdef class Plan:
    cdef public bint is_joined, is_quick, takes_long
    cdef public list readers, texts
    cdef public Py_ssize_t readers_v311
    cdef public Route route
    cdef public str topic


cdef class Plans:
    cdef readonly Routes routes
    cdef long long _epoch
    cdef public bint is_joined
    cdef public dict known
    cpdef forget(self)
    cpdef refresh(self)
    cpdef Plan plan(self, bytes octets)
