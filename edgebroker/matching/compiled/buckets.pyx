# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Buckets with C types: rows of machine words, so that one AND tests 64 predicates.

All rows lie in one block, of `room` words each: three for the state of the positions, then those of the columns, cell by
cell. The interface is that of the reference.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from edgebroker.matching.compiled.codes cimport attribute_of, length_of
from edgebroker.matching.compiled.columns cimport (
    Column,
    Covered,
    cell_of,
    close_column,
    column_bytes,
    cover,
    open_column,
)
from edgebroker.matching.compiled.events cimport value_of
from edgebroker.matching.compiled.forks cimport Fork
from edgebroker.matching.compiled.leaves cimport Leaf, Leaves
from edgebroker.matching.compiled.members cimport LINK_WORDS_MAX
from edgebroker.matching.compiled.nodes cimport TreeNode, maybe_at, yes_at

from edgebroker.matching.cells import BUCKET_LIMIT, CAPACITY_WORDS, COLUMNS_MAX, SAMPLE_MAX

assert BUCKET_LIMIT == 64 * WORDS_MAX and COLUMNS_MAX == COLUMNS_ROOM

cdef extern from *:
    """
    /* Two words, which is what every machine of interest has registers for; four of them are a line of the cache. */
    typedef unsigned long long edgebroker_pair __attribute__((vector_size(16), aligned(8), may_alias));
    #define EDGEBROKER_PAIR(words) (*(const edgebroker_pair*)(words))

    static int and_rows(uint64_t* left, const uint64_t** rows, int used, int words)
    {
        int word = 0;
        edgebroker_pair any = {0, 0};
        uint64_t some = 0;
        for (; word + 8 <= words; word += 8) {
            const uint64_t* row = rows[0] + word;
            edgebroker_pair a = EDGEBROKER_PAIR(row), b = EDGEBROKER_PAIR(row + 2);
            edgebroker_pair c = EDGEBROKER_PAIR(row + 4), d = EDGEBROKER_PAIR(row + 6);
            for (int next = 1; next < used; next++) {
                row = rows[next] + word;
                a &= EDGEBROKER_PAIR(row);
                b &= EDGEBROKER_PAIR(row + 2);
                c &= EDGEBROKER_PAIR(row + 4);
                d &= EDGEBROKER_PAIR(row + 6);
            }
            *(edgebroker_pair*)(left + word) = a;
            *(edgebroker_pair*)(left + word + 2) = b;
            *(edgebroker_pair*)(left + word + 4) = c;
            *(edgebroker_pair*)(left + word + 6) = d;
            any |= a | b | c | d;
        }
        for (; word < words; word++) {
            uint64_t here = rows[0][word];
            for (int next = 1; next < used; next++)
                here &= rows[next][word];
            left[word] = here;
            some |= here;
        }
        return (some | any[0] | any[1]) != 0;
    }
    """
    int and_rows(uint64_t* left, const uint64_t** rows, int used, int words) noexcept
    int __builtin_ctzll(unsigned long long bits) noexcept

cdef int[12] ROOMS = CAPACITY_WORDS


