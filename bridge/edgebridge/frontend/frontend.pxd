# C types for frontend.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection
from edgebridge.frontend.delivery cimport Delivery
from edgebridge.frontend.feed cimport Feed
from edgebridge.frontend.keeping cimport Keeping
from edgebridge.frontend.plans cimport Plans
from edgebridge.frontend.runs cimport Runs
from edgebridge.session.session cimport Session
from edgebroker.node.ledger cimport Ledger


cdef class Frontend:
    cdef public object terms
    cdef public dict of_session
    cdef dict _on
    cdef long long _buffers_sent
    cdef public object admission, authenticating, connecting, exchanging, expelling, memory, node, notes, publishing
    cdef public object overlay, quota, rebirths, restoring, retained, subscribing, sys_topics, turns
    cdef public Delivery delivery
    cdef public Feed input
    cdef public Keeping keeping
    cdef public Ledger ledger
    cdef public Plans plans
    cdef public Runs runs
    cdef public dict connections
    cdef public list dirty, readable
    cdef public long long accepted
    @cython.locals(published="long long", session=Session)
    cpdef feed(self, Connection connection, bytes chunk, now)
    @cython.locals(out=list, session=Session)
    cpdef list take_output(self, Connection connection, now)
