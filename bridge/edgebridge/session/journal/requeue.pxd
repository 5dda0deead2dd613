# C types for requeue.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport QueueEntry, new_queue_entry
from edgebridge.session.journal.text cimport TextInterner
from edgebridge.session.queue.outbox cimport SessionOutbox
from edgebridge.session.session cimport Session
from edgebridge.session.journal.message cimport StoredMessage
from edgebridge.session.journal.deliveries cimport StoredCopy
from edgebroker.publication cimport Publication


@cython.locals(
    sent=list, known=TextInterner, labels=dict, copy=StoredCopy, message=StoredMessage, publication=Publication,
    text=str, entry=QueueEntry, outbox=SessionOutbox, first_paged="long long",
)
cpdef requeue_copies(dict copies, Session session, clock, take_up)
