# C types for inflight.py; the meaning is there.
cimport cython

from edgebroker.publication cimport Publication


cdef class QueueEntry:
    cdef public Publication publication
    cdef public int qos, packet_id
    cdef public long long number
    cdef public bint retain, released
    cdef public tuple identifiers
    cdef public str text


@cython.locals(made=QueueEntry)
cpdef QueueEntry new_queue_entry(Publication publication, int qos, bint retain, tuple identifiers, str text)


cdef class Inflight:
    cdef public Py_ssize_t held_bytes, window
    cdef public int last_id
    cdef dict _entries
    cdef public object unsent
    cpdef bint has_room(self) except -1
    cpdef QueueEntry first_unsent(self)
    @cython.locals(packet_id=int)
    cpdef int add(self, QueueEntry entry) except -1
    cpdef QueueEntry find(self, int packet_id)
    @cython.locals(entry=QueueEntry, key=object)
    cpdef QueueEntry acknowledge(self, int packet_id, int qos)
    @cython.locals(entry=QueueEntry)
    cpdef QueueEntry release(self, int packet_id)
    cdef _is_sent(self, QueueEntry entry)
