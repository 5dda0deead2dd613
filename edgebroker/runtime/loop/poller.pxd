# C types for poller.py; the meaning is there.
cimport cython

from edgebroker.runtime.loop.input_coalescing cimport InputCoalescer
from edgebroker.runtime.loop.stream cimport SocketStream

cdef int EVENTS_MAX, READS, WRITES


cdef class Poller:
    cdef public object on_batch_served
    cdef dict _accepts, _streams
    cdef list _accepted, _closed
    cdef bint _has_backlog, _must_return
    cdef double _polled_at
    cdef object _epoll, _poll, _selector
    cdef int _selector_descriptor
    cdef public InputCoalescer coalescer
    cpdef return_to_loop(self)
    cpdef watch(self, int descriptor, SocketStream stream, bint reading, bint writing)
    cpdef schedule_close(self, SocketStream stream)
    cpdef listen(self, int descriptor, object accept)
    @cython.locals(left=double, until=double, ready=list, is_idle=bint)
    cpdef select(self, timeout=*)
    @cython.locals(began=double, delay=double, ready=list)
    cdef list _wait(self, double left)
    @cython.locals(descriptor=int, events=int, is_for_asyncio=bint, streams=dict, stream=SocketStream, deferred=list)
    cdef bint _serve(self, list ready) except -1
    @cython.locals(descriptor=int, events=int, stream=SocketStream, until=double, pending=set, listening=list)
    cdef _serve_connection_changes(self, list deferred)
