# C types for inflight.py; the meaning is there.
cimport cython

from edgebroker.publication cimport Publication


cdef class Entry:
    cdef public Publication publication
    cdef public int qos, packet_id
    cdef public long long number
    cdef public bint retain, released
    cdef public tuple identifiers
    cdef public str text


@cython.locals(made=Entry)
cpdef Entry entry_of(Publication publication, int qos, bint retain, tuple identifiers, str text)


cdef class Inflight:
    cdef public Py_ssize_t held_bytes, window
    cdef public int last_id
    cdef dict _entries
    cdef public object unsent
    cpdef bint has_room(self) except -1
    cpdef Entry first_unsent(self)
    @cython.locals(packet_id=int)
    cpdef int add(self, Entry entry) except -1
    @cython.locals(entry=Entry, key=object)
    cpdef Entry settle(self, int packet_id, int qos)
    @cython.locals(entry=Entry)
    cpdef Entry release(self, int packet_id)
    cdef _is_sent(self, Entry entry)
