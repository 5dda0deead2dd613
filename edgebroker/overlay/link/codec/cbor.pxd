# C types for cbor.py; the meaning is there.
cimport cython


@cython.locals(major=cython.uint, argument=object)
cpdef bytes head(object major, object argument)


cdef class StrictCborReader:
    cdef public bytes data
    cdef public Py_ssize_t at
    cdef public unsigned long long argument
    cdef public Py_ssize_t items_max, items

    @cython.locals(data=bytes, at=Py_ssize_t, size=Py_ssize_t, first=cython.uchar, info=int)
    cpdef int head(self) except -1
    cpdef Py_ssize_t array(self) except -1
    cpdef object unsigned(self)
    @cython.locals(major=int, number=object)
    cpdef object integer(self)
    cpdef bytes octets(self)
    @cython.locals(major=int, start=Py_ssize_t, argument=object)
    cpdef object item(self, int depth=*)
    cpdef object single(self)
    cdef bytes _take(self, unsigned long long size)
    cdef dict _map(self, unsigned long long size, int depth)
    cdef object _bignum(self, unsigned long long tag)
    cdef object _simple(self, Py_ssize_t start)
