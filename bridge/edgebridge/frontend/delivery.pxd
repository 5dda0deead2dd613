# C types for delivery.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection, OutBatch
from edgebridge.frontend.encoding cimport PublishEncoder
from edgebridge.frontend.journal.session_journal cimport SessionJournal
from edgebridge.session.inflight cimport QueueEntry, new_queue_entry
from edgebridge.session.queue.outbox cimport SessionOutbox
from edgebridge.session.session cimport Session
from edgebroker.node.ledger cimport Ledger
from edgebroker.node.subscriptions cimport Copy
from edgebroker.publication cimport Publication


cdef class Delivery:
    cdef Ledger _ledger
    cdef SessionJournal _journal
    cdef list _durable_copies
    cdef bint _is_promised
    cdef readonly long long work
    cdef long long _work_since_release
    cdef object _retained, _expiry, _pager
    @cython.locals(copy=Copy)
    cpdef deliver(self, Publication publication, tuple copies, now, PublishEncoder encoding=*)
    cpdef deliver_promised(self, Publication publication, tuple copies, now)
    cpdef deliver_retained(self, Publication publication, Copy copy, now)
    cdef _append_copies(self, Publication publication, now)
    @cython.locals(session=Session, connection=Connection, qos=int, packet=bytes, identifiers=tuple, entry=QueueEntry)
    cdef _send(self, Publication publication, Copy copy, PublishEncoder encoding, bint retain, now)
    @cython.locals(connection=Connection, identifiers=tuple)
    cdef bint _must_divide(
        self, Session session, Copy copy, int qos, PublishEncoder encoding, bint retain, now
    ) except -1
    @cython.locals(connection=Connection)
    cdef bint _send_or_queue(self, Session session, QueueEntry entry, PublishEncoder encoding, now) except -1
    cdef bint _queue(self, Session session, QueueEntry entry, now) except -1
    cpdef discard(self, Session session, QueueEntry entry, cause, now)
    @cython.locals(
        connection=Connection, entry=QueueEntry, publication=Publication, outbox=SessionOutbox, age_us="long long", aged=int
    )
    cpdef release(self, Session session, now)
    @cython.locals(heavy=Py_ssize_t)
    cdef _weigh(self, QueueEntry entry)
    cdef bint _has_room(self, Session session, Connection connection) except -1
    @cython.locals(packet_id=int, packet=bytes)
    cdef bint _transmit(
        self, Session session, Connection connection, QueueEntry entry, PublishEncoder encoding, long long awaited, now
    ) except -1
    cdef _transmit_queued(self, Session session, Connection connection, QueueEntry entry, now)
    @cython.locals(entry=QueueEntry)
    cpdef acknowledged(self, Session session, int packet_id, now)
    cpdef written(self, Connection connection, now)
    @cython.locals(batch=OutBatch)
    cdef _log_batches(self, Connection connection, list batches, fate, cause, now)
