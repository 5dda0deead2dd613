# C types for cadence.py; the meaning is there.
cimport cython

cdef int EXPECTED_MAX, OFF_MAX, PERIOD_MAX, QUIET, REGULAR, STEADY, WAKE
cdef double CREDIT_MAX, EARLY, LATE, LEAD, LEAD_MAX


cdef class Beat:
    cdef public long long began, came, due
    cdef public bint is_expected
    cdef public double period
    cdef public int regular


cdef class Cadence:
    cdef list _expected
    cdef double _credit, _lead, _share
    cdef long long _aim, _credited
    cdef public bint is_on
    cdef public long long until
    @cython.locals(quiet="long long", interval="long long", off=double)
    cpdef came(self, Beat beat, long long now, bint was_asleep)
    @cython.locals(quiet="long long", due="long long")
    cpdef passed(self, Beat beat, long long now)
    cpdef forget(self, Beat beat)
    @cython.locals(due="long long", at=Py_ssize_t, beat=Beat)
    cpdef long long sleep(self, long long now) except -2
    cpdef waited(self, long long awake)
