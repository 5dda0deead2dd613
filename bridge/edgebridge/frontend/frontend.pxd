# C types for frontend.py; the meaning is there.
cimport cython

from edgebridge.frontend.connection cimport Connection
from edgebridge.frontend.delivery cimport Delivery
from edgebridge.frontend.fast_path.input cimport InputFastPath
from edgebridge.frontend.journal.session_journal cimport SessionJournal
from edgebridge.frontend.fast_path.fan_out cimport FanOutCache
from edgebridge.frontend.fast_path.qos0_batch cimport Qos0Batches
from edgebridge.session.session cimport Session
from edgebroker.node.ledger cimport Ledger


cdef class Frontend:
    cdef public object options, host, pager, expiry
    cdef public dict session_timers
    cdef dict _on
    cdef long long _buffers_sent
    cdef public object connection_rate, authenticator, connect_handler, enhanced_auth, disconnector, memory_limit, node, events, publish_handler
    cdef public object federation, quota, unfinished_input, sparkplug_rebirth, shared_subscriptions, recovery, retained, subscribe_handler, sys_topics, input_scheduler
    cdef public Delivery delivery
    cdef public InputFastPath input
    cdef public SessionJournal journal
    cdef public Ledger ledger
    cdef public FanOutCache fan_out_cache
    cdef public Qos0Batches qos0_batches
    cdef public dict connections
    cdef public list dirty, readable
    cdef public long long accepted
    @cython.locals(published="long long")
    cpdef feed(self, Connection connection, bytes chunk, now)
    @cython.locals(out=list, session=Session)
    cpdef list take_output(self, Connection connection, now)
