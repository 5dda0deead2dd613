# C types for cbor.py; the meaning is there. Subclasses may override what is cpdef. Bytes are looked at with their bounds
# checked.
cimport cython

cdef int _UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE
cdef int _WIDE, _INDEFINITE, _BREAK, _SHORT_BYTES, _LONG_BYTES, _SHORT_TEXT, _LONG_TEXT, _HALF
cdef tuple _FIRST


cdef class CborRules:
    cdef readonly int depth_max
    cdef readonly long long values_max, map_max, text_bytes_max, characters_max, octets_max
    cdef readonly Py_ssize_t container_cost, member_cost
    cdef readonly tuple keys
    cdef readonly bint is_unique, has_indefinite
    cdef readonly object others, error


cdef class CborReader:
    cdef public bytes data
    cdef readonly CborRules rules
    cdef public Py_ssize_t at
    cdef public unsigned long long argument
    cdef public long long values
    cdef long long _characters, _octets

    @cython.locals(data=bytes, at=Py_ssize_t, end=Py_ssize_t, first=int, info=int, number=cython.ulonglong)
    cpdef int head(self) except -1
    cpdef Py_ssize_t array(self) except -1
    cpdef object unsigned(self)
    @cython.locals(major=int, number=object)
    cpdef object integer(self)
    cpdef bytes octets(self)
    cpdef object whole(self)
    cpdef object item(self)
    cpdef object single(self)
    cpdef object nested(self, int depth)
    cpdef object members(self, int depth)
    @cython.locals(
        data=bytes, at=Py_ssize_t, end=Py_ssize_t, first=int, major=int, info=int, size=cython.ulonglong, number=object
    )
    cdef object _item(self, int depth)
    @cython.locals(rules=CborRules)
    cdef int _open(self, unsigned long long size, int depth) except -1
    @cython.locals(items=list, _=Py_ssize_t, number=Py_ssize_t)
    cdef list _array(self, Py_ssize_t size, int depth)
    @cython.locals(members=dict, _=Py_ssize_t)
    cdef dict _map(self, Py_ssize_t size, int depth)
    @cython.locals(data=bytes, at=Py_ssize_t, end=Py_ssize_t, first=int)
    cdef int _pair(self, dict members, int depth) except -1
    @cython.locals(rules=CborRules, text=str, at=Py_ssize_t, end=Py_ssize_t)
    cdef str _text(self, unsigned long long size)
    cdef bytes _bytes(self, unsigned long long size)
    @cython.locals(at=Py_ssize_t)
    cdef bytes _take(self, unsigned long long size)
    cpdef object key(self, int depth)
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t)
    cpdef object simple(self, int info)
    cpdef object tagged(self, object tag, object content)
    @cython.locals(items=list, members=dict)
    cdef object _indefinite(self, int major, int depth)
    @cython.locals(rules=CborRules)
    cdef int _open_indefinite(self, int depth) except -1
    @cython.locals(at=Py_ssize_t)
    cpdef bint _at_break(self) except -1
    @cython.locals(chunks=list)
    cdef object _chunks(self, int major)
    cdef object _broken(self, str what)


@cython.locals(major=cython.uint, argument=object)
cpdef bytes head(object major, object argument)
@cython.locals(octets=bytes, size=Py_ssize_t)
cpdef bytes encode_text(str text)
@cython.locals(kind=object)
cdef object _write(object value, list parts, bint has_short_floats, long long values_max)
cdef object _write_head(int major, Py_ssize_t size, list parts, long long values_max)
cdef bytes _integer(object number)
@cython.locals(size=double)
cdef bytes _float(double number, bint is_short)
