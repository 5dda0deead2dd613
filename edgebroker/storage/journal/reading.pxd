# C types for reading.py; the meaning is there.
cimport cython


@cython.locals(size=Py_ssize_t, behind=Py_ssize_t, last=Py_ssize_t, record=bytes, seeds=dict)
cpdef tuple read_records(
    bytes data, Py_ssize_t at, Py_ssize_t end, unsigned long long lsn, unsigned long long limit, salt, list records
)
