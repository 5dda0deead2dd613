# C types for qos0_batch.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection, OutBatch
from edgebridge.frontend.fast_path.fan_out cimport FanOut
from edgebridge.session.session cimport Session
from edgebridge.wire.head cimport publish_head
from edgebroker.node.ledger cimport Ledger
from edgebroker.node.routes cimport Route


cdef class Qos0Batches:
    cdef Ledger _ledger
    cdef public long long coalesced
    @cython.locals(
        count=Py_ssize_t, v311=Py_ssize_t, index=Py_ssize_t, room=Py_ssize_t, other=bytes, data=bytes, text=str,
        reader=Connection,
    )
    cpdef deliver(
        self, FanOut plan, bytes block, Py_ssize_t size, Py_ssize_t payload, bint is_v5, str publisher, long long first,
        now, int origin=*
    )
    @cython.locals(length=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, first="long long", head=bytes, route=Route)
    cpdef long long deliver_payloads(
        self, FanOut plan, bytes payloads, Py_ssize_t count, str publisher, Py_ssize_t leaving, event, now
    ) except -1
    @cython.locals(batches=list, last=OutBatch, has_rows=bint, is_next=bint, session=Session)
    cdef _log_batch(
        self, Connection reader, str publisher, long long first, Py_ssize_t count, str topic, str text, now,
        Py_ssize_t payload_bytes, int origin
    )
