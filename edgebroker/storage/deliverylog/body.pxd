# C types for body.py; the meaning is there. Bytes are looked at with their bounds checked: the reader relies on it.
cimport cython

cdef int _UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE
cdef int _TEXT_0, _TEXT_8, _TEXT_16


cdef class _BodyReader:
    cdef Py_ssize_t at
    cdef bytes _raw
    cdef long long _left, _texts_left, _bytes_left

    @cython.locals(raw=bytes, at=Py_ssize_t, first=int, major=int, info=int, argument=object, values=object)
    cdef object item(self, int depth)
    @cython.locals(
        raw=bytes, at=Py_ssize_t, begin=Py_ssize_t, chars="long long", chars_max="long long", sizes=bytes, items=list, first=int,
        short=Py_ssize_t, text=str, _=Py_ssize_t,
    )
    cdef list _array(self, Py_ssize_t size, int depth)
    cdef bytes _bytes(self, object size)
    @cython.locals(text=str)
    cdef str _text(self, object size)
    cdef object _fill(self, long long chars)
    cdef str _key(self, int depth)
    cdef object _argument(self, int info)
    @cython.locals(at=Py_ssize_t)
    cdef bytes _take(self, object size)
    cdef object _simple(self, int info)
