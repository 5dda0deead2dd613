# C types for record_reader.py; the meaning is there.
cimport cython

cdef int REACHES_END, DEAD
cdef Py_ssize_t RECORD_BYTES


@cython.locals(
    size=Py_ssize_t, next_at=Py_ssize_t, high=cython.uint, record=bytes, seeds=dict, octet="const unsigned char*",
)
cpdef tuple read_records(
    bytes data, Py_ssize_t at, Py_ssize_t end, unsigned long long lsn, unsigned long long limit, salt, list records
)


@cython.locals(next_at=Py_ssize_t, size=Py_ssize_t)
cpdef tuple skip_broken(
    bytes data, Py_ssize_t at, Py_ssize_t end, unsigned long long lsn, unsigned long long limit, salt
)


@cython.locals(base=Py_ssize_t, start=Py_ssize_t, count=Py_ssize_t, at=Py_ssize_t, next_at=Py_ssize_t, state=int)
cpdef tuple find_row(
    bytes data, Py_ssize_t begin, Py_ssize_t stop, Py_ssize_t end, Py_ssize_t count_max, salt, bytearray states,
    long long bytes_left
)


@cython.locals(a=Py_ssize_t, b=Py_ssize_t, c=Py_ssize_t, d=Py_ssize_t, size=Py_ssize_t)
cdef Py_ssize_t _record_end(bytes data, Py_ssize_t at, Py_ssize_t end) except -1


@cython.locals(base=Py_ssize_t)
cdef object _set_states(bytes data, Py_ssize_t at, Py_ssize_t last, Py_ssize_t end, bytearray states, int state)


@cython.locals(room=object, first=Py_ssize_t, lengths=tuple, found=list)
cdef list _plausible(bytes data, Py_ssize_t begin, Py_ssize_t stop, Py_ssize_t end)
