# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Leaves with C types: predicates as code in one pool, members without an object each.

The code of a predicate is a run of units of four bytes. A test is its head (attribute << 8 | kind << 4 | flags) and its
bounds. Equal predicates have equal code, because names, strings and rare tests are interned.
"""

cimport cython
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport Py_EQ, Py_GE, Py_GT, Py_LE, Py_LT, PyObject, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_CheckExact
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import sys

from edgebroker.event import Composite
from edgebroker.matching import cells
from edgebroker.matching.cells import as_float, strings_of
from edgebroker.matching.interned import Interned
from edgebroker.predicate import ElementaryTest, Interval, Kind

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef enum:
    UNITS_MAX = 4096  # of one predicate: 64 terms take 320 at most; larger ones only come past the filter language
    SEGMENTS = 64  # of the index; one grows at a time, which takes 30 us at 100,000 subscriptions
    ATTRIBUTES_MAX = 1 << 24

cdef long long EXACT_INTEGER_MAX = cells.EXACT_INTEGER_MAX

cdef object NULL_KIND = Kind.NULL
cdef object NOT_NULL_KIND = Kind.NOT_NULL
cdef object NUMBER_KIND = Kind.NUMBER
cdef object STRING_KIND = Kind.STRING
cdef object BOOLEAN_KIND = Kind.BOOLEAN


cdef class Members:
    """The members of a leaf that has, or had, several."""

    def __cinit__(self):
        self.links = {}
        self.counts = {}

    def __dealloc__(self):
        PyMem_Free(self.numbers)

    cdef int join(self, object number, int link) except -1:
        cdef Py_ssize_t used = len(self.links)
        if used == self.room:
            grown = <PyObject**>PyMem_Realloc(self.numbers, (used + used // 4 + 4) * sizeof(PyObject*))
            if not grown:
                raise MemoryError
            self.numbers = grown
            self.room = used + used // 4 + 4
        self.links[number] = link
        self.numbers[used] = <PyObject*>number
        self.counts[link] = self.counts.get(link, 0) + 1
        self.words[link >> 6] |= <uint64_t>1 << (link & 63)
        return 0

    cdef int leave(self, object number) except -1:
        cdef int link = self.links[number]
        cdef int left = self.counts[link] - 1
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t last = len(self.links) - 1
        while self.numbers[place] != <PyObject*>number and place < last:
            place += 1
        if self.numbers[place] != <PyObject*>number:  # an equal number, but another object
            place = 0
            while <object>self.numbers[place] != number:
                place += 1
        self.numbers[place] = self.numbers[last]
        del self.links[number]
        if left:
            self.counts[link] = left
        else:
            del self.counts[link]
            self.words[link >> 6] &= ~(<uint64_t>1 << (link & 63))
        return 0


cdef class NumberIndex:
    """Leaves by the number of their only member: open addressing, the key is looked up in the leaf itself."""

    def __cinit__(self):
        self.tables = <uint32_t**>PyMem_Calloc(SEGMENTS, sizeof(uint32_t*))
        self.sizes = <uint32_t*>PyMem_Calloc(SEGMENTS, sizeof(uint32_t))
        self.counts = <uint32_t*>PyMem_Calloc(SEGMENTS, sizeof(uint32_t))
        if not self.tables or not self.sizes or not self.counts:
            raise MemoryError

    def __dealloc__(self):
        cdef int segment
        if self.tables:
            for segment in range(SEGMENTS):
                PyMem_Free(self.tables[segment])
        PyMem_Free(self.tables)
        PyMem_Free(self.sizes)
        PyMem_Free(self.counts)


cdef inline uint64_t mixed(object number) except? 0:
    """The hash of a number, mixed: the topmost bits choose the segment, others the place."""
    return (<uint64_t>PyObject_Hash(number)) * <uint64_t>0x9E3779B97F4A7C15


cdef int insert_into(uint32_t* table, uint32_t size, uint64_t hashed, uint32_t entry) noexcept:
    cdef uint32_t place = <uint32_t>(((hashed & 0xFFFFFFFF) * size) >> 32)
    while table[place]:
        place += 1
        if place == size:
            place = 0
    table[place] = entry
    return 0


@cython.no_gc_clear  # buckets that die with it still call
cdef class Leaves:
    """All leaves of an engine by number, and what they share. The interface is that of the reference."""

    def __cinit__(self):
        self.names = Interned()
        self.strings = Interned()
        self.others = Interned()
        self.string_numbers = self.strings.numbers
        self.name_values = self.names.values
        self.index = NumberIndex()
        self.scattered = {}
        self.homes_free = []
        self.homes_used = 1
        self.link_words = 1
        self.leaves_free = 0xFFFFFFFF
        self.now = 1
        self.pool_free = <uint32_t*>PyMem_Malloc((UNITS_MAX + 1) * sizeof(uint32_t))
        if not self.pool_free:
            raise MemoryError
        memset(self.pool_free, 0xFF, (UNITS_MAX + 1) * sizeof(uint32_t))

    def __dealloc__(self):
        cdef uint32_t leaf
        if self.leaves:
            for leaf in range(self.leaves_used):
                Py_XDECREF(self.leaves[leaf].members)
        PyMem_Free(self.leaves)
        PyMem_Free(self.pool)
        PyMem_Free(self.pool_free)
        PyMem_Free(self.homes)
        PyMem_Free(self.values)
        PyMem_Free(self.verdicts)
        PyMem_Free(self.verdict_stamps)

    def __len__(self):
        return self.leaves_live

    # -- predicates -----------------------------------------------------------------------------------------------

    def create(self, predicate):
        """A leaf for *predicate*, in no bucket and without members."""
        cdef uint32_t[UNITS_MAX] code
        cdef uint32_t units = 0
        cdef uint32_t leaf
        for test in predicate:
            if units + 5 > UNITS_MAX:
                raise ValueError("a predicate of so many tests cannot be held")
            units += self.encode(test, &code[units])
        if self.leaves_free != 0xFFFFFFFF:
            leaf = self.leaves_free
            self.leaves_free = self.leaves[leaf].code
        else:
            if self.leaves_used == self.leaves_room:
                self.more_leaves()
            leaf = self.leaves_used
            self.leaves_used += 1
        memset(&self.leaves[leaf], 0, sizeof(Leaf))
        self.leaves[leaf].units = units
        self.leaves[leaf].code = self.room_for(units)
        memcpy(&self.pool[self.leaves[leaf].code], code, units * sizeof(uint32_t))
        self.leaves_live += 1
        return leaf

    def destroy(self, uint32_t leaf):
        """Give back *leaf*, which is in no bucket and has no members."""
        cdef uint32_t code = self.leaves[leaf].code
        cdef uint32_t end = code + self.leaves[leaf].units
        cdef uint32_t at = code
        cdef uint32_t head
        while at < end:
            head = self.pool[at]
            self.names.drop(attribute_of(head))
            if kind_of(head) == TESTS_STRING:
                self.strings.drop(self.pool[at + 1])
            elif kind_of(head) == TESTS_OTHER:
                for text in strings_of(self.others.values[self.pool[at + 1]]):
                    self.strings.drop(self.strings.numbers[text])
                self.others.drop(self.pool[at + 1])
            at += length_of(head)
        if self.leaves[leaf].units:
            self.pool[code] = self.pool_free[self.leaves[leaf].units]
            self.pool_free[self.leaves[leaf].units] = code
        self.leaves[leaf].code = self.leaves_free
        self.leaves[leaf].units = 0
        self.leaves_free = leaf
        self.leaves_live -= 1

    def predicate(self, uint32_t leaf):
        """The predicate of *leaf*, put together from its code."""
        cdef uint32_t at = self.leaves[leaf].code
        cdef uint32_t end = at + self.leaves[leaf].units
        tests = []
        while at < end:
            tests.append(self.decode(&self.pool[at]))
            at += length_of(self.pool[at])
        return tuple(tests)

    def attributes(self, uint32_t leaf):
        """The numbers of the attributes that *leaf* tests."""
        cdef uint32_t at = self.leaves[leaf].code
        cdef uint32_t end = at + self.leaves[leaf].units
        found = []
        while at < end:
            found.append(attribute_of(self.pool[at]))
            at += length_of(self.pool[at])
        return found

    cdef int encode(self, object test, uint32_t* code) except -1:
        """Write *test* to *code*; return the units it takes, 5 at most."""
        cdef uint32_t attribute = self.names.take(test.attribute)
        cdef object kind = test.kind
        cdef int flags = 0
        cdef int units = 1
        cdef double bound
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
        if len(test.intervals) == 1:
            interval = test.intervals[0]
            if kind is NUMBER_KIND:
                low, low_exact = (0.0, True) if interval.low is None else as_float(interval.low)
                high, high_exact = (0.0, True) if interval.high is None else as_float(interval.high)
                if low_exact and high_exact and -INFINITY < low < INFINITY and -INFINITY < high < INFINITY:
                    if interval.low is not None:
                        flags |= HAS_LOW | (LOW_CLOSED if interval.low_closed else 0)
                        bound = low
                        memcpy(&code[units], &bound, 8)
                        units += 2
                    if interval.high is not None:
                        flags |= HAS_HIGH | (HIGH_CLOSED if interval.high_closed else 0)
                        bound = high
                        memcpy(&code[units], &bound, 8)
                        units += 2
                    code[0] = attribute << 8 | TESTS_RANGE << 4 | flags
                    return units
            elif not test.patterns and interval.is_point:
                code[0] = attribute << 8 | TESTS_STRING << 4
                code[1] = self.strings.take(interval.low)
                return 2
        for text in strings_of(test):
            self.strings.take(text)
        code[0] = attribute << 8 | TESTS_OTHER << 4
        code[1] = self.others.take(test)
        return 2

    cdef object decode(self, uint32_t* code):
        cdef uint32_t head = code[0]
        cdef int kind = kind_of(head)
        cdef int flags = flags_of(head)
        cdef double bound
        cdef int at = 1
        name = self.names.values[attribute_of(head)]
        if kind == TESTS_NULL:
            return ElementaryTest(name, Kind.NULL)
        if kind == TESTS_NOT_NULL:
            return ElementaryTest(name, Kind.NOT_NULL)
        if kind == TESTS_BOOLEAN:
            accepted = [value for value, flag in ((False, ACCEPTS_FALSE), (True, ACCEPTS_TRUE)) if flags & flag]
            return ElementaryTest(name, Kind.BOOLEAN, tuple(Interval(each, True, each, True) for each in accepted))
        if kind == TESTS_STRING:
            text = self.strings.values[code[1]]
            return ElementaryTest(name, Kind.STRING, (Interval(text, True, text, True),))
        if kind == TESTS_OTHER:
            return self.others.values[code[1]]
        low = high = None
        if flags & HAS_LOW:
            memcpy(&bound, &code[at], 8)
            low = bound
            at += 2
        if flags & HAS_HIGH:
            memcpy(&bound, &code[at], 8)
            high = bound
        interval = Interval(low, bool(flags & LOW_CLOSED), high, bool(flags & HIGH_CLOSED))
        return ElementaryTest(name, Kind.NUMBER, (interval,))

    cdef uint32_t room_for(self, uint32_t units) except? 0xFFFFFFFF:
        """Where *units* units are free in the pool."""
        cdef uint32_t code = self.pool_free[units]
        cdef uint32_t room
        if code != 0xFFFFFFFF:
            self.pool_free[units] = self.pool[code]
            return code
        if self.pool_used + units > self.pool_room:
            room = self.pool_used + units + self.pool_room // 8 + 64
            if room < self.pool_used:
                raise MemoryError
            grown = <uint32_t*>PyMem_Realloc(self.pool, room * <size_t>sizeof(uint32_t))
            if not grown:
                raise MemoryError
            self.pool = grown
            self.pool_room = room
        code = self.pool_used
        self.pool_used += units
        return code

    cdef int more_leaves(self) except -1:
        cdef uint32_t room = self.leaves_room + self.leaves_room // 8 + 16
        grown = <Leaf*>PyMem_Realloc(self.leaves, room * <size_t>sizeof(Leaf))
        if not grown:
            raise MemoryError
        self.leaves = grown
        self.leaves_room = room
        return 0

    # -- members --------------------------------------------------------------------------------------------------

    def join(self, uint32_t leaf, object number, int link, bint several):
        """Make subscription *number* a member of *leaf*.  several: it is or will be one of other leaves too."""
        cdef Leaf* one = &self.leaves[leaf]
        cdef Members members
        if link >> 6 >= self.link_words:
            self.link_words = (link >> 6) + 1
        if several:
            one.several = 1
        if not one.members and not several:
            self.index_add(number, leaf)
            Py_INCREF(number)
            one.members = <PyObject*>number
            one.link = link
            return
        if not one.members:
            members = Members()
            Py_INCREF(members)
            one.members = <PyObject*>members
            one.many = 1
        elif not one.many:
            members = Members()
            first = <object>one.members
            members.join(first, one.link)
            self.index_remove(first)
            self.scattered[first] = (leaf,)
            Py_INCREF(members)
            one.members = <PyObject*>members
            one.many = 1
            Py_DECREF(first)
        members = <Members>one.members
        members.join(number, link)
        self.scattered[number] = (*self.scattered.get(number, ()), leaf)

    def quit(self, object number):
        """End the memberships of *number*; return the leaves it was a member of."""
        cdef int64_t only = self.index_find(number)
        cdef Leaf* one
        cdef Members members
        if only >= 0:
            self.index_remove(number)
            one = &self.leaves[only]
            held = <object>one.members
            one.members = NULL
            Py_DECREF(held)
            return (only,)
        leaves = self.scattered.pop(number, ())
        for leaf in leaves:
            one = &self.leaves[<uint32_t>leaf]
            members = <Members>one.members
            members.leave(number)
            if not members.links:
                one.members = NULL
                one.several = one.many = 0
                Py_DECREF(members)
        return leaves

    def leaves_of(self, object number):
        """The leaves that *number* is a member of."""
        cdef int64_t only = self.index_find(number)
        return (only,) if only >= 0 else self.scattered.get(number, ())

    def members_of(self, uint32_t leaf):
        """The members of *leaf*: subscription number -> link. Not to be changed."""
        cdef Leaf* one = &self.leaves[leaf]
        if not one.members:
            return {}
        if one.many:
            return (<Members>one.members).links
        return {<object>one.members: one.link}

    def is_several(self, uint32_t leaf):
        """Whether some member of *leaf* may be a member of other leaves."""
        return bool(self.leaves[leaf].several)

    def home(self, uint32_t leaf):
        """The bucket that holds *leaf*."""
        return <object>self.homes[self.leaves[leaf].home]

    def links(self, uint32_t leaf):
        """The links of the members, one bit each."""
        cdef uint64_t[LINK_WORDS_MAX] words
        memset(words, 0, sizeof(words))
        self.links_into(leaf, words)
        return sum(int(words[word]) << 64 * word for word in range(LINK_WORDS_MAX))

    cdef int links_into(self, uint32_t leaf, uint64_t* words) except -1:
        """Add the links of *leaf* to *words*."""
        cdef Leaf* one = &self.leaves[leaf]
        cdef Members members
        cdef int word
        if not one.members:
            return 0
        if one.many:
            members = <Members>one.members
            for word in range(self.link_words):
                words[word] |= members.words[word]
        else:
            words[one.link >> 6] |= <uint64_t>1 << (one.link & 63)
        return 0

    cdef int index_add(self, object number, uint32_t leaf) except -1:
        cdef uint64_t hashed = mixed(number)
        cdef int segment = hashed >> 58
        cdef NumberIndex index = self.index
        if (index.counts[segment] + 1) * 5 > index.sizes[segment] * 4:
            self.index_grow(segment)
        insert_into(index.tables[segment], index.sizes[segment], hashed, leaf + 1)
        index.counts[segment] += 1
        return 0

    cdef int index_grow(self, int segment) except -1:
        cdef NumberIndex index = self.index
        cdef uint32_t size = index.sizes[segment]
        cdef uint32_t larger = size + size // 4 + 8
        cdef uint32_t* old = index.tables[segment]
        cdef uint32_t* table = <uint32_t*>PyMem_Calloc(larger, sizeof(uint32_t))
        cdef uint32_t place
        if not table:
            raise MemoryError
        for place in range(size):
            if old[place]:
                insert_into(table, larger, mixed(<object>self.leaves[old[place] - 1].members), old[place])
        index.tables[segment] = table
        index.sizes[segment] = larger
        PyMem_Free(old)
        return 0

    cdef int64_t index_place(self, object number, uint64_t hashed) except -2:
        """The place of *number* in its segment, or -1."""
        cdef int segment = hashed >> 58
        cdef uint32_t size = self.index.sizes[segment]
        cdef uint32_t* table = self.index.tables[segment]
        cdef uint32_t place
        cdef PyObject* held
        if not size:
            return -1
        place = <uint32_t>(((hashed & 0xFFFFFFFF) * size) >> 32)
        while table[place]:
            held = self.leaves[table[place] - 1].members
            if held == <PyObject*>number or PyObject_RichCompareBool(<object>held, number, Py_EQ):
                return place
            place += 1
            if place == size:
                place = 0
        return -1

    cdef int64_t index_find(self, object number) except -2:
        """The leaf of which *number* is the only member, or -1."""
        cdef uint64_t hashed = mixed(number)
        cdef int64_t place = self.index_place(number, hashed)
        return -1 if place < 0 else <int64_t>self.index.tables[hashed >> 58][place] - 1

    cdef int index_remove(self, object number) except -1:
        """Forget *number*, which is there; what was pushed along moves back."""
        cdef uint64_t hashed = mixed(number)
        cdef int segment = hashed >> 58
        cdef uint32_t size = self.index.sizes[segment]
        cdef uint32_t* table = self.index.tables[segment]
        cdef uint32_t hole = <uint32_t>self.index_place(number, hashed)
        cdef uint32_t place = hole
        cdef uint32_t home
        while True:
            place += 1
            if place == size:
                place = 0
            if not table[place]:
                break
            hashed = mixed(<object>self.leaves[table[place] - 1].members)
            home = <uint32_t>(((hashed & 0xFFFFFFFF) * size) >> 32)
            if (place - home + size) % size >= (place - hole + size) % size:
                table[hole] = table[place]
                hole = place
        table[hole] = 0
        self.index.counts[segment] -= 1
        return 0

    # -- buckets --------------------------------------------------------------------------------------------------

    cdef uint32_t register(self, object bucket) except 0:
        """A number for *bucket*."""
        cdef uint32_t number, room
        if self.homes_free:
            number = self.homes_free.pop()
        else:
            if self.homes_used >= self.homes_room:
                room = self.homes_room + self.homes_room // 4 + 16
                grown = <PyObject**>PyMem_Realloc(self.homes, room * sizeof(PyObject*))
                if not grown:
                    raise MemoryError
                self.homes = grown
                self.homes_room = room
            number = self.homes_used
            self.homes_used += 1
        self.homes[number] = <PyObject*>bucket
        return number

    cdef void unregister(self, uint32_t number) noexcept:
        self.homes[number] = NULL
        self.homes_free.append(number)

    # -- the event ------------------------------------------------------------------------------------------------

    cdef int look_at(self, object attributes) except -1:
        """Make an event with *attributes* the one that is looked at."""
        cdef uint32_t room
        self.event = <dict>attributes if PyDict_CheckExact(attributes) else dict(attributes)
        room = len(self.name_values)
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
        cdef PyObject* found = PyDict_GetItem(self.event, self.name_values[attribute])
        cdef PyObject* number
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

    cdef int passes(self, uint32_t leaf) except -1:
        """Whether the event passes every test of *leaf*."""
        cdef uint32_t* at = &self.pool[self.leaves[leaf].code]
        cdef uint32_t* end = at + self.leaves[leaf].units
        cdef uint32_t head
        cdef Value* value
        cdef double bound
        cdef uint32_t* bounds
        cdef int kind
        while at < end:
            head = at[0]
            value = value_of(self, attribute_of(head))
            kind = kind_of(head)
            if kind == TESTS_RANGE:
                if value.kind != IS_NUMBER:
                    return 0
                bounds = at + 1
                if head & HAS_LOW:
                    memcpy(&bound, bounds, 8)
                    bounds += 2
                    if value.number < bound:
                        return 0
                    if value.number == bound and not (
                        PyObject_RichCompareBool(<object>value.object, bound, Py_GE if head & LOW_CLOSED else Py_GT)
                        if value.inside else head & LOW_CLOSED
                    ):
                        return 0
                if head & HAS_HIGH:
                    memcpy(&bound, bounds, 8)
                    if value.number > bound:
                        return 0
                    if value.number == bound and not (
                        PyObject_RichCompareBool(<object>value.object, bound, Py_LE if head & HIGH_CLOSED else Py_LT)
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
        if test >= self.verdicts_room:
            room = len(self.others.values) + 16
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
            self.verdicts[test] = bool(
                self.others.values[test].accepts(None if value.object == NULL else <object>value.object)
            )
            self.verdict_stamps[test] = self.now
        return self.verdicts[test]

    def bytes(self):
        """Bytes taken. The numbers of the subscriptions are the caller's."""
        cdef int segment
        cdef size_t size = self.leaves_room * sizeof(Leaf) + (self.pool_room + UNITS_MAX) * sizeof(uint32_t)
        size += self.values_room * sizeof(Value) + self.verdicts_room * 5 + self.homes_room * sizeof(PyObject*)
        for segment in range(SEGMENTS):
            size += self.index.sizes[segment] * sizeof(uint32_t)
        scattered = sys.getsizeof(self.scattered) + sum(map(sys.getsizeof, self.scattered.values()))
        return size + scattered + self.names.bytes() + self.strings.bytes() + self.others.bytes() + self.members_bytes()

    cdef object members_bytes(self):
        """Bytes of what leaves with several members hold."""
        cdef uint32_t leaf
        size = 0
        for leaf in range(self.leaves_used):
            if self.leaves[leaf].many:
                members = <Members>self.leaves[leaf].members
                size += members.room * sizeof(PyObject*) + sys.getsizeof(members) + sys.getsizeof(members.links) + sys.getsizeof(members.counts)
        return size
