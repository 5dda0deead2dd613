# C types for fields.py; the meaning is there.
cimport cython


@cython.locals(end=Py_ssize_t)
cpdef tuple read_u16(bytes body, Py_ssize_t at)

@cython.locals(value=cython.uint, shift=cython.uint, octet=cython.uint)
cpdef tuple read_variable(bytes body, Py_ssize_t at)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t)
cpdef tuple read_binary(bytes body, Py_ssize_t at)

@cython.locals(start=Py_ssize_t, end=Py_ssize_t, text=str)
cpdef tuple read_text(bytes body, Py_ssize_t at)

cpdef tuple read_pair(bytes body, Py_ssize_t at)
