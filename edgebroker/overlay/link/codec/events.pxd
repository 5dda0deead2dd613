# C types for events.py; the meaning is there.
cimport cython

from edgebroker.cbor cimport CborReader


cdef class Flow:
    cdef public Py_ssize_t slot
    cdef public object key
    cdef public long long publisher, sequence, published_ms
    cdef public str topic
    cdef public tuple state
    cdef public bint is_recent
    cdef public bytes begin


cdef class FlowWriter:
    cdef public dict _flows
    cdef public list _slots
    cdef Py_ssize_t _hand
    cdef Flow _latest

    @cython.locals(
        state=tuple, flow=Flow, payload=bytes, size=Py_ssize_t, step=cython.longlong, delay=cython.longlong
    )
    cpdef bytes write(self, object forward, object service, object expires_in_ms)
    @cython.locals(item=bytes, changes=bytes)
    cpdef bytes write_series(self, object series, object service)
    @cython.locals(told=dict)
    cdef bytes _told(self, object forward, Flow flow, tuple state, object expires_in_ms)
    cdef Flow _long(self)
    @cython.locals(flow=Flow)
    cdef Flow _free(self)


cdef class AloneWriter:
    cdef dict _told

    @cython.locals(payload=bytes, state=tuple, key=tuple, begin=bytes, known=tuple, item=bytes)
    cpdef bytes write(self, object forward, object service)


cdef class FlowReader:
    cdef public list _slots
    cdef public object service

    @cython.locals(slot=object, flow=Flow, step=object, delay=object)
    cpdef object read(self, CborReader reader, Py_ssize_t size)
    @cython.locals(flow=Flow)
    cdef Flow _changed(self, object slot, dict changes)


cdef bytes _signed(object number)
cdef tuple _state_of(object forward, object service)
