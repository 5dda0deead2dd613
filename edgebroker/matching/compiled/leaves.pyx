# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Leaves with C types: predicates as code in one pool, members without an object each."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport Py_EQ, PyObject, PyObject_Hash, PyObject_RichCompareBool
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from edgebroker.matching.compiled.codes cimport TEST_UNITS_MAX, Interning, attribute_of, length_of
from edgebroker.matching.compiled.events cimport Event
from edgebroker.matching.compiled.indexes cimport Index
from edgebroker.matching.compiled.members cimport Members

import sys

cdef enum:
    UNITS_MAX = 4096  # of one predicate: 64 terms take 320 at most; larger ones only come past the filter language


cdef inline uint64_t number_hash(object number) except? 0:
    return <uint64_t>PyObject_Hash(number) * <uint64_t>0x9E3779B97F4A7C15


cdef uint64_t code_hash(int end, uint32_t* code, uint32_t units) noexcept:
    """The hash of a predicate on the topic filter *end*."""
    cdef uint64_t mixed = <uint64_t>end * <uint64_t>0xD6E8FEB86659FD93 + units
    cdef uint32_t unit
    for unit in range(units):
        mixed = (mixed ^ code[unit]) * <uint64_t>0x9E3779B97F4A7C15
        mixed ^= mixed >> 29
    return mixed * <uint64_t>0xD6E8FEB86659FD93


@cython.no_gc_clear  # buckets that die with it still call
cdef class Leaves:
    """All leaves of an engine by number, and what they share. The interface is that of the reference."""

    def __cinit__(self):
        self.interning = Interning()
        self.event = Event(self.interning)
        self.string_numbers = self.interning.strings.numbers
        self.by_number = Index()
        self.by_code = Index()
        self.scattered = {}
        self.homes_free = []
        self.homes_used = 1
        self.link_words = 1
        self.leaves_free = 0xFFFFFFFF
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

    def __len__(self):
        return self.leaves_live

    @property
    def names(self):
        """The names of attributes."""
        return self.interning.names

    @property
    def strings(self):
        """The strings that tests name."""
        return self.interning.strings

    # -- predicates -----------------------------------------------------------------------------------------------

    def create(self, predicate):
        """A leaf for *predicate*, in no bucket and without members."""
        cdef uint32_t[UNITS_MAX] code
        cdef uint32_t units = 0
        cdef uint32_t leaf
        for test in predicate:
            if units + TEST_UNITS_MAX > UNITS_MAX:
                raise ValueError("a predicate of so many tests cannot be held")
            units += self.interning.encode(test, &code[units])
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
        while at < end:
            self.interning.release(&self.pool[at])
            at += length_of(self.pool[at])
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
            tests.append(self.interning.decode(&self.pool[at]))
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

    def same(self, int end, uint32_t leaf):
        """The leaf listed for *end* with the predicate of *leaf*, or -1."""
        cdef Leaf* one = &self.leaves[leaf]
        cdef Leaf* other
        cdef uint32_t* code = &self.pool[one.code]
        cdef uint64_t hashed = code_hash(end, code, one.units)
        cdef uint32_t place = 0xFFFFFFFF
        cdef int64_t found = self.by_code.seek(hashed, &place)
        while found >= 0:
            other = &self.leaves[found]
            if (
                other.units == one.units
                and not memcmp(code, &self.pool[other.code], one.units * sizeof(uint32_t))
                and (<object>self.homes[other.home]).tree_end() == end
            ):
                return found
            found = self.by_code.seek(hashed, &place)
        return -1

    def enlist(self, int end, uint32_t leaf):
        """List *leaf* as the one for *end* with its predicate."""
        self.by_code.add(code_hash(end, &self.pool[self.leaves[leaf].code], self.leaves[leaf].units), leaf)

    def delist(self, int end, uint32_t leaf):
        """Take it off the list."""
        self.by_code.remove(code_hash(end, &self.pool[self.leaves[leaf].code], self.leaves[leaf].units), leaf)

    def hold(self, cells):
        """Keep the strings of *cells*: were their numbers given to others, those would inherit their cells."""
        for string in cells.strings:
            self.interning.strings.take(self.interning.strings.values[string])

    def let_go(self, cells):
        """Keep them no longer."""
        for string in cells.strings:
            self.interning.strings.drop(string)

    # -- members --------------------------------------------------------------------------------------------------

    def join(self, uint32_t leaf, object number, int link, bint several):
        """Make subscription *number* a member of *leaf*.  several: it is or will be one of other leaves too."""
        cdef Leaf* one = &self.leaves[leaf]
        cdef Members members
        if link > self.greatest_link:
            self.greatest_link = link
        if link >> 6 >= self.link_words:
            self.link_words = (link >> 6) + 1
        if several:
            one.several = 1
        if not one.members and not several:
            self.by_number.add(number_hash(number), leaf)
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
            self.by_number.remove(number_hash(first), leaf)
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
        cdef int64_t only = self.find(number)
        cdef Leaf* one
        cdef Members members
        if only >= 0:
            self.by_number.remove(number_hash(number), only)
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
        cdef int64_t only = self.find(number)
        return (only,) if only >= 0 else self.scattered.get(number, ())

    def members_of(self, uint32_t leaf):
        """The members of *leaf*: subscription number -> link. Not to be changed."""
        cdef Leaf* one = &self.leaves[leaf]
        if not one.members:
            return {}
        if one.many:
            return (<Members>one.members).links
        return {<object>one.members: one.link}

    def home(self, uint32_t leaf):
        """The bucket that holds *leaf*."""
        return <object>self.homes[self.leaves[leaf].home]

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

    cdef int64_t find(self, object number) except -2:
        """The leaf of which *number* is the only member, or -1."""
        cdef uint64_t hashed = number_hash(number)
        cdef uint32_t place = 0xFFFFFFFF
        cdef int64_t leaf = self.by_number.seek(hashed, &place)
        cdef PyObject* held
        while leaf >= 0:
            held = self.leaves[leaf].members
            if held == <PyObject*>number or PyObject_RichCompareBool(<object>held, number, Py_EQ):
                return leaf
            leaf = self.by_number.seek(hashed, &place)
        return -1

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

    # -- what searches took ---------------------------------------------------------------------------------------

    @property
    def pattern_work(self):
        """What patterns took so far, as `ElementaryTest.pattern_work` counts it."""
        return self.event.pattern_work

    @property
    def too_long(self):
        """Texts that were too long for the patterns of a test, once for each test."""
        return self.event.too_long

    # -- size -----------------------------------------------------------------------------------------------------

    def bytes(self):
        """Bytes taken. The numbers of the subscriptions are the caller's."""
        cdef uint32_t leaf
        cdef Members members
        size = self.leaves_room * sizeof(Leaf) + (self.pool_room + UNITS_MAX) * sizeof(uint32_t)
        size += self.homes_room * sizeof(PyObject*) + self.by_number.size() + self.by_code.size() + self.event.size()
        size += self.interning.names.bytes() + self.interning.strings.bytes() + self.interning.others.bytes()
        size += sys.getsizeof(self.scattered) + sum([sys.getsizeof(leaves) for leaves in self.scattered.values()])
        for leaf in range(self.leaves_used):
            if self.leaves[leaf].many:
                members = <Members>self.leaves[leaf].members
                size += members.room * sizeof(PyObject*) + sys.getsizeof(members)
                size += sys.getsizeof(members.links) + sys.getsizeof(members.counts)
        return size
