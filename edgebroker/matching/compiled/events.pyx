# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The event that is being looked at, with C types. A value is read when the first test asks for it."""

from cpython.dict cimport PyDict_CheckExact, PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport Py_GE, Py_GT, Py_LE, Py_LT, PyObject, PyObject_RichCompareBool
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memset

from edgebroker.matching.compiled.codes cimport (
    ACCEPTS_FALSE,
    ACCEPTS_TRUE,
    HAS_HIGH,
    HAS_LOW,
    HIGH_CLOSED,
    LOW_CLOSED,
    TESTS_NOT_NULL,
    TESTS_NULL,
    TESTS_OTHER,
    TESTS_RANGE,
    TESTS_STRING,
    Interning,
    attribute_of,
    bounds_of,
    kind_of,
    length_of,
)

from edgebroker.predicate import Composite
from edgebroker.matching import cells
from edgebroker.matching.cells import as_float

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef long long EXACT_INTEGER_MAX = cells.EXACT_INTEGER_MAX


cdef class Event:
    """The attributes of one event after the other."""

    def __cinit__(self, Interning interning):
        self.interning = interning
        self.names = interning.names.values
        self.others = interning.others.values
        self.string_numbers = interning.strings.numbers
        self.now = 1

    def __dealloc__(self):
        PyMem_Free(self.values)
        PyMem_Free(self.verdicts)
        PyMem_Free(self.verdict_stamps)

    cdef int look_at(self, object attributes) except -1:
        """Make an event with *attributes* the one that is looked at."""
        cdef uint32_t room
        self.attributes = <dict>attributes if PyDict_CheckExact(attributes) else dict(attributes)
        room = len(self.names)
        if room > self.values_room:
            room += room // 4 + 16
            grown = <Value*>PyMem_Realloc(self.values, room * sizeof(Value))
            if not grown:
                raise MemoryError
            self.values = grown
            memset(&self.values[self.values_room], 0, (room - self.values_room) * sizeof(Value))
            self.values_room = room
        self.now += 1
        if self.now == 0:  # all stamps are worthless after 2**32 events
            memset(self.values, 0, self.values_room * sizeof(Value))
            memset(self.verdict_stamps, 0, self.verdicts_room * sizeof(uint32_t))
            self.now = 1
        return 0

    cdef int fill(self, uint32_t attribute) except -1:
        """Read the value of *attribute*."""
        cdef Value* value = &self.values[attribute]
        cdef PyObject* found = PyDict_GetItem(self.attributes, self.names[attribute])
        cdef long long whole
        cdef int overflow = 0
        value.stamp = self.now
        value.object = found
        value.inside = 0
        if found == NULL or found == <PyObject*>None:
            value.kind = IS_ABSENT
            return 0
        thing = <object>found
        if PyFloat_CheckExact(thing):
            value.number = PyFloat_AS_DOUBLE(thing)
            value.kind = IS_NUMBER if value.number == value.number else IS_COMPOSITE  # nothing compares with NaN
        elif PyUnicode_CheckExact(thing):
            self.fill_string(value, thing)
        elif PyLong_CheckExact(thing):
            value.kind = IS_NUMBER
            whole = PyLong_AsLongLongAndOverflow(thing, &overflow)
            if not overflow and -EXACT_INTEGER_MAX <= whole <= EXACT_INTEGER_MAX:
                value.number = whole
            else:
                self.fill_large(value, thing)
        elif thing is True or thing is False:
            value.kind = IS_TRUE if thing is True else IS_FALSE
        elif isinstance(thing, Composite):
            value.kind = IS_COMPOSITE
        elif isinstance(thing, str):
            self.fill_string(value, thing)
        else:
            value.kind = IS_NUMBER
            self.fill_large(value, thing)
        return 0

    cdef int fill_string(self, Value* value, object text) except -1:
        cdef PyObject* number = PyDict_GetItem(self.string_numbers, text)
        value.kind = IS_STRING
        value.string = -1 if number == NULL else <int32_t><object>number
        return 0

    cdef int fill_large(self, Value* value, object number) except -1:
        nearest, exact = as_float(number)
        value.number = nearest
        value.inside = not exact
        return 0

    cdef int passes(self, uint32_t* at, uint32_t* end) except -1:
        """Whether the event passes every test of the code from *at* to *end*."""
        cdef uint32_t head
        cdef Value* value
        cdef double low = 0.0
        cdef double high = 0.0
        cdef int kind
        while at < end:
            head = at[0]
            value = value_of(self, attribute_of(head))
            kind = kind_of(head)
            if kind >= TESTS_RANGE:
                if value.kind != IS_NUMBER:
                    return 0
                bounds_of(at, &low, &high)
                if head & HAS_LOW:
                    if value.number < low:
                        return 0
                    if value.number == low and not (
                        PyObject_RichCompareBool(<object>value.object, low, Py_GE if head & LOW_CLOSED else Py_GT)
                        if value.inside else head & LOW_CLOSED
                    ):
                        return 0
                if head & HAS_HIGH:
                    if value.number > high:
                        return 0
                    if value.number == high and not (
                        PyObject_RichCompareBool(<object>value.object, high, Py_LE if head & HIGH_CLOSED else Py_LT)
                        if value.inside else head & HIGH_CLOSED
                    ):
                        return 0
            elif kind == TESTS_STRING:
                if value.kind != IS_STRING or value.string != <int32_t>at[1]:
                    return 0
            elif kind == TESTS_OTHER:
                if not self.other_passes(at[1], value):
                    return 0
            elif kind == TESTS_NULL:
                if value.kind != IS_ABSENT:
                    return 0
            elif kind == TESTS_NOT_NULL:
                if value.kind == IS_ABSENT:
                    return 0
            elif not (value.kind == IS_FALSE and head & ACCEPTS_FALSE or value.kind == IS_TRUE and head & ACCEPTS_TRUE):
                return 0
            at += length_of(head)
        return 1

    cdef int other_passes(self, uint32_t test, Value* value) except -1:
        """Whether the rare test with number *test* accepts. Found once per event."""
        cdef uint32_t room
        cdef long long work
        if test >= self.verdicts_room:
            room = len(self.others) + 16
            stamps = <uint32_t*>PyMem_Realloc(self.verdict_stamps, room * sizeof(uint32_t))
            if not stamps:
                raise MemoryError
            self.verdict_stamps = stamps
            verdicts = <uint8_t*>PyMem_Realloc(self.verdicts, room)
            if not verdicts:
                raise MemoryError
            self.verdicts = verdicts
            memset(&stamps[self.verdicts_room], 0, (room - self.verdicts_room) * sizeof(uint32_t))
            self.verdicts_room = room
        if self.verdict_stamps[test] != self.now:
            asked = self.others[test]
            found = None if value.object == NULL else <object>value.object
            if value.kind == IS_STRING and asked.patterns:
                work = asked.pattern_work(found)
                self.pattern_work += work
                self.too_long += not work
            self.verdicts[test] = bool(asked.accepts(found))
            self.verdict_stamps[test] = self.now
        return self.verdicts[test]

    cdef size_t size(self) noexcept:
        """Bytes taken."""
        return self.values_room * sizeof(Value) + self.verdicts_room * (sizeof(uint32_t) + 1)
