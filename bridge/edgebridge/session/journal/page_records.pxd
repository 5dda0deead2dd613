# C types for page_records.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport QueueEntry, new_queue_entry
from edgebroker.publication cimport Publication, plain


@cython.locals(
    texts=dict, parts=list, entry=QueueEntry, publication=Publication, properties=bytes, flags=int, expires_at=object
)
cpdef bytes page_content(list entries, clock)
cpdef list read_page(bytes content, long long first, oldest_at)
@cython.locals(
    texts=list, entries=list, known=dict, copy="long long", fields=tuple, flags=int, publisher=Py_ssize_t,
    topic=Py_ssize_t, label=Py_ssize_t, identifiers=Py_ssize_t, held=Py_ssize_t, size=Py_ssize_t, length=Py_ssize_t,
    at=Py_ssize_t, own_at=Py_ssize_t, properties_at=Py_ssize_t, payload_at=Py_ssize_t, publication=Publication,
    entry=QueueEntry, own=tuple, qos=int
)
cdef list _read(bytes data, long long first, oldest_at)
