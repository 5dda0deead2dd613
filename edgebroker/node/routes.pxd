# C types for routes.py; the meaning is there.
cimport cython

from edgebroker.node.ledger cimport Ledger
from edgebroker.node.subscriptions cimport Copy
from edgebroker.publication cimport Publication


cdef class Route:
    cdef object _tree
    cdef dict _by_number
    cdef public object resolution, extractor, nobody
    cdef public bint has_no_local
    cdef public list plain
    cdef public tuple copies
    cdef public long long counted
    @cython.locals(copies=tuple, without=list)
    cpdef tuple accept(self, Publication publication, Ledger ledger, now)
    @cython.locals(numbers=list, accepting=list)
    cpdef tuple copies_for(self, Publication publication)
    cpdef gather(self)


cdef class Routes:
    cdef object _tree, _subscriptions
    cdef dict _known
    cdef public long long epoch
    cpdef Route route(self, str topic)
    cpdef gather(self)
    cpdef forget(self)
