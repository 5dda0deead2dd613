# C types for poller.py; the meaning is there.
cimport cython

from edgebroker.runtime.loop.input_coalescing cimport InputCoalescer
from edgebroker.runtime.loop.stream cimport SocketStream

cdef int EVENTS_MAX, READS, WRITES


cdef class Poller:
    cdef public object on_batch_served
    cdef dict _accepts, _streams
    cdef list _came, _ended
    cdef bint _is_tending
    cdef double _now
    cdef object _epoll, _others, _poll
    cdef int _others_descriptor
    cdef bint _is_recalled
    cdef public InputCoalescer coalescer
    cpdef return_to_loop(self)
    cpdef watch(self, int descriptor, SocketStream stream, bint reading, bint writing)
    cpdef end(self, SocketStream stream)
    cpdef listen(self, int descriptor, object accept)
    @cython.locals(left=double, until=double, ready=list, is_idle=bint)
    cpdef select(self, timeout=*)
    @cython.locals(began=double, nap=double, ready=list)
    cdef list _wait(self, double left)
    @cython.locals(descriptor=int, events=int, is_for_others=bint, streams=dict, stream=SocketStream, newcomers=list)
    cdef bint _serve(self, list ready) except -1
    @cython.locals(descriptor=int, events=int, stream=SocketStream, until=double, knocking=set, doors=list)
    cdef _tend(self, list newcomers)
