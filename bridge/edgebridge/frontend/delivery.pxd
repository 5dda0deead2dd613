# C types for delivery.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection
from edgebridge.frontend.encoding cimport Encoding
from edgebridge.frontend.keeping cimport Keeping
from edgebridge.session.inflight cimport Entry, entry_of
from edgebridge.session.outbox cimport Outbox
from edgebridge.session.session cimport Session
from edgebroker.node.ledger cimport Ledger
from edgebroker.node.subscriptions cimport Copy
from edgebroker.publication cimport Publication


cdef class Delivery:
    cdef Ledger _ledger
    cdef Keeping _keeping
    cdef list _kept
    cdef bint _is_promised
    cdef readonly long long work
    cdef long long _heavy
    cdef public object rest, expires
    cdef public object is_state
    @cython.locals(copy=Copy)
    cpdef deliver(self, Publication publication, tuple copies, now, Encoding encoding=*)
    cpdef deliver_promised(self, Publication publication, tuple copies, now)
    cpdef deliver_retained(self, Publication publication, Copy copy, now)
    cdef _keep(self, Publication publication, now)
    @cython.locals(session=Session, connection=Connection, qos=int, packet=bytes, identifiers=tuple, entry=Entry)
    cdef _send(self, Publication publication, Copy copy, Encoding encoding, bint retain, now)
    @cython.locals(connection=Connection)
    cdef bint _send_or_queue(self, Session session, Entry entry, Encoding encoding, now) except -1
    cdef bint _queue(self, Session session, Entry entry, now) except -1
    cpdef give_up(self, Session session, Entry entry, cause, now)
    @cython.locals(
        connection=Connection, entry=Entry, publication=Publication, outbox=Outbox, age_us="long long", aged=int
    )
    cpdef release(self, Session session, now)
    @cython.locals(heavy=Py_ssize_t)
    cdef _weigh(self, Entry entry)
    cdef bint _has_room(self, Session session, Connection connection) except -1
    @cython.locals(packet_id=int, packet=bytes)
    cdef bint _transmit(
        self, Session session, Connection connection, Entry entry, Encoding encoding, long long awaited, now
    ) except -1
    cdef _transmit_queued(self, Session session, Connection connection, Entry entry, now)
    @cython.locals(entry=Entry)
    cpdef acknowledged(self, Session session, int packet_id, now)
    cpdef written(self, Connection connection, now)
