# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The topic part of the tree in C memory. What it means is said in its twin, edgebroker.matching.reference.topictree.

At a million filters nearly every look at a node, a chain or a text is a cache miss. So `ends` asks for the texts of all
levels at once before it needs them, a fork knows by a few bits which children it surely does not have, and the child of
a stem is found without a chain.
"""

from cpython.unicode cimport PyUnicode_READ
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from edgebroker.matching.compiled.leveltexts cimport (
    encode,
    find_hashed,
    hash_of_octets,
    size_of_level,
    text_of,
)
from edgebroker.matching.compiled.paths cimport (
    FORK,
    KINDS,
    LEAF,
    PLUS,
    ROOT,
    STEM,
    End,
    Fork,
    Node,
    Paths,
    bit_of,
    bytes_of_paths,
    child_of,
    children_of,
    fork_at,
    forked_at,
    free_paths,
    is_bare,
    is_tail,
    kind_of,
    literal_child,
    new_child,
    node_at,
    open_paths,
    own_end,
    own_made,
    prune,
    tail_made,
)
from edgebroker.matching.compiled.records cimport NONE, NUMBER, at, give, head_of, is_held, prefetch

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(str text)
    unsigned int PyUnicode_KIND(str text)
    void *PyUnicode_DATA(str text)
    Py_ssize_t PyUnicode_GET_LENGTH(str text)

cdef enum:
    QUEUE_FIRST = 64
    LEVELS_FIRST = 16


cdef struct Piece:
    const unsigned char *text
    uint32_t size
    uint32_t level  # its hash at first, then its number


cdef class TopicTree:
    """Topic filters by their levels; each has an end, a number to hang things on."""

    cdef Paths _paths
    # What `ends` and `_encoded` write on.
    cdef unsigned char *_octets
    cdef Piece *_pieces
    cdef uint32_t *_queue  # the nodes that match, level after level
    cdef uint32_t *_found
    cdef size_t _octets_room, _pieces_room, _queue_room
    cdef public uint64_t steps

    def __cinit__(self):
        # Python keeps a secret for the hashes of strings: clients cannot know which texts or paths collide.
        open_paths(&self._paths, hash("the texts of topic levels"), hash("the children of forks"))
        self._make_room(QUEUE_FIRST, LEVELS_FIRST)

    def __dealloc__(self):
        free_paths(&self._paths)
        free(self._octets)
        free(self._pieces)
        free(self._queue)
        free(self._found)

    def __len__(self):
        return self._paths.ends.live

    @property
    def nodes(self):
        return 1 + self._paths.nodes[LEAF].live + self._paths.nodes[STEM].live + self._paths.nodes[FORK].live

    def bytes(self):
        cdef size_t scratch = self._octets_room + self._pieces_room * sizeof(Piece)
        scratch += 3 * self._queue_room * sizeof(uint32_t)
        return type(self).__basicsize__ + bytes_of_paths(&self._paths) + scratch

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
                    node = forked_at(&self._paths, node)
                    end = tail_made(&self._paths, node)
                    break
                child = child_of(&self._paths, node, text, size)
                if not child:
                    if kind_of(node) == LEAF or kind_of(node) == STEM and node_at(&self._paths, node).below:
                        node = forked_at(&self._paths, node)
                    child = new_child(&self._paths, node, text, size, LEAF if size == length else STEM)
                node = child
                if size == length:
                    if kind_of(node) == STEM:
                        node = forked_at(&self._paths, node)
                    end = own_made(&self._paths, node)
                    break
                text += size + 1
                length -= size + 1
        except MemoryError:
            prune(&self._paths, node)
            raise
        (<End *> at(&self._paths.ends, end)).uses += 1
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
                end = fork_at(&self._paths, node).tail if kind_of(node) == FORK else NONE
                break
            node = child_of(&self._paths, node, text, size)
            end = own_end(&self._paths, node) if node else NONE
            if not node or size == length:
                break
            text += size + 1
            length -= size + 1
        return end if end else -1

    def discard(self, end):
        cdef uint32_t number = self._checked(end)
        cdef End *record = <End *> at(&self._paths.ends, number)
        record.uses -= 1
        if record.uses:
            return
        cdef uint32_t node = record.place
        if is_tail(&self._paths, number):
            fork_at(&self._paths, node).tail = NONE
        else:
            node_at(&self._paths, node).below = NONE
        give(&self._paths.ends, number)
        prune(&self._paths, node)

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
                    child = node_at(&self._paths, number).below
                    if node_at(&self._paths, child).level == level or node_at(&self._paths, child).level == PLUS:
                        self._queue[stop] = child
                        stop += 1
                elif kind_of(number) == FORK:
                    fork = fork_at(&self._paths, number)
                    if fork.tail and wild:
                        self._found[count] = fork.tail
                        count += 1
                    if level and fork.seen & bit_of(level):
                        child = literal_child(&self._paths, number, level)
                        if child:
                            self._queue[stop] = child
                            stop += 1
                    if fork.plus and wild:
                        prefetch(node_at(&self._paths, fork.plus))
                        self._queue[stop] = fork.plus
                        stop += 1
            wild = True
        self.steps += stop
        if stage < levels:
            start = stop
        while start < stop:
            number = self._queue[start]
            start += 1
            if kind_of(number) == FORK and fork_at(&self._paths, number).tail:
                self._found[count] = fork_at(&self._paths, number).tail
                count += 1
            child = own_end(&self._paths, number)
            if child:
                self._found[count] = child
                count += 1
        return [self._found[place] for place in range(count)]

    def filter_of(self, end):
        cdef uint32_t number = self._checked(end)
        cdef uint32_t node = (<End *> at(&self._paths.ends, number)).place
        cdef list levels = ["#"] if is_tail(&self._paths, number) else []
        cdef const Node *record
        while node != ROOT:
            record = node_at(&self._paths, node)
            levels.append(text_of(&self._paths.texts, record.level) if record.level else "+")
            node = record.parent
        levels.reverse()
        return "/".join(levels)

    def children(self, node=0):
        """As the twin, but in time proportional to all nodes where there are children: no list of them is kept."""
        cdef uint32_t number = self._checked_node(node) if node else ROOT
        cdef list edges = [self._edge(child) for child in children_of(&self._paths, number)]
        edges.sort()
        if kind_of(number) == FORK and fork_at(&self._paths, number).plus:
            edges.append(self._edge(fork_at(&self._paths, number).plus))
        if kind_of(number) == FORK and fork_at(&self._paths, number).tail:
            edges.append(("#", -1, fork_at(&self._paths, number).tail))
        return edges

    cdef uint32_t _checked_node(self, number) except 0:
        """*number* itself, which must be that of a node below the root. Raises KeyError."""
        if not 0 < number <= 0xFFFFFFFF:
            raise KeyError(number)
        cdef uint32_t node = number
        if kind_of(node) >= KINDS or not is_held(&self._paths.nodes[kind_of(node)], node & NUMBER):
            raise KeyError(number)
        if is_bare(&self._paths, node):
            raise KeyError(number)
        return node

    cdef tuple _edge(self, uint32_t child):
        """The edge to *child* as `children` says it."""
        cdef uint32_t level = node_at(&self._paths, child).level
        return (text_of(&self._paths.texts, level) if level else "+", child, own_end(&self._paths, child) or -1)

    cdef uint32_t _checked(self, end) except 0:
        """*end* itself, which must be in use. Raises KeyError."""
        if not 0 < end <= NUMBER or not is_held(&self._paths.ends, end):
            raise KeyError(end)
        if not (<End *> at(&self._paths.ends, end)).uses:
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
            piece.level = hash_of_octets(text, size, self._paths.texts.chains.key)
            prefetch(head_of(&self._paths.texts.chains, piece.level))
            if size == length:
                break
            text += size + 1
            length -= size + 1
        for index in range(count):
            number = head_of(&self._paths.texts.chains, self._pieces[index].level)[0]
            if number:
                prefetch(at(&self._paths.texts.records, number))
        for index in range(count):
            piece = self._pieces + index
            piece.level = find_hashed(&self._paths.texts, piece.text, piece.size, piece.level)
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
