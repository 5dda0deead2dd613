# C types for message.py; the meaning is there.
cimport cython

from edgebridge.session.journal.text cimport TextInterner
from edgebroker.publication cimport Publication, plain


cdef class StoredMessage:
    cdef public long long number
    cdef public Py_ssize_t copies
    cdef public bint is_requeued
    cdef Publication _publication
    cdef str _publisher, _topic
    cdef bytes _content
    cdef Py_ssize_t _at
    cdef int _flags
    cdef unsigned long long _accepted_at, _expires_at
    @cython.locals(publisher=str, octet="const unsigned char*")
    cpdef set_content(self, bytes record, Py_ssize_t at, int flags, accepted_at, expires_at, TextInterner texts)
    cpdef mark_unreadable(self)
    cpdef bint can_be_read(self, TextInterner texts) except -1
    @cython.locals(made=Publication, said=bytes)
    cpdef Publication read(self, TextInterner texts)
    cpdef shift(self, unsigned long long by)


@cython.locals(publisher=str, topic=str, start=Py_ssize_t, made=Publication)
cpdef Publication read_publication(
    bytes record, Py_ssize_t at, int flags, accepted_at, expires_at, long long number, TextInterner texts
)
