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
    cdef list _matched_groups
    cdef object _read_access
    cdef bint _is_denying
    cdef public long long counted
    cdef long long _identifier_work
    cpdef count(self, long long publications)
    @cython.locals(copies=tuple, without=list, has_no_local=bint, copy=Copy)
    cpdef tuple accept(self, Publication publication, Ledger ledger, now, long long remote_copies=*, event=*)
    cpdef tuple copies_for(self, Publication publication)
    @cython.locals(numbers=list, accepting=list, all_accepting=list, by_number=dict, subscription=Subscription, copies=dict)
    cdef tuple _match(self, Publication publication)
    cpdef gather(self)


cdef class Routes:
    cdef public bint has_remote_members
    cdef public object ask, closed, subscriptions, tree, unreadable
    cdef public Publication matched_publication
    cdef public Route matched_route
    cdef public tuple matched_copies
    cdef public list accepting
    @cython.locals(subscription=Subscription)
    cdef count_accepting(self)
    cdef public long long arrays_too_long, epoch, topic_levels_max, work
    cdef dict _extractors, _by_topic
    cdef long long _release_step, _tree_epoch, _ungathered_ends, _weight
    cdef list _ungathered, _released
    cdef object _births, _timers
    cpdef Route route(self, str topic)
    cpdef add_ungathered(self, Route route)
    @cython.locals(ungathered=list, route=Route)
    cpdef gather(self)
    cpdef follow(self)
    cpdef forget(self)
    cpdef dict emptied(self, dict cache)
    @cython.locals(cache=dict)
    cpdef tidy(self)
