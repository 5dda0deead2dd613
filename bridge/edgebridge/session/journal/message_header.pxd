# C types for message_header.py; the meaning is there.
cimport cython

cdef int HAS_MORE, _NUMBERED, _EXPIRES, _CAUSED, _INSTEAD
cdef Py_ssize_t HEAD_BYTES


cdef class MessageHeader:
    cdef public Py_ssize_t at, copies
    cdef public int flags
    cdef public unsigned long long number, accepted_at, expires_at
    cdef public tuple cause, instead_of
    @cython.locals(flags=int, since=cython.ulonglong, index=Py_ssize_t, octet="const unsigned char*")
    cpdef read(self, bytes record, unsigned long long lsn)
    @cython.locals(at=Py_ssize_t)
    cpdef _read_more(self, bytes record, int flags)