@cython.no_gc_clear  # it needs its leaves to the last
cdef class Bucket(TreeNode):
    """Up to BUCKET_LIMIT leaves."""

    def __cinit__(self, Leaves leaves):
        self.leaves = leaves
        self.cuts = ()
        self.rows_used = FIRST_ROW
        self.number = leaves.register(self)

    def __dealloc__(self):
        cdef int column
        if self.number:
            self.leaves.unregister(self.number)
        for column in range(self.columns_used):
            close_column(&self.columns[column])
        PyMem_Free(self.columns)
        PyMem_Free(self.slots)
        PyMem_Free(self.rows)
        PyMem_Free(self.reach)

    def tree_end(self):
        """The end of the topic filter whose tree this is in."""
        cdef TreeNode node = self
        while node.parent is not None:
            node = node.parent
        return node.end

    def add(self, uint32_t leaf):
        """Take in *leaf*. There must be room."""
        self.enter(self.place(leaf), leaf)

    cpdef int place(self, uint32_t leaf) except -1:
        """Give *leaf* a place only, and return it. It is found when the bucket has been cut anew, which must follow."""
        cdef Leaf* one = &self.leaves.leaves[leaf]
        cdef int word = 0
        cdef int position
        while word < self.room and self.rows[word] == <uint64_t>0xFFFFFFFFFFFFFFFF:
            word += 1
        if word == self.room:
            self.more_room()
        position = 64 * word + __builtin_ctzll(~self.rows[word])
        self.slots[position] = leaf
        one.home = self.number
        one.position = position
        self.rows[word] |= <uint64_t>1 << (position & 63)
        self.count += 1
        self.fresh += 1
        self.reach_out(position, leaf)
        return position

    def remove(self, uint32_t leaf):
        """Give up *leaf*."""
        cdef int position = self.leaves.leaves[leaf].position
        cdef uint64_t kept = ~(<uint64_t>1 << (position & 63))
        cdef int row
        for row in range(FIRST_ROW):
            self.rows[row * self.room + (position >> 6)] &= kept
        self.leaves.leaves[leaf].home = 0
        self.count -= 1

    def held(self):
        """The leaves here, by position."""
        cdef int position
        return [
            self.slots[position]
            for position in range(64 * self.room)
            if self.rows[position >> 6] >> (position & 63) & 1
        ]

    def cut(self, columns):
        """Make *columns* the columns. Leaves are put in the order of their links, so that few words have many."""
        cdef int column, position
        held = self.held()
        if self.leaves.greatest_link:
            held.sort(key=self.first_link)
        for cells in columns:
            self.leaves.hold(cells)
        self.discard()
        resized = <Column*>PyMem_Realloc(self.columns, max(1, len(columns)) * sizeof(Column))
        if not resized:
            raise MemoryError
        self.columns = resized
        self.rows_used = FIRST_ROW
        for cells in columns:
            open_column(&self.columns[self.columns_used], cells)
            self.columns[self.columns_used].first_row = self.rows_used
            self.rows_used += self.columns[self.columns_used].count
            self.columns_used += 1
        self.cuts = tuple(columns)
        self.fresh = 0
        PyMem_Free(self.rows)
        self.rows = <uint64_t*>PyMem_Calloc(self.rows_used * max(self.room, 1), sizeof(uint64_t))
        if not self.rows:
            raise MemoryError
        memset(self.reach, 0, self.room * sizeof(uint64_t))
        for position, leaf in enumerate(held):
            self.slots[position] = leaf
            self.leaves.leaves[<uint32_t>leaf].position = position
            self.rows[position >> 6] |= <uint64_t>1 << (position & 63)
            self.reach_out(position, leaf)
            self.enter(position, leaf)

    def discard(self):
        """Give back what the columns hold, before the bucket or its columns go."""
        cdef int column
        for cells in self.cuts:
            self.leaves.let_go(cells)
        for column in range(self.columns_used):
            close_column(&self.columns[column])
        self.columns_used = 0
        self.cuts = ()

    def first_link(self, uint32_t leaf):
        """The lowest link of the members of *leaf*; -1 if it has none yet."""
        cdef uint64_t[LINK_WORDS_MAX] links
        cdef int word
        memset(links, 0, sizeof(links))
        self.leaves.links_into(leaf, links)
        for word in range(self.leaves.link_words):
            if links[word]:
                return 64 * word + __builtin_ctzll(links[word])
        return -1

    def sample(self):
        """At most SAMPLE_MAX leaves, spread evenly over the positions: enough to find quantiles and shares."""
        held = self.held()
        return held[:: max(1, -(-len(held) // SAMPLE_MAX))]

    def annotate(self):
        """Find the annotation; say whether it changed."""
        cdef uint64_t[LINK_WORDS_MAX] yes
        cdef uint64_t[LINK_WORDS_MAX] reach
        cdef uint64_t[LINK_WORDS_MAX] known
        cdef int words = self.leaves.link_words
        cdef int word
        cdef uint64_t some = 0
        for word in range(words):
            known[word] = yes_at(self, word) | maybe_at(self, word)
            some |= known[word]
        memset(reach, 0, sizeof(reach))
        # `gain` has told what came, so that once annotated nothing is here that is not known: enough is all of that.
        self.collect_links(LIVE, reach, known if some else NULL)
        memset(yes, 0, sizeof(yes))
        self.collect_links(CERTAIN, yes, NULL)
        return self.take_over(yes, reach, words)

    def gain(self, uint32_t leaf):
        """Add the links of *leaf*, which has new members, to the annotation; say whether it changed."""
        cdef uint64_t[LINK_WORDS_MAX] yes
        cdef uint64_t[LINK_WORDS_MAX] reach
        cdef int words = self.leaves.link_words
        cdef int position = self.leaves.leaves[leaf].position
        cdef int word
        memset(yes, 0, sizeof(yes))
        memset(reach, 0, sizeof(reach))
        self.leaves.links_into(leaf, reach)
        self.reach_out(position, leaf)
        if self.rows[CERTAIN * self.room + (position >> 6)] >> (position & 63) & 1:
            memcpy(yes, reach, sizeof(yes))
        for word in range(words):
            yes[word] |= yes_at(self, word)
            reach[word] |= yes_at(self, word) | maybe_at(self, word)
        return self.take_over(yes, reach, words)

    @property
    def columns(self):
        """The cells of the columns."""
        return self.cuts

    def bytes(self):
        """Bytes taken."""
        cdef int column
        size = 200 + self.room * (64 * 4 + 8 + self.rows_used * 8) + self.columns_used * (8 + sizeof(Column))
        for column in range(self.columns_used):
            size += column_bytes(&self.columns[column])
        return size + sum([cells.bytes() for cells in self.cuts])

    cdef int more_room(self) except -1:
        """Have rows of the next size."""
        cdef int room, row
        for room in ROOMS:
            if room > self.room:
                break
        else:
            raise IndexError("the bucket is full")
        rows = <uint64_t*>PyMem_Calloc(self.rows_used * room, sizeof(uint64_t))
        if not rows:
            raise MemoryError
        for row in range(self.rows_used):
            memcpy(&rows[row * room], &self.rows[row * self.room], self.room * sizeof(uint64_t))
        PyMem_Free(self.rows)
        self.rows = rows
        slots = <uint32_t*>PyMem_Realloc(self.slots, 64 * room * sizeof(uint32_t))
        if not slots:
            raise MemoryError
        self.slots = slots
        reach = <uint64_t*>PyMem_Realloc(self.reach, room * sizeof(uint64_t))
        if not reach:
            raise MemoryError
        memset(&reach[self.room], 0, (room - self.room) * sizeof(uint64_t))
        self.reach = reach
        self.room = room
        return 0

    cdef int reach_out(self, int position, uint32_t leaf) except -1:
        """Note the links of *leaf* for its word."""
        cdef uint64_t[LINK_WORDS_MAX] links
        cdef int word
        memset(links, 0, sizeof(links))
        self.leaves.links_into(leaf, links)
        for word in range(self.leaves.link_words):
            self.reach[position >> 6] |= links[word]
        return 0

    cdef int enter(self, int position, uint32_t leaf) except -1:
        """Set the bits of *leaf*."""
        cdef uint32_t* at = &self.leaves.pool[self.leaves.leaves[leaf].code]
        cdef uint32_t* end = at + self.leaves.leaves[leaf].units
        cdef uint64_t[COLUMNS_ROOM] sets
        cdef uint64_t bit = <uint64_t>1 << (position & 63)
        cdef uint64_t* place
        cdef Covered covered
        cdef uint32_t attribute
        cdef int column, cell
        cdef bint loose = False
        cdef bint certain = True
        memset(sets, 0xFF, sizeof(sets))
        while at < end:
            if not self.is_settled(at):
                certain = False
                attribute = attribute_of(at[0])
                for column in range(self.columns_used):
                    if self.columns[column].attribute == attribute:
                        cover(&self.columns[column], self.cuts[column], self.leaves.interning, at, &covered)
                        sets[column] = covered.cells
                        loose |= not covered.exact
                        break
                else:
                    loose = True
            at += length_of(at[0])
        place = &self.rows[FIRST_ROW * self.room + (position >> 6)]
        for column in range(self.columns_used):
            for cell in range(self.columns[column].count):
                place[0] = place[0] | bit if sets[column] >> cell & 1 else place[0] & ~bit
                place += self.room
        place = &self.rows[position >> 6]
        if loose:
            place[LOOSE * self.room] |= bit
        if certain:
            place[CERTAIN * self.room] |= bit
        return 0

    cdef bint is_settled(self, uint32_t* test) except -1:
        """Whether every event that gets here passes *test*, because an edge on the way accepts just the same."""
        cdef TreeNode node = self
        cdef Fork fork
        cdef Covered covered
        while node.parent is not None:
            fork = <Fork>node.parent
            if node.edge and fork.column.attribute == attribute_of(test[0]):
                cover(&fork.column, fork.cut, self.leaves.interning, test, &covered)
                if covered.exact and covered.cells == node.edge:
                    return True
            node = fork
        return False

    cdef int collect_links(self, int row, uint64_t* words, uint64_t* enough) except -1:
        """Add the links of the leaves in *row* to *words*, until *enough* is found, if that is not NULL."""
        cdef int word, link_word
        cdef uint64_t left
        cdef uint64_t missing = 0
        if enough != NULL:
            for link_word in range(self.leaves.link_words):
                missing |= enough[link_word] & ~words[link_word]
        for word in range(self.room):
            if enough != NULL and not self.reach[word] & missing:
                continue
            left = self.rows[row * self.room + word]
            while left:
                self.leaves.links_into(self.slots[64 * word + __builtin_ctzll(left)], words)
                left &= left - 1
                if enough != NULL:
                    missing = 0
                    for link_word in range(self.leaves.link_words):
                        missing |= enough[link_word] & ~words[link_word]
                    if not missing:
                        return 0
        return 0

    cdef int narrow(self, uint64_t* left) except -1:
        """Leave in *left* the positions that all columns accept: 0 if none is left, 2 if all must be verified, else 1."""
        cdef const uint64_t* picked[ROWS_ROOM]
        cdef int column, cell
        cdef int used = 1
        cdef int outcome = 1
        picked[0] = self.rows
        for column in range(self.columns_used):
            cell = cell_of(&self.columns[column], value_of(self.leaves.event, self.columns[column].attribute))
            if cell < 0:
                outcome = 2
                continue
            picked[used] = &self.rows[(self.columns[column].first_row + cell) * self.room]
            used += 1
        return outcome if and_rows(left, picked, used, self.room) else 0
