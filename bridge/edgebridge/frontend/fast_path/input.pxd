# C types for input.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection
from edgebridge.frontend.delivery cimport Delivery
from edgebridge.frontend.encoding cimport PublishEncoder, verbatim_encoder
from edgebridge.frontend.journal.session_journal cimport SessionJournal
from edgebridge.frontend.fast_path.fan_out cimport FanOut, FanOutCache
from edgebridge.frontend.fast_path.qos0_batch cimport Qos0Batches
from edgebridge.session.session cimport Session
from edgebroker.node.ledger cimport Ledger
from edgebroker.node.routes cimport Route
from edgebroker.publication cimport Publication, plain

cdef unsigned int AUTH, CONNECT, DISCONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE
cdef Py_ssize_t ACKNOWLEDGED_BYTES_MAX, CONTROL_PACKET_BYTES_MAX, HELD_BYTES_MAX
cdef Py_ssize_t SERIES_EVENTS_MAX, SUBSCRIBE_BYTES_MAX


cdef class InputFastPath:
    cdef FanOutCache _fan_out_cache
    cdef object _publish_handler, _admission, _on_frame, _scheduler
    cdef Delivery _delivery
    cdef SessionJournal _journal
    cdef public bint refuses_when_full
    cdef Ledger _ledger
    cdef public Py_ssize_t connect_bytes_max
    cdef Py_ssize_t _packet_bytes_max, _work
    cdef long long _charged
    cdef Qos0Batches _qos0_batches
    cdef public object federation_path
    cdef public long long packets
    @cython.locals(
        at=Py_ssize_t, end=Py_ssize_t, bytes_max=Py_ssize_t, body=Py_ssize_t, length=Py_ssize_t, stop=Py_ssize_t,
        done=Py_ssize_t, packets="long long", first=cython.uint, octet=cython.uint, shift=cython.uint, packet_id=int,
        connected=bint, session=Session, ahead=Py_ssize_t,
    )
    cpdef receive(self, Connection connection, bytes chunk, now)
    @cython.locals(
        topic_end=Py_ssize_t, payload=Py_ssize_t, size=Py_ssize_t, count=Py_ssize_t, last=Py_ssize_t,
        copies=Py_ssize_t, first="long long", octet="const unsigned char*", octets=bytes, prefix=bytes, block=bytes,
        publisher=str, plans=FanOutCache, plan=FanOut, route=Route, ledger=Ledger, session=Session, readers=list,
    )
    cdef Py_ssize_t _publish_batch(
        self, Connection connection, bytes chunk, Py_ssize_t at, Py_ssize_t body, Py_ssize_t stop, Py_ssize_t end, now
    ) except -1
    @cython.locals(spent="long long")
    cdef _charge(self)
    cdef object _slow_path(
        self, Connection connection, unsigned int first, bytes chunk, Py_ssize_t body, Py_ssize_t stop, now
    )
    @cython.locals(session=Session)
    cdef Py_ssize_t _publish_one(
        self, Connection connection, FanOut plan, bytes payload, now, Py_ssize_t stop
    ) except -1
    @cython.locals(
        topic_end=Py_ssize_t, payload=Py_ssize_t, size=Py_ssize_t, count=Py_ssize_t, copies=Py_ssize_t, head=Py_ssize_t,
        begin=Py_ssize_t, number=Py_ssize_t, identifier=Py_ssize_t, octet="const unsigned char*", payloads=bytes,
        plans=FanOutCache, plan=FanOut, route=Route, session=Session, publication=Publication,
        session_journal=SessionJournal, awaited="long long", readers=tuple,
    )
    cdef Py_ssize_t _publish_series(
        self, Connection connection, bytes chunk, Py_ssize_t at, Py_ssize_t body, Py_ssize_t stop, Py_ssize_t end, now
    ) except -1
    @cython.locals(
        topic_end=Py_ssize_t, payload=Py_ssize_t, octet="const unsigned char*", octets=bytes, plans=FanOutCache, plan=FanOut,
        session=Session, publication=Publication, session_journal=SessionJournal, awaited="long long", copies=tuple, encoding=PublishEncoder,
        may_refuse=bint,
    )
    cdef bint _publish_acknowledged(
        self, Connection connection, bytes chunk, Py_ssize_t at, Py_ssize_t body, Py_ssize_t stop, now
    ) except -1


@cython.locals(at=Py_ssize_t, end=Py_ssize_t)
cdef bytes _payloads(bytes block, Py_ssize_t size, Py_ssize_t payload)

@cython.locals(
    octet="const unsigned char*", size=Py_ssize_t, identifier=Py_ssize_t, prefix=bytes, count=Py_ssize_t
)
cdef Py_ssize_t _count_of_series(
    bytes chunk, Py_ssize_t at, Py_ssize_t topic_end, Py_ssize_t payload, Py_ssize_t stop, Py_ssize_t end, bint is_v5
) except -1

@cython.locals(size=Py_ssize_t, at=Py_ssize_t, shift=cython.uint, octet=cython.uint)
cdef Py_ssize_t _reading(unsigned int first, bytes chunk, Py_ssize_t body, Py_ssize_t stop, bint is_v5) except -1
