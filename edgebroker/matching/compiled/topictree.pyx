# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The topic part of the tree in C memory. What it means is said in its twin, edgebroker.matching.reference.topictree.

A node is 16 bytes: its parent, the level that leads to it, and what lies below. Most nodes are leaves, below which there
is an end and nothing else; others have a branch, 16 bytes more. Children are found by the hash of parent and level. The
path of a filter is thus held once, and the texts of levels once for the whole tree.
"""

from cpython.unicode cimport PyUnicode_READ
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

from edgebroker.matching.compiled.leveltexts cimport (
    LevelTexts, bytes_of_texts, drop_text, find_text, free_texts, key_of, open_texts, settle, stir, take_text, text_of,
)
from edgebroker.matching.compiled.records cimport (
    NONE, PART, Chains, Records, at, bytes_of_chains, bytes_of_records, chain, free_chains, free_records, give, head_of,
    is_held, open_chains, take, unchain,
)

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(str text)
    unsigned int PyUnicode_KIND(str text)
    void *PyUnicode_DATA(str text)
    Py_ssize_t PyUnicode_GET_LENGTH(str text)

cdef enum:
    ROOT = 0  # nobody's child: as a child it means none
    PLUS = 0  # the level `+`: texts are numbered from 1
    QUEUE_FIRST = 64

cdef uint32_t BRANCHED = <uint32_t> 1 << 31  # in Node.below: the number of a branch, not of an end
cdef uint32_t TAILED = <uint32_t> 1 << 31  # in End.place: the filter goes on with `#`


cdef struct Node:
    uint32_t next  # in its chain
    uint32_t parent
    uint32_t level
    uint32_t below  # NONE in the root only, as long as the tree is empty


cdef struct Branch:
    uint32_t own  # the end of the filter whose last level leads here
    uint32_t plus  # the child by `+`
    uint32_t tail  # the end of the filter that goes on with `#`
    uint32_t fan  # the number of other children


cdef struct End:
    uint32_t place  # the node it hangs on
    uint32_t uses


cdef inline uint32_t hash_of_edge(uint32_t parent, uint32_t level, uint64_t key) noexcept nogil:
    return settle(stir(parent, level, key))


cdef inline uint32_t hash_of_node(const void *record, uint64_t key) noexcept:
    return hash_of_edge((<const Node *> record).parent, (<const Node *> record).level, key)


cdef class TopicTree:
    """Topic filters by their levels; each has an end, a number to hang things on."""

    cdef Records _nodes, _branches, _ends
    cdef Chains _children
    cdef LevelTexts _texts
    cdef unsigned char *_octets
    cdef size_t _octets_room
    cdef uint32_t *_queue  # the nodes that match, level after level
    cdef uint32_t *_found
    cdef size_t _queue_room
    cdef public uint64_t steps

    def __cinit__(self):
        self._nodes.size = sizeof(Node)
        self._branches.size = sizeof(Branch)
        self._ends.size = sizeof(End)
        # Python keeps a secret for the hashes of strings: clients cannot know which texts collide.
        open_texts(&self._texts, key_of(hash("the texts of topic levels")))
        open_chains(&self._children, &self._nodes, hash_of_node, key_of(hash("the edges of a topic tree")))
        give(&self._nodes, take(&self._nodes))  # so that there is memory for the root
        self._make_room(QUEUE_FIRST)

    def __dealloc__(self):
        free_texts(&self._texts)
        free_chains(&self._children)
        free_records(&self._nodes)
        free_records(&self._branches)
        free_records(&self._ends)
        free(self._octets)
        free(self._queue)
        free(self._found)

    def __len__(self):
        return self._ends.live

    @property
    def nodes(self):
        return self._nodes.live + 1

    def bytes(self):
        cdef size_t scratch = self._octets_room + self._queue_room * 3 * sizeof(uint32_t)
        cdef size_t records = bytes_of_records(&self._nodes) + bytes_of_records(&self._branches)
        records += bytes_of_records(&self._ends) + bytes_of_chains(&self._children)
        return type(self).__basicsize__ + records + bytes_of_texts(&self._texts) + scratch

    # -- changes ------------------------------------------------------------------------------------------------------

    def add(self, topic_filter not None):
        cdef uint32_t node = ROOT
        cdef uint32_t end, child
        cdef size_t length, size
        cdef const unsigned char *text = self._encoded(topic_filter.text, &length)
        try:
            while True:
                size = size_of_level(text, length)
                if size == 1 and text[0] == c"#":
                    end = self._tail(node)
                    break
                child = self._child(node, text, size)
                node = child if child else self._new_child(node, text, size)
                if size == length:
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
        cdef size_t length, size
        cdef const unsigned char *text = self._encoded(topic_filter.text, &length)
        cdef Branch *branch
        while True:
            size = size_of_level(text, length)
            if size == 1 and text[0] == c"#":
                branch = self._branch(node)
                return <long long> branch.tail if branch != NULL and branch.tail else -1
            node = self._child(node, text, size)
            if not node:
                return -1
            if size == length:
                return <long long> self._own_end(node) or -1
            text += size + 1
            length -= size + 1

    def discard(self, end):
        cdef uint32_t number = self._checked(end)
        cdef End *record = <End *> at(&self._ends, number)
        record.uses -= 1
        if record.uses:
            return
        cdef uint32_t node = record.place & ~TAILED
        cdef Branch *branch = self._branch(node)
        if branch == NULL:
            (<Node *> at(&self._nodes, node)).below = NONE
        elif record.place & TAILED:
            branch.tail = NONE
        else:
            branch.own = NONE
        give(&self._ends, number)
        self._prune(node)

    # -- questions ----------------------------------------------------------------------------------------------------

    def ends(self, str topic not None):
        cdef size_t length, size, start, stop, end, count = 0
        cdef const unsigned char *text = self._encoded(topic, &length)
        cdef bint wild = not (length and text[0] == c"$")
        cdef bint is_read
        cdef uint32_t child, level = NONE
        cdef const Node *node
        cdef const Branch *branch
        self._queue[0] = ROOT
        start, stop = 0, 1
        while True:
            end = stop
            self._make_room(stop + 2 * (stop - start))
            size = size_of_level(text, length)
            is_read = False
            while start < end:
                node = <const Node *> at(&self._nodes, self._queue[start])
                if node.below & BRANCHED:
                    branch = <const Branch *> at(&self._branches, node.below & ~BRANCHED)
                    if branch.tail and wild:
                        self._found[count] = branch.tail
                        count += 1
                    if branch.fan:
                        if not is_read:
                            level = find_text(&self._texts, text, size)
                            is_read = True
                        child = self._literal(self._queue[start], level) if level else NONE
                        if child:
                            self._queue[stop] = child
                            stop += 1
                    if branch.plus and wild:
                        self._queue[stop] = branch.plus
                        stop += 1
                start += 1
            wild = True
            if start == stop or size == length:
                break
            text += size + 1
            length -= size + 1
        self.steps += stop
        for start in range(end, stop):
            node = <const Node *> at(&self._nodes, self._queue[start])
            if node.below & BRANCHED:
                branch = <const Branch *> at(&self._branches, node.below & ~BRANCHED)
                if branch.tail:
                    self._found[count] = branch.tail
                    count += 1
                if branch.own:
                    self._found[count] = branch.own
                    count += 1
            else:
                self._found[count] = node.below
                count += 1
        return [self._found[start] for start in range(count)]

    def filter_of(self, end):
        cdef uint32_t place = (<End *> at(&self._ends, self._checked(end))).place
        cdef uint32_t node = place & ~TAILED
        cdef list levels = ["#"] if place & TAILED else []
        cdef const Node *record
        while node:
            record = <const Node *> at(&self._nodes, node)
            levels.append(text_of(&self._texts, record.level) if record.level else "+")
            node = record.parent
        levels.reverse()
        return "/".join(levels)

    def children(self, node=ROOT):
        """As the twin, but in time proportional to all nodes where there are children: no list of them is kept."""
        if not isinstance(node, int) or not 0 <= node < 1 << 31 or not is_held(&self._nodes, node):
            raise KeyError(node)
        cdef uint32_t number = node, child, left
        cdef const Node *record = <const Node *> at(&self._nodes, number)
        if number and not record.below:
            raise KeyError(node)
        cdef const Branch *branch = self._branch(number)
        if branch == NULL:
            return []
        cdef list found = []
        left = branch.fan
        child = 1
        while left:
            if is_held(&self._nodes, child):
                record = <const Node *> at(&self._nodes, child)
                if record.parent == number and record.below and record.level != PLUS:
                    found.append((text_of(&self._texts, record.level), child))
                    left -= 1
            child += 1
        found.sort()
        if branch.plus:
            found.append(("+", branch.plus))
        edges = [(level, below, <long long> self._own_end(below) or -1) for level, below in found]
        if branch.tail:
            edges.append(("#", -1, branch.tail))
        return edges

    # -- nodes --------------------------------------------------------------------------------------------------------

    cdef inline Branch *_branch(self, uint32_t node) noexcept:
        """The branch below *node*, or NULL."""
        cdef uint32_t below = (<Node *> at(&self._nodes, node)).below
        return <Branch *> at(&self._branches, below & ~BRANCHED) if below & BRANCHED else NULL

    cdef Branch *_branched(self, uint32_t node) except NULL:
        """The branch below *node*, made if there is none. Raises MemoryError."""
        cdef Branch *branch = self._branch(node)
        cdef Node *record
        cdef uint32_t number
        if branch == NULL:
            number = take(&self._branches)
            record = <Node *> at(&self._nodes, node)
            branch = <Branch *> at(&self._branches, number)
            branch.own = record.below
            record.below = number | BRANCHED
        return branch

    cdef inline uint32_t _literal(self, uint32_t parent, uint32_t level) noexcept:
        """The child of *parent* by *level*, which is not PLUS; or NONE."""
        cdef uint32_t number = head_of(&self._children, hash_of_edge(parent, level, self._children.key))[0]
        cdef const Node *node
        while number:
            node = <const Node *> at(&self._nodes, number)
            if node.parent == parent and node.level == level:
                break
            number = node.next
        return number

    cdef uint32_t _child(self, uint32_t parent, const unsigned char *text, size_t size) noexcept:
        """The child of *parent* by the level *text*, or NONE."""
        cdef const Branch *branch = self._branch(parent)
        cdef uint32_t level
        if branch == NULL:
            return NONE
        if size == 1 and text[0] == c"+":
            return branch.plus
        level = find_text(&self._texts, text, size) if branch.fan else NONE
        return self._literal(parent, level) if level else NONE

    cdef uint32_t _new_child(self, uint32_t parent, const unsigned char *text, size_t size) except 0:
        """A child that was missing. It is bare: an end or a child must follow. Raises MemoryError."""
        cdef Branch *branch = self._branched(parent)
        cdef uint32_t child = take(&self._nodes)
        cdef Node *node = <Node *> at(&self._nodes, child)
        node.parent = parent
        if size == 1 and text[0] == c"+":
            branch.plus = child
            return child
        try:
            node.level = take_text(&self._texts, text, size)
        except MemoryError:
            give(&self._nodes, child)
            raise
        chain(&self._children, child, hash_of_node(node, self._children.key))
        branch.fan += 1
        return child

    cdef void _prune(self, uint32_t node) noexcept:
        """Take away *node* if it is bare, and what becomes bare by that; likewise branches without need."""
        cdef Node *record
        cdef Branch *branch
        cdef uint32_t parent
        while True:
            record = <Node *> at(&self._nodes, node)
            branch = self._branch(node)
            if branch != NULL and not (branch.plus or branch.tail or branch.fan):
                parent = record.below & ~BRANCHED
                record.below = branch.own
                give(&self._branches, parent)
            if node == ROOT or record.below:
                return
            parent = record.parent
            branch = self._branch(parent)
            if record.level == PLUS:
                branch.plus = NONE
            else:
                unchain(&self._children, node, hash_of_node(record, self._children.key))
                drop_text(&self._texts, record.level)
                branch.fan -= 1
            give(&self._nodes, node)
            node = parent

    # -- ends ---------------------------------------------------------------------------------------------------------

    cdef uint32_t _own_end(self, uint32_t node) noexcept:
        cdef const Branch *branch = self._branch(node)
        return branch.own if branch != NULL else (<const Node *> at(&self._nodes, node)).below

    cdef uint32_t _own(self, uint32_t node) except 0:
        """The end of the filter whose last level leads to *node*, made if there is none. Raises MemoryError."""
        cdef Branch *branch = self._branch(node)
        cdef uint32_t *own = &branch.own if branch != NULL else &(<Node *> at(&self._nodes, node)).below
        if not own[0]:
            own[0] = self._new_end(node)
        return own[0]

    cdef uint32_t _tail(self, uint32_t node) except 0:
        """The end of the filter that goes on with `#` at *node*, made if there is none. Raises MemoryError."""
        cdef Branch *branch = self._branched(node)
        if not branch.tail:
            branch.tail = self._new_end(node | TAILED)
        return branch.tail

    cdef uint32_t _new_end(self, uint32_t place) except 0:
        cdef uint32_t end = take(&self._ends)
        (<End *> at(&self._ends, end)).place = place
        return end

    cdef uint32_t _checked(self, end) except 0:
        """*end* itself, which must be in use. Raises KeyError."""
        if not 0 < end < 1 << 31 or not is_held(&self._ends, end) or not (<End *> at(&self._ends, end)).uses:
            raise KeyError(end)
        return end

    # -- scratch ------------------------------------------------------------------------------------------------------

    cdef const unsigned char *_encoded(self, str text, size_t *length) except NULL:
        """The octets of *text*, which stay until the next call or the end of *text*. Raises MemoryError."""
        cdef size_t size = PyUnicode_GET_LENGTH(text), position
        cdef const void *data = PyUnicode_DATA(text)
        if PyUnicode_IS_ASCII(text):
            length[0] = size
            return <const unsigned char *> data
        cdef unsigned int kind = PyUnicode_KIND(text)
        cdef void *room
        if self._octets_room < 4 * size:
            room = realloc(self._octets, 4 * size)
            if room == NULL:
                raise MemoryError
            self._octets = <unsigned char *> room
            self._octets_room = 4 * size
        cdef unsigned char *octet = self._octets
        for position in range(size):
            octet = encode(<uint32_t> PyUnicode_READ(kind, data, position), octet)
        length[0] = octet - self._octets
        return self._octets

    cdef int _make_room(self, size_t nodes) except -1:
        """Let the queue hold *nodes*, and found ends, of which a node has two. Raises MemoryError."""
        cdef uint32_t *queue
        if nodes <= self._queue_room:
            return 0
        nodes += nodes >> 1
        queue = <uint32_t *> realloc(self._queue, nodes * sizeof(uint32_t))
        if queue == NULL:
            raise MemoryError
        self._queue = queue
        queue = <uint32_t *> realloc(self._found, 2 * nodes * sizeof(uint32_t))
        if queue == NULL:
            raise MemoryError
        self._found = queue
        self._queue_room = nodes
        return 0


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
