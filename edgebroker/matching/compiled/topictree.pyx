# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The topic part of the tree in C memory. What it means is said in its twin, edgebroker.matching.reference.topictree.

A path is held once for all filters that go along it, the text of a level once for the whole tree, and per filter there
is an end of 8 bytes. Nodes are of three kinds. Most are leaves, which have an end and no children, or stems, which have
one child and nothing else: 16 bytes each. The others are forks of 32 bytes, whose children are found by the hash of
parent and level.

At a million filters nearly every look at a node, a chain or a text is a cache miss. So `ends` asks for what it will need
before it needs it, and a fork knows by a few bits which levels it surely has no child for.
"""

from cpython.unicode cimport PyUnicode_READ
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from edgebroker.matching.compiled.leveltexts cimport (
    LevelTexts, bytes_of_texts, drop_text, find_hashed, find_text, free_texts, hash_of_octets, key_of, open_texts,
    settle, stir, take_text, text_of,
)
from edgebroker.matching.compiled.records cimport (
    NONE, NUMBER, NUMBER_BITS, PART_BITS, Chains, Records, at, at_kind, bytes_of_chains, bytes_of_records, chain, free_chains, free_records, give,
    head_of, is_held, link_to, open_chains, prefetch, take, unchain,
)

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(str text)
    unsigned int PyUnicode_KIND(str text)
    void *PyUnicode_DATA(str text)
    Py_ssize_t PyUnicode_GET_LENGTH(str text)

cdef enum:
    LEAF = 0  # the kinds of nodes, the highest bits of their numbers
    STEM = 1
    FORK = 2
    KINDS = 3
    PLUS = 0  # the level `+`: texts are numbered from 1
    QUEUE_FIRST = 64
    LEVELS_FIRST = 16

cdef uint32_t ROOT = <uint32_t> FORK << NUMBER_BITS  # fork number 0, which is never given


cdef struct Node:
    uint32_t next  # in its chain, if the parent is a fork
    uint32_t parent
    uint32_t level  # that leads here from the parent
    uint32_t below  # of a leaf or a fork: the end of the filter whose last level leads here; of a stem: the child


cdef struct Fork:
    Node node
    uint32_t plus  # the child by `+`
    uint32_t tail  # the end of the filter that goes on with `#`
    uint32_t fan  # the number of other children
    uint32_t seen  # for every child, now or before, the bit of its level


cdef struct End:
    uint32_t place  # the node it hangs on
    uint32_t uses


cdef struct Piece:
    const unsigned char *text
    uint32_t size
    uint32_t level  # its hash at first, then its number


cdef inline uint32_t hash_of_edge(uint32_t parent, uint32_t level, uint64_t key) noexcept nogil:
    return settle(stir(parent, level, key))


cdef inline uint32_t hash_of_node(const void *record, uint64_t key) noexcept:
    return hash_of_edge((<const Node *> record).parent, (<const Node *> record).level, key)


cdef inline uint32_t kind_of(uint32_t number) noexcept nogil:
    return number >> NUMBER_BITS


cdef inline uint32_t bit_of(uint32_t level) noexcept nogil:
    return <uint32_t> 1 << (level & 31)


cdef class TopicTree:
    """Topic filters by their levels; each has an end, a number to hang things on."""

    cdef Records[KINDS] _nodes
    cdef Records _ends
    cdef Chains _children
    cdef LevelTexts _texts
    # What `ends` and `_encoded` write on.
    cdef unsigned char *_octets
    cdef Piece *_pieces
    cdef uint32_t *_queue  # the nodes that match, level after level
    cdef uint32_t *_found
    cdef size_t _octets_room, _pieces_room, _queue_room
    cdef public uint64_t steps

    def __cinit__(self):
        self._nodes[LEAF].size = self._nodes[STEM].size = sizeof(Node)
        self._nodes[FORK].size = sizeof(Fork)
        self._ends.size = sizeof(End)
        # Python keeps a secret for the hashes of strings: clients cannot know which texts collide.
        open_texts(&self._texts, key_of(hash("the texts of topic levels")))
        open_chains(&self._children, self._nodes, hash_of_node, key_of(hash("the edges of a topic tree")))
        give(&self._nodes[FORK], take(&self._nodes[FORK]))  # so that there is memory for the root
        self._make_room(QUEUE_FIRST, LEVELS_FIRST)

    def __dealloc__(self):
        free_texts(&self._texts)
        free_chains(&self._children)
        cdef uint32_t kind
        for kind in range(KINDS):
            free_records(&self._nodes[kind])
        free_records(&self._ends)
        free(self._octets)
        free(self._pieces)
        free(self._queue)
        free(self._found)

    def __len__(self):
        return self._ends.live

    @property
    def nodes(self):
        return 1 + self._nodes[LEAF].live + self._nodes[STEM].live + self._nodes[FORK].live

    def bytes(self):
        cdef size_t scratch = self._octets_room + self._pieces_room * sizeof(Piece)
        scratch += 3 * self._queue_room * sizeof(uint32_t)
        cdef size_t records = bytes_of_records(&self._ends)
        cdef uint32_t kind
        for kind in range(KINDS):
            records += bytes_of_records(&self._nodes[kind])
        records += bytes_of_chains(&self._children) + bytes_of_texts(&self._texts)
        return type(self).__basicsize__ + records + scratch

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(self, topic_filter not None):
        cdef uint32_t node = ROOT
        cdef uint32_t end, child
        cdef size_t length, size
        cdef str given = topic_filter.text
        cdef const unsigned char *text = self._encoded(given, &length)
        try:
            while True:
                size = size_of_level(text, length)
                if size == 1 and text[0] == c"#":
                    node = self._forked(node)
                    end = self._tail(node)
                    break
                child = self._child(node, text, size)
                if not child:
                    if kind_of(node) == LEAF or kind_of(node) == STEM and self._node(node).below:
                        node = self._forked(node)
                    child = self._new_child(node, text, size, LEAF if size == length else STEM)
                node = child
                if size == length:
                    if kind_of(node) == STEM:
                        node = self._forked(node)
                    end = self._own(node)
                    break
                text += size + 1
                length -= size + 1
        except MemoryError:
            self._prune(node)
            raise
        (<End *> at(&self._ends, end)).uses += 1
        return end

    def find(self, topic_filter not None):
        cdef uint32_t node = ROOT
        cdef uint32_t end
        cdef size_t length, size
        cdef str given = topic_filter.text
        cdef const unsigned char *text = self._encoded(given, &length)
        while True:
            size = size_of_level(text, length)
            if size == 1 and text[0] == c"#":
                end = self._fork(node).tail if kind_of(node) == FORK else NONE
                break
            node = self._child(node, text, size)
            end = self._own_end(node) if node else NONE
            if not node or size == length:
                break
            text += size + 1
            length -= size + 1
        return end if end else -1

    def discard(self, end):
        cdef uint32_t number = self._checked(end)
        cdef End *record = <End *> at(&self._ends, number)
        record.uses -= 1
        if record.uses:
            return
        cdef uint32_t node = record.place
        if self._is_tail(number):
            self._fork(node).tail = NONE
        else:
            self._node(node).below = NONE
        give(&self._ends, number)
        self._prune(node)

    # -- questions ----------------------------------------------------------------------------------------------------

    def ends(self, str topic not None):
        cdef size_t length, start = 0, stop = 1, stage = 0, count = 0, place
        cdef const unsigned char *text = self._encoded(topic, &length)
        cdef size_t levels = self._read_levels(text, length)
        cdef bint wild = not (length and text[0] == c"$")
        cdef uint32_t number, child, level
        cdef const Fork *fork
        self._queue[0] = ROOT
        while stage < levels and start < stop:
            level = self._pieces[stage].level
            stage += 1
            length = stop
            self._make_room(stop + 2 * (stop - start), 0)
            while start < length:
                number = self._queue[start]
                start += 1
                if kind_of(number) == STEM:
                    child = self._node(number).below
                    if self._node(child).level == level or self._node(child).level == PLUS:
                        self._queue[stop] = child
                        stop += 1
                elif kind_of(number) == FORK:
                    fork = self._fork(number)
                    if fork.tail and wild:
                        self._found[count] = fork.tail
                        count += 1
                    if level and fork.seen & bit_of(level):
                        child = self._literal(number, level)
                        if child:
                            self._queue[stop] = child
                            stop += 1
                    if fork.plus and wild:
                        prefetch(self._node(fork.plus))
                        self._queue[stop] = fork.plus
                        stop += 1
            wild = True
        self.steps += stop
        if stage < levels:
            start = stop
        while start < stop:
            number = self._queue[start]
            start += 1
            if kind_of(number) == FORK and self._fork(number).tail:
                self._found[count] = self._fork(number).tail
                count += 1
            child = self._own_end(number)
            if child:
                self._found[count] = child
                count += 1
        return [self._found[place] for place in range(count)]

    def filter_of(self, end):
        cdef uint32_t number = self._checked(end)
        cdef uint32_t node = (<End *> at(&self._ends, number)).place
        cdef list levels = ["#"] if self._is_tail(number) else []
        cdef const Node *record
        while node != ROOT:
            record = self._node(node)
            levels.append(text_of(&self._texts, record.level) if record.level else "+")
            node = record.parent
        levels.reverse()
        return "/".join(levels)

    def children(self, node=0):
        """As the twin, but in time proportional to all nodes where there are children: no list of them is kept."""
        cdef uint32_t number = self._checked_node(node) if node else ROOT
        cdef list edges = [self._edge(child) for child in self._children_of(number)]
        edges.sort()
        if kind_of(number) == FORK and self._fork(number).plus:
            edges.append(self._edge(self._fork(number).plus))
        if kind_of(number) == FORK and self._fork(number).tail:
            edges.append(("#", -1, self._fork(number).tail))
        return edges

    # -- nodes --------------------------------------------------------------------------------------------------------

    cdef inline Node *_node(self, uint32_t number) noexcept:
        return <Node *> at_kind(self._nodes, number)

    cdef inline Fork *_fork(self, uint32_t number) noexcept:
        return <Fork *> at(&self._nodes[FORK], number & NUMBER)

    cdef inline uint32_t _literal(self, uint32_t parent, uint32_t level) noexcept:
        """The child of *parent* by *level*, which is not PLUS; or NONE."""
        cdef uint32_t number = head_of(&self._children, hash_of_edge(parent, level, self._children.key))[0]
        cdef const Node *node
        while number:
            node = self._node(number)
            if node.parent == parent and node.level == level:
                break
            number = node.next
        return number

    cdef uint32_t _child(self, uint32_t parent, const unsigned char *text, size_t size) noexcept:
        """The child of *parent* by the level *text*, or NONE."""
        cdef uint32_t level = PLUS
        cdef uint32_t child
        if kind_of(parent) == LEAF:
            return NONE
        if size != 1 or text[0] != c"+":
            level = find_text(&self._texts, text, size)
            if not level:
                return NONE
        if kind_of(parent) == STEM:
            child = self._node(parent).below
            return child if child and self._node(child).level == level else NONE
        return self._fork(parent).plus if level == PLUS else self._literal(parent, level)

    cdef uint32_t _new_child(self, uint32_t parent, const unsigned char *text, size_t size, uint32_t kind) except 0:
        """A child that *parent*, a fork or a bare stem, lacked. It is bare itself: an end or a child must follow.

        Raises MemoryError.
        """
        cdef uint32_t child = take(&self._nodes[kind]) | kind << NUMBER_BITS
        cdef Node *node = self._node(child)
        node.parent = parent
        if size != 1 or text[0] != c"+":
            try:
                node.level = take_text(&self._texts, text, size)
            except MemoryError:
                give(&self._nodes[kind], child & NUMBER)
                raise
        if kind_of(parent) == STEM:
            self._node(parent).below = child
        else:
            self._join(parent, child)
        return child

    cdef void _join(self, uint32_t number, uint32_t child) noexcept:
        """Let *child*, whose parent is fork *number*, be found there."""
        cdef Fork *fork = self._fork(number)
        cdef const Node *node = self._node(child)
        if node.level == PLUS:
            fork.plus = child
        else:
            chain(&self._children, child, hash_of_node(node, self._children.key))
            fork.fan += 1
            fork.seen |= bit_of(node.level)

    cdef uint32_t _forked(self, uint32_t number) except 0:
        """The fork that *number* is, or that takes the place of the leaf or stem *number*. Raises MemoryError.

        It stays a fork as long as there is this node: to save 16 bytes is not worth the way back.
        """
        if kind_of(number) == FORK:
            return number
        cdef uint32_t forked = take(&self._nodes[FORK]) | <uint32_t> FORK << NUMBER_BITS
        cdef Node *node = self._node(forked)
        memcpy(node, self._node(number), sizeof(Node))
        cdef uint32_t below = node.below
        if kind_of(node.parent) == STEM:
            self._node(node.parent).below = forked
        elif node.level == PLUS:
            self._fork(node.parent).plus = forked
        else:
            link_to(&self._children, number, hash_of_node(node, self._children.key))[0] = forked
        if kind_of(number) == LEAF:
            (<End *> at(&self._ends, below)).place = forked
        else:
            node.below = NONE
            if below:
                self._node(below).parent = forked
                self._join(forked, below)
        give(&self._nodes[kind_of(number)], number & NUMBER)
        return forked

    cdef void _prune(self, uint32_t number) noexcept:
        """Take away node *number* if it is bare, and what becomes bare by that."""
        cdef const Node *node
        cdef Fork *fork
        cdef uint32_t parent
        while number != ROOT:
            node = self._node(number)
            fork = self._fork(number) if kind_of(number) == FORK else NULL
            if node.below or fork != NULL and (fork.plus or fork.tail or fork.fan):
                return
            parent = node.parent
            fork = self._fork(parent) if kind_of(parent) == FORK else NULL
            if fork == NULL:
                self._node(parent).below = NONE
            elif node.level == PLUS:
                fork.plus = NONE
            else:
                unchain(&self._children, number, hash_of_node(node, self._children.key))
                fork.fan -= 1
                if not fork.fan:
                    fork.seen = 0
            if node.level != PLUS:
                drop_text(&self._texts, node.level)
            give(&self._nodes[kind_of(number)], number & NUMBER)
            number = parent

    cdef uint32_t _checked_node(self, number) except 0:
        """*number* itself, which must be that of a node below the root. Raises KeyError."""
        if not 0 < number <= 0xFFFFFFFF:
            raise KeyError(number)
        cdef uint32_t node = number
        if kind_of(node) >= KINDS or not is_held(&self._nodes[kind_of(node)], node & NUMBER):
            raise KeyError(number)
        if self._node(node).parent == NONE:
            raise KeyError(number)
        return node

    cdef list _children_of(self, uint32_t parent):
        """All children of *parent* but that by `+`, or the child of the stem *parent*."""
        cdef uint32_t left, kind, index, number
        cdef const Node *node
        cdef list found = []
        if kind_of(parent) == STEM:
            return [self._node(parent).below]
        left = self._fork(parent).fan if kind_of(parent) == FORK else 0
        for kind in range(KINDS):
            for index in range(self._nodes[kind].count << PART_BITS):
                if not left:
                    return found
                if is_held(&self._nodes[kind], index):
                    number = index | kind << NUMBER_BITS
                    node = self._node(number)
                    if node.parent == parent and node.level != PLUS:
                        found.append(number)
                        left -= 1
        return found

    cdef tuple _edge(self, uint32_t child):
        """The edge to *child* as `children` says it."""
        cdef uint32_t level = self._node(child).level
        return (text_of(&self._texts, level) if level else "+", child, self._own_end(child) or -1)

    # -- ends ---------------------------------------------------------------------------------------------------------

    cdef inline bint _is_tail(self, uint32_t end) noexcept:
        """Whether the filter of *end* goes on with `#` after the node that it hangs on."""
        cdef uint32_t place = (<End *> at(&self._ends, end)).place
        return kind_of(place) == FORK and self._fork(place).tail == end

    cdef inline uint32_t _own_end(self, uint32_t number) noexcept:
        """The end of the filter whose last level leads to node *number*, or NONE."""
        return NONE if kind_of(number) == STEM else self._node(number).below

    cdef uint32_t _own(self, uint32_t number) except 0:
        """As `_own_end`, of a leaf or a fork, and made if there is none. Raises MemoryError."""
        cdef Node *node = self._node(number)
        if not node.below:
            node.below = self._new_end(number)
        return node.below

    cdef uint32_t _tail(self, uint32_t number) except 0:
        """The end of the filter that goes on with `#` at fork *number*, made if there is none. Raises MemoryError."""
        cdef Fork *fork = self._fork(number)
        if not fork.tail:
            fork.tail = self._new_end(number)
        return fork.tail

    cdef uint32_t _new_end(self, uint32_t place) except 0:
        cdef uint32_t end = take(&self._ends)
        (<End *> at(&self._ends, end)).place = place
        return end

    cdef uint32_t _checked(self, end) except 0:
        """*end* itself, which must be in use. Raises KeyError."""
        if not 0 < end <= NUMBER or not is_held(&self._ends, end) or not (<End *> at(&self._ends, end)).uses:
            raise KeyError(end)
        return end

    # -- texts --------------------------------------------------------------------------------------------------------

    cdef size_t _read_levels(self, const unsigned char *text, size_t length) except 0:
        """Cut *text* into pieces and find the number of each. Returns how many there are. Raises MemoryError.

        One pass would wait for memory at every level; three passes wait for all levels together.
        """
        cdef size_t count = 0, size, index
        cdef Piece *piece
        cdef uint32_t number
        while True:
            self._make_room(0, count + 1)
            piece = self._pieces + count
            count += 1
            size = size_of_level(text, length)
            piece.text = text
            piece.size = size
            piece.level = hash_of_octets(text, size, self._texts.chains.key)
            prefetch(head_of(&self._texts.chains, piece.level))
            if size == length:
                break
            text += size + 1
            length -= size + 1
        for index in range(count):
            number = head_of(&self._texts.chains, self._pieces[index].level)[0]
            if number:
                prefetch(at(&self._texts.records, number))
        for index in range(count):
            piece = self._pieces + index
            piece.level = find_hashed(&self._texts, piece.text, piece.size, piece.level)
        return count

    cdef const unsigned char *_encoded(self, str text, size_t *length) except NULL:
        """The octets of *text*, which stay until the next call or the end of *text*. Raises MemoryError."""
        cdef size_t size = PyUnicode_GET_LENGTH(text), position
        cdef const void *data = PyUnicode_DATA(text)
        if PyUnicode_IS_ASCII(text):
            length[0] = size
            return <const unsigned char *> data
        cdef unsigned int kind = PyUnicode_KIND(text)
        if self._octets_room < 4 * size:
            self._octets = <unsigned char *> moved(self._octets, 4 * size)
            self._octets_room = 4 * size
        cdef unsigned char *octet = self._octets
        for position in range(size):
            octet = encode(<uint32_t> PyUnicode_READ(kind, data, position), octet)
        length[0] = octet - self._octets
        return self._octets

    cdef int _make_room(self, size_t nodes, size_t levels) except -1:
        """Let there be room for *nodes* in the queue, two ends found for each, and *levels*. Raises MemoryError."""
        if levels > self._pieces_room:
            levels += levels >> 1
            self._pieces = <Piece *> moved(self._pieces, levels * sizeof(Piece))
            self._pieces_room = levels
        if nodes > self._queue_room:
            nodes += nodes >> 1
            self._queue = <uint32_t *> moved(self._queue, nodes * sizeof(uint32_t))
            self._found = <uint32_t *> moved(self._found, 2 * nodes * sizeof(uint32_t))
            self._queue_room = nodes
        return 0


cdef void *moved(void *memory, size_t size) except NULL:
    """*memory* made *size* bytes long. Raises MemoryError, and then all is as before."""
    memory = realloc(memory, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef inline size_t size_of_level(const unsigned char *text, size_t length) noexcept nogil:
    """The octets before the first slash."""
    cdef const void *slash = memchr(text, c"/", length)
    return length if slash == NULL else <const unsigned char *> slash - text


cdef inline unsigned char *encode(uint32_t point, unsigned char *octet) noexcept nogil:
    """Write *point* in UTF-8, also if it is a surrogate. Returns the place after it."""
    if point < 0x80:
        octet[0] = point
        return octet + 1
    if point < 0x800:
        octet[0] = 0xC0 | point >> 6
        octet[1] = 0x80 | point & 0x3F
        return octet + 2
    if point < 0x10000:
        octet[0] = 0xE0 | point >> 12
        octet[1] = 0x80 | point >> 6 & 0x3F
        octet[2] = 0x80 | point & 0x3F
        return octet + 3
    octet[0] = 0xF0 | point >> 18
    octet[1] = 0x80 | point >> 12 & 0x3F
    octet[2] = 0x80 | point >> 6 & 0x3F
    octet[3] = 0x80 | point & 0x3F
    return octet + 4
