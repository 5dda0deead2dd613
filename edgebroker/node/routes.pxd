# C types for routes.py; the meaning is there.
cimport cython

from edgebroker.node.ledger cimport Ledger
from edgebroker.node.subscriptions cimport Copy, Subscription
from edgebroker.publication cimport Publication


cdef class Route:
    cdef Routes _routes
    cdef object _tree
    cdef dict _by_client, _by_number
    cdef public object extractor, nobody, resolution
    cdef public bint has_no_local
    cdef public tuple copies, groups
    cdef list _sharing
    cdef object _guard
    cdef bint _denies
    cdef public long long counted
    cdef long long _identified
    cpdef count(self, long long publications)
    @cython.locals(copies=tuple, without=list, has_no_local=bint, copy=Copy)
    cpdef tuple accept(self, Publication publication, Ledger ledger, now, long long leaving=*)
    cpdef tuple copies_for(self, Publication publication)
    @cython.locals(numbers=list, accepting=list, all_accepting=list, by_number=dict, subscription=Subscription, copies=dict)
    cdef tuple _wanted_by(self, Publication publication)
    cpdef gather(self)


cdef class Routes:
    cdef public object ask, closed, subscriptions, tree
    cdef public Publication asked
    cdef public Route asked_route
    cdef public tuple answer
    cdef public list accepting
    @cython.locals(subscription=Subscription)
    cdef count_accepting(self)
    cdef public long long epoch, work
    cdef dict _extractors, _known
    cdef long long _at_once, _tree_epoch, _ungathered_ends, _weight
    cdef list _ungathered, _released
    cdef object _births, _timers
    cpdef Route route(self, str topic)
    cpdef note(self, Route route)
    @cython.locals(ungathered=list, route=Route)
    cpdef gather(self)
    cpdef follow(self)
    cpdef forget(self)
    cpdef dict emptied(self, dict known)
    @cython.locals(known=dict)
    cpdef tidy(self)
