# C types for cells.py; the meaning is there.
cimport cython


cdef class Cells:
    cdef readonly list always, lower, lower_children, upper, upper_children, cuts, uses, holders, loose
    cdef readonly Py_ssize_t allowance, intervals, entries

    cpdef find(self, value, list found)
