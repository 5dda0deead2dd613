# C types for held_numbers.py; the meaning is there.
cimport cython


cdef object _ONE


cdef class HeldNumbers:
    cdef dict _pages
    cpdef add(self, long long number)
    @cython.locals(taken=list, end=cython.longlong, page=cython.longlong, upto=cython.longlong, held=object, found=object, lowest=object)
    cpdef list remove_range(self, long long first, long long count)
