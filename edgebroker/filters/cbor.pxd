# C types for cbor.py; the meaning is there. Who derives from the reader may override what is cpdef.
cimport cython

cdef int _UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE
cdef int _SHORT_BYTES, _LONG_BYTES
cdef int _SMALL, _SHORT_TEXT, _LONG_TEXT, _SHORT_ARRAY, _LONG_ARRAY, _SHORT_MAP, _LONG_MAP
cdef int _INDEFINITE, _BREAK, _DEPTH_MAX
cdef int _COMPOSITES_MAX, _HALF


cdef class CborReader:
    cdef public bytes payload
    cdef public Py_ssize_t at, composites

    cpdef object whole(self)
    @cython.locals(at=Py_ssize_t, payload=bytes, major=int, info=int)
    cpdef tuple head(self)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, payload=bytes, first=int, major=int, size=object)
    cpdef object item(self, int depth)
    cdef int _compose(self) except -1
    @cython.locals(items=list, _=Py_ssize_t, number=Py_ssize_t)
    cdef list _array(self, object size, int depth)
    cdef object _map(self, object size, int depth)
    @cython.locals(members=dict, _=Py_ssize_t)
    cpdef object map(self, object size, int depth)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t)
    cdef bytes _take(self, object size)
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _pass_number(self, int size) except -1
    @cython.locals(at=Py_ssize_t, payload=bytes, number=cython.ulonglong)
    cdef object _argument(self, int info)
    cpdef object count(self, object size)
    cpdef object promised(self, object size)
    @cython.locals(at=Py_ssize_t)
    cpdef bint at_break(self) except -1
    @cython.locals(first=int, chunks=list, octets=bytes)
    cdef object _string(self, int major, object size)
    cpdef object key(self, int depth)
    cpdef object simple(self, int info)
    cpdef object tagged(self, object tag, object content)
