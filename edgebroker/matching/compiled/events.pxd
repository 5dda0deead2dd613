"""C types of an event that is being looked at."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t

from edgebroker.matching.compiled.codes cimport Interning

cdef enum ValueKind:
    IS_ABSENT
    IS_COMPOSITE
    IS_FALSE
    IS_TRUE
    IS_STRING
    IS_NUMBER

cdef struct Value:
    PyObject* object  # borrowed from the event
    double number  # the nearest float
    int32_t string  # UNKNOWN if no test names it
    uint32_t stamp  # the event it belongs to
    uint8_t kind
    uint8_t inside  # it lies between two floats

cdef class Event:
    cdef Interning interning
    cdef dict attributes
    cdef dict string_numbers
    cdef list names
    cdef list others
    cdef Value* values
    cdef uint32_t values_room
    cdef uint32_t now
    cdef uint32_t* verdict_stamps
    cdef uint8_t* verdicts
    cdef uint32_t verdicts_room
    cdef long long pattern_work, too_long

    cdef int look_at(self, object attributes) except -1
    cdef int fill(self, uint32_t attribute) except -1
    cdef int fill_string(self, Value* value, object text) except -1
    cdef int fill_large(self, Value* value, object number) except -1
    cdef int passes(self, uint32_t* at, uint32_t* end) except -1
    cdef int other_passes(self, uint32_t test, Value* value) except -1
    cdef size_t size(self) noexcept

cdef inline Value* value_of(Event event, uint32_t attribute) except NULL:
    cdef Value* value = &event.values[attribute]
    if value.stamp != event.now:
        event.fill(attribute)
    return value
