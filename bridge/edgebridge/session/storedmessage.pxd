# C types for storedmessage.py; the meaning is there.
cimport cython

from edgebridge.session.knowntexts cimport KnownTexts
from edgebroker.publication cimport Publication, plain


cdef class StoredMessage:
    cdef public long long number
    cdef public Py_ssize_t copies
    cdef Publication _publication
    cdef bytes _record
    cdef Py_ssize_t _at
    cdef int _flags
    cdef public bint is_back
    cdef bint _is_said
    cdef object _accepted_at, _expires_at
    cpdef say(self, bytes record, Py_ssize_t at, int flags, accepted_at, expires_at)
    cpdef Publication read(self, KnownTexts texts)


@cython.locals(publisher=str, topic=str, start=Py_ssize_t, made=Publication)
cpdef Publication publication_of(
    bytes record, Py_ssize_t at, int flags, accepted_at, expires_at, long long number, KnownTexts texts
)
