# C types for sparkplug.py; the meaning is there.
cimport cython


@cython.locals(whole=cython.ulonglong, shift=int, octet=cython.ulonglong)
cdef tuple _varint(bytes payload, Py_ssize_t at, Py_ssize_t end)
