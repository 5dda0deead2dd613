# C types for poller.py; the meaning is there.
cimport cython

from edgebroker.runtime.loop.cadence cimport Cadence
from edgebroker.runtime.loop.input_coalescing cimport InputCoalescer
from edgebroker.runtime.loop.stream cimport SocketStream

cdef int EVENTS_MAX, READS, SELECTED_MAX, WRITES
cdef double EVER


cdef class Poller:
    cdef public object on_batch_served
    cdef dict _accepts, _streams
    cdef list _came, _ended, _itself
    cdef bint _is_tending
    cdef double _now
    cdef bint _is_timed, _may_doze, _was_asleep, _was_there
    cdef public Cadence cadence
    cdef object _epoll, _others, _poll
    cdef int _others_descriptor
    cdef bint _is_recalled
    cdef double _pause
    cdef public double spin_s
    cdef public InputCoalescer coalescer
    cpdef return_to_loop(self)
    cpdef watch(self, int descriptor, SocketStream stream, bint reading, bint writing)
    cpdef end(self, SocketStream stream)
    cpdef listen(self, int descriptor, object accept)
    @cython.locals(left=double, until=double, ready=list, is_idle=bint)
    cpdef select(self, timeout=*)
    @cython.locals(began=double, nap=double, until=double, ready=list)
    cdef list _wait(self, double left)
    @cython.locals(ready=list)
    cdef list _ask(self, double until)
    @cython.locals(doze=double, woke=double, ready=list)
    cdef list _expect(self, double until)
    @cython.locals(descriptor=int, events=int, is_for_others=bint, streams=dict, stream=SocketStream, newcomers=list)
    cdef bint _serve(self, list ready) except -1
    @cython.locals(descriptor=int, events=int, stream=SocketStream, until=double, knocking=set, doors=list)
    cdef _tend(self, list newcomers)
