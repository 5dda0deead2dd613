"""C types for ends.py: plain attributes without a dictionary."""

cdef class End:
    cdef readonly int number
    cdef readonly str text
    cdef public object content
    cdef public int subscriptions
    cdef public long long events
    cdef readonly object plain_links
    cdef object _single
    cdef object _single_link  # shifted, so no C integer
    cdef dict _links

    cpdef add_plain(self, object number, object link)
    cpdef bint remove_plain(self, object number) except -1
    cpdef list_plain(self, list found)

cdef class Resolution:
    cdef readonly long long epoch
    cdef readonly tuple ends
    cdef readonly tuple contents
    cdef object _names
    cdef tuple _plain
    cdef object _wanted
