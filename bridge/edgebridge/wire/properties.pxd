# C types for properties.py; the meaning is there.
cimport cython

from edgebridge.wire.fields cimport read_pair, read_variable


@cython.locals(
    length=Py_ssize_t, end=Py_ssize_t, octet=cython.uint, rules=dict, properties=dict, pairs=list, pair=tuple, values=list,
)
cpdef tuple read_properties(bytes body, Py_ssize_t at, carrier)
