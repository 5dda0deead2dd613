# C types for head.py; the meaning is there.
cimport cython


@cython.locals(length=Py_ssize_t, size=Py_ssize_t, first=int)
cpdef bytes publish_head(
    bytes topic, int qos, bint retain, bint dup, bytes properties, Py_ssize_t payload_len, bint has_properties
)
