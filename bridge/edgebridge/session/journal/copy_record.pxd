# C types for copy_record.py; the meaning is there.
cimport cython

from edgebridge.session.journal.text cimport read_text

cdef int HAS_MORE
cdef Py_ssize_t HEAD_BYTES


cdef class CopyReader:
    cdef public object session, copy
    cdef public int flags, packet_id
    cdef public tuple label, identifiers
    cdef public Py_ssize_t end
    cdef dict _labels
    @cython.locals(flags=int, high=cython.uint, octet="const unsigned char*")
    cpdef read(self, bytes record, Py_ssize_t at)
    @cython.locals(end=Py_ssize_t, start=Py_ssize_t, key=bytes, label=tuple, octet="const unsigned char*")
    cpdef _read_more(self, bytes record, Py_ssize_t at, int flags)
