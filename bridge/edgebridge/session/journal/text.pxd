# C types for text.py; the meaning is there.
cimport cython


@cython.locals(start=Py_ssize_t, end=Py_ssize_t, text=str)
cpdef tuple read_text(bytes record, Py_ssize_t at)


cdef class TextInterner:
    cdef public Py_ssize_t end
    cdef dict _known
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, key=bytes, octet="const unsigned char*")
    cpdef str read(self, bytes record, Py_ssize_t at)
