# C types for reactor.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection
from edgebridge.frontend.frontend cimport Frontend
from edgebroker.runtime.loop.input_coalescing cimport InputCoalescer

cdef int CONNECT, QOS_0

@cython.locals(nanoseconds="long long")
cpdef long long clock() except -1


cdef class ClientProtocol:
    cdef Reactor _reactor
    cdef object _host, _transport
    cdef public Connection connection
    @cython.locals(reactor=Reactor, connection=Connection)
    cpdef data_received(self, bytes data)


cdef class Reactor:
    cdef public Frontend frontend
    cdef public object before_flush, observer, poller
    cdef public long long cut_bytes, received_bytes, sent_bytes
    cdef public bint may_await_reply
    cdef InputCoalescer _coalescer
    cdef object _loop, _password_workers, _timer, _timer_due, _timers
    cdef long long _packets, _timer_changes
    cdef bint _flushes_by_poller, _is_flush_scheduled
    cpdef schedule_flush(self)
    @cython.locals(connection=Connection, dirty=list, batch=list, packets="long long")
    cpdef flush_all(self)
    cpdef flush(self, Connection connection, now)
    @cython.locals(out=list, data=bytes)
    cdef _flush(self, Connection connection, now)
    cpdef failed(self, Connection connection, error)
    cpdef verify(self)
    cpdef resume_readers(self)
    cpdef arm_timer(self)
