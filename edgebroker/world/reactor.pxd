# C types for reactor.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection
from edgebridge.frontend.frontend cimport Frontend
from edgebroker.world.gathering cimport Gathering

cdef int CONNECT, QOS_0


cdef class Door:
    cdef Reactor _reactor
    cdef object _host, _transport
    cdef public Connection connection
    @cython.locals(reactor=Reactor, connection=Connection)
    cpdef data_received(self, bytes data)


cdef class Reactor:
    cdef public Frontend frontend
    cdef public object each_turn, tracing, watch
    cdef public long long cut_bytes, received_bytes, sent_bytes
    cdef public bint is_hurried, tells_turns
    cdef Gathering _gathering
    cdef object _alarm, _alarm_at, _loop, _timers, _verifying
    cdef long long _changes, _packets
    cdef bint _is_turning
    cpdef turn(self)
    @cython.locals(connection=Connection, dirty=list, batch=list, packets="long long")
    cpdef flush_all(self)
    cpdef flush(self, Connection connection, now)
    @cython.locals(out=list, data=bytes)
    cdef _flush(self, Connection connection, now)
    cpdef failed(self, Connection connection, error)
    cpdef verify(self)
    cpdef read_on(self)
    cpdef arm(self)
