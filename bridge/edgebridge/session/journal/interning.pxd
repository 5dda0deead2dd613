# C types for interning.py; the meaning is there.
cimport cython

from edgebridge.session.journal.text cimport read_text


cdef class TextInterner:
    cdef public Py_ssize_t end
    cdef dict _known
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, key=bytes, octet="const unsigned char*")
    cpdef str read(self, bytes record, Py_ssize_t at)
