# C types for session_records.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport QueueEntry
from edgebroker.publication cimport Publication


@cython.locals(rows=list, entry=QueueEntry, flags=int, said=bytes)
cpdef bytes message_record(Publication publication, clock, copies, cause=*, instead_of=*, bint is_brief=*)
@cython.locals(head=bytes, body=bytes)
cdef bytes _message(object kind, Publication publication, int flags, clock, bytes said, list rows)
cdef bytes _text(str text)
@cython.locals(flags=int, said=bytes, text=str, topic=str, identifiers=tuple)
cdef bytes _copy(session, QueueEntry entry, bint is_brief=*)
