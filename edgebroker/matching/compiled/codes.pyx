# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Tests to code and back."""

from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.object cimport PyObject
from libc.math cimport INFINITY, rint
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy

from edgebroker.matching.cells import as_float, strings_of
from edgebroker.matching.interned import InternTable
from edgebroker.predicate import ElementaryTest, Interval, ValueType

cdef enum:
    ATTRIBUTES_MAX = 1 << 24

cdef object NULL_KIND = ValueType.NULL
cdef object NOT_NULL_KIND = ValueType.NOT_NULL
cdef object NUMBER_KIND = ValueType.NUMBER
cdef object BOOLEAN_KIND = ValueType.BOOLEAN


cdef class Interning:
    """What the code of tests refers to."""

    def __cinit__(self):
        self.names = InternTable()
        self.strings = InternTable()
        self.others = InternTable()
        self.name_numbers = self.names.numbers
        self.name_uses = self.names.uses
        self.string_numbers = self.strings.numbers
        self.string_uses = self.strings.uses

    cdef uint32_t take_name(self, object name) except? 0xFFFFFFFF:
        """The number of an attribute, used once more."""
        cdef PyObject* number = PyDict_GetItem(self.name_numbers, name)
        if number == NULL:
            return self.names.take(name)
        self.name_uses[<uint32_t><object>number] += 1
        return <uint32_t><object>number

    cdef uint32_t take_string(self, object text) except? 0xFFFFFFFF:
        """The number of a string, used once more."""
        cdef PyObject* number = PyDict_GetItem(self.string_numbers, text)
        if number == NULL:
            return self.strings.take(text)
        self.string_uses[<uint32_t><object>number] += 1
        return <uint32_t><object>number

    cdef int encode(self, object test, uint32_t* code) except -1:
        """Write *test* to *code*; return the units it takes, TEST_UNITS_MAX at most."""
        cdef uint32_t attribute = self.take_name(test.attribute)
        cdef object kind = test.kind
        cdef tuple intervals = test.intervals
        cdef int flags = 0
        cdef double low = 0.0
        cdef double high = 0.0
        if attribute >= ATTRIBUTES_MAX:
            raise ValueError("so many attributes cannot be told apart")
        if kind is NULL_KIND:
            code[0] = attribute << 8 | TESTS_NULL << 4
            return 1
        if kind is NOT_NULL_KIND:
            code[0] = attribute << 8 | TESTS_NOT_NULL << 4
            return 1
        if kind is BOOLEAN_KIND:
            flags = (ACCEPTS_FALSE if test.accepts(False) else 0) | (ACCEPTS_TRUE if test.accepts(True) else 0)
            code[0] = attribute << 8 | TESTS_BOOLEAN << 4 | flags
            return 1
        if len(intervals) == 1:
            interval = intervals[0]
            first, last = interval.low, interval.high
            if kind is NUMBER_KIND:
                if float_of(first, &low) and float_of(last, &high):
                    if first is not None:
                        flags |= HAS_LOW | (LOW_CLOSED if interval.low_closed else 0)
                    if last is not None:
                        flags |= HAS_HIGH | (HIGH_CLOSED if interval.high_closed else 0)
                    return encode_range(code, attribute, flags, low, high)
            elif not test.patterns and first is not None and first == last:
                code[0] = attribute << 8 | TESTS_STRING << 4
                code[1] = self.take_string(first)
                return 2
        for text in strings_of(test):
            self.take_string(text)
        code[0] = attribute << 8 | TESTS_OTHER << 4
        code[1] = self.others.take(test)
        return 2

    cdef object decode(self, uint32_t* code):
        """The test that *code* says."""
        cdef uint32_t head = code[0]
        cdef int kind = kind_of(head)
        cdef int flags = flags_of(head)
        cdef double low = 0.0
        cdef double high = 0.0
        name = self.names.values[attribute_of(head)]
        if kind == TESTS_NULL:
            return ElementaryTest(name, ValueType.NULL)
        if kind == TESTS_NOT_NULL:
            return ElementaryTest(name, ValueType.NOT_NULL)
        if kind == TESTS_BOOLEAN:
            accepted = [value for value, flag in ((False, ACCEPTS_FALSE), (True, ACCEPTS_TRUE)) if flags & flag]
            return ElementaryTest(name, ValueType.BOOLEAN, tuple([Interval(each, True, each, True) for each in accepted]))
        if kind == TESTS_STRING:
            text = self.strings.values[code[1]]
            return ElementaryTest(name, ValueType.STRING, (Interval(text, True, text, True),))
        if kind == TESTS_OTHER:
            return self.others.values[code[1]]
        bounds_of(code, &low, &high)
        interval = Interval(
            low if flags & HAS_LOW else None,
            bool(flags & LOW_CLOSED),
            high if flags & HAS_HIGH else None,
            bool(flags & HIGH_CLOSED),
        )
        return ElementaryTest(name, ValueType.NUMBER, (interval,))

    cdef int release(self, uint32_t* code) except -1:
        """Use what the test refers to once less."""
        self.names.drop(attribute_of(code[0]))
        if kind_of(code[0]) == TESTS_STRING:
            self.strings.drop(code[1])
        elif kind_of(code[0]) == TESTS_OTHER:
            for text in strings_of(self.others.values[code[1]]):
                self.strings.drop(self.string_numbers[text])
            self.others.drop(code[1])
        return 0


cdef bint float_of(object bound, double* number) except -1:
    """Whether *bound* is a finite float, or an integer that is one; None passes too."""
    if bound is None:
        return True
    if PyFloat_CheckExact(bound):
        number[0] = PyFloat_AS_DOUBLE(bound) + 0.0
    else:
        nearest, exact = as_float(bound)
        if not exact:
            return False
        number[0] = nearest
    return -INFINITY < number[0] < INFINITY


cdef int encode_range(uint32_t* code, uint32_t attribute, int flags, double low, double high) noexcept:
    """Write a range to *code*, as short as it can be said: people write bounds with few decimals. Return its units."""
    cdef int scale
    cdef int units = 1
    cdef int32_t short_low = 0
    cdef int32_t short_high = 0
    for scale in range(SCALES):
        if flags & HAS_LOW and not shortened(low, scale, &short_low):
            continue
        if flags & HAS_HIGH and not shortened(high, scale, &short_high):
            continue
        code[0] = attribute << 8 | (TESTS_SHORT + scale) << 4 | flags
        if flags & HAS_LOW:
            code[units] = <uint32_t>short_low
            units += 1
        if flags & HAS_HIGH:
            code[units] = <uint32_t>short_high
            units += 1
        return units
    code[0] = attribute << 8 | TESTS_RANGE << 4 | flags
    if flags & HAS_LOW:
        memcpy(&code[units], &low, 8)
        units += 2
    if flags & HAS_HIGH:
        memcpy(&code[units], &high, 8)
        units += 2
    return units


cdef bint shortened(double bound, int scale, int32_t* short) noexcept:
    """Whether *bound* is a signed unit divided by 10 to the *scale*: exactly what reading it back will give."""
    cdef double scaled = rint(bound * DIVISORS[scale])
    if not -2147483648.0 < scaled < 2147483648.0 or scaled / DIVISORS[scale] != bound:
        return False
    short[0] = <int32_t>scaled
    return True
