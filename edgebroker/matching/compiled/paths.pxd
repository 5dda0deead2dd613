"""The paths of topic filters: nodes, and the ends that hang on them.

A path is held once for all filters that go along it, the text of a level once for the whole tree, and per filter there
is an end of 8 bytes. Nodes are of three kinds. Most are leaves, which have an end and no children, or stems, which have
one child and nothing else: 16 bytes each. The others are forks of 32 bytes, whose children are found by the hash of
parent and level.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from edgebroker.matching.compiled.leveltexts cimport (
    LevelTexts,
    bytes_of_texts,
    drop_text,
    find_text,
    free_texts,
    key_of,
    open_texts,
    settle,
    stir,
    take_text,
)
from edgebroker.matching.compiled.records cimport (
    NONE,
    NUMBER,
    NUMBER_BITS,
    PART_BITS,
    Chains,
    Records,
    at,
    at_kind,
    bytes_of_chains,
    bytes_of_records,
    chain,
    free_chains,
    free_records,
    give,
    head_of,
    is_held,
    link_to,
    open_chains,
    take,
    unchain,
)

cdef enum:
    FORK = 0  # the kinds of nodes, the highest bits of their numbers
    LEAF = 1
    STEM = 2
    KINDS = 3
    ROOT = 0  # a fork, and nobody's child: as a child this number means none
    PLUS = 0  # the level `+`: texts are numbered from 1


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
    uint32_t seen  # the bits of their levels, and of levels of children that are gone


cdef struct End:
    uint32_t place  # the node it hangs on
    uint32_t uses


cdef struct Paths:
    Records[KINDS] nodes
    Records ends
    Chains children  # those of forks
    LevelTexts texts


cdef inline int open_paths(Paths *paths, Py_hash_t secret, Py_hash_t other) except -1:
    """Begin with a bare root. *paths*, all zero before, must stay where it is. Raises MemoryError."""
    paths.nodes[FORK].size = sizeof(Fork)
    paths.nodes[LEAF].size = paths.nodes[STEM].size = sizeof(Node)
    paths.ends.size = sizeof(End)
    open_texts(&paths.texts, key_of(secret))
    open_chains(&paths.children, paths.nodes, hash_of_node, key_of(other))
    give(&paths.nodes[FORK], take(&paths.nodes[FORK]))  # now there is memory for the root, which is never taken
    return 0


cdef inline void free_paths(Paths *paths) noexcept:
    cdef uint32_t kind
    for kind in range(KINDS):
        free_records(&paths.nodes[kind])
    free_records(&paths.ends)
    free_chains(&paths.children)
    free_texts(&paths.texts)


cdef inline size_t bytes_of_paths(const Paths *paths) noexcept nogil:
    cdef size_t count = bytes_of_records(&paths.ends) + bytes_of_chains(&paths.children) + bytes_of_texts(&paths.texts)
    cdef uint32_t kind
    for kind in range(KINDS):
        count += bytes_of_records(&paths.nodes[kind])
    return count


# -- nodes ------------------------------------------------------------------------------------------------------------

cdef inline uint32_t kind_of(uint32_t number) noexcept nogil:
    return number >> NUMBER_BITS


cdef inline uint32_t bit_of(uint32_t level) noexcept nogil:
    """The bit of *level* in `Fork.seen`: where it is not set there is no such child, and no need to look."""
    return <uint32_t> 1 << (level & 31)


cdef inline uint32_t hash_of_edge(uint32_t parent, uint32_t level, uint64_t key) noexcept nogil:
    return settle(stir(parent, level, key))


cdef inline uint32_t hash_of_node(const void *record, uint64_t key) noexcept:
    return hash_of_edge((<const Node *> record).parent, (<const Node *> record).level, key)


cdef inline Node *node_at(const Paths *paths, uint32_t number) noexcept:
    return <Node *> at_kind(paths.nodes, number)


cdef inline Fork *fork_at(const Paths *paths, uint32_t number) noexcept:
    return <Fork *> at(&paths.nodes[FORK], number & NUMBER)


cdef inline uint32_t literal_child(const Paths *paths, uint32_t parent, uint32_t level) noexcept:
    """The child of *parent* by *level*, which is not PLUS; or NONE."""
    cdef uint32_t number = head_of(&paths.children, hash_of_edge(parent, level, paths.children.key))[0]
    cdef const Node *node
    while number:
        node = node_at(paths, number)
        if node.parent == parent and node.level == level:
            break
        number = node.next
    return number


cdef inline uint32_t child_of(const Paths *paths, uint32_t parent, const unsigned char *text, size_t size) noexcept:
    """The child of *parent* by the level *text*, or NONE."""
    cdef uint32_t level = PLUS
    cdef uint32_t child
    if kind_of(parent) == LEAF:
        return NONE
    if size != 1 or text[0] != c"+":
        level = find_text(&paths.texts, text, size)
        if not level:
            return NONE
    if kind_of(parent) == STEM:
        child = node_at(paths, parent).below
        return child if child and node_at(paths, child).level == level else NONE
    return fork_at(paths, parent).plus if level == PLUS else literal_child(paths, parent, level)


cdef inline uint32_t new_child(
    Paths *paths, uint32_t parent, const unsigned char *text, size_t size, uint32_t kind
) except 0:
    """A child that *parent*, a fork or a bare stem, lacked. It is bare itself: an end or a child must follow.

    Raises MemoryError.
    """
    cdef uint32_t child = take(&paths.nodes[kind]) | kind << NUMBER_BITS
    cdef Node *node = node_at(paths, child)
    node.parent = parent
    if size != 1 or text[0] != c"+":
        try:
            node.level = take_text(&paths.texts, text, size)
        except MemoryError:
            give(&paths.nodes[kind], child & NUMBER)
            raise
    if kind_of(parent) == STEM:
        node_at(paths, parent).below = child
    else:
        join(paths, parent, child)
    return child


cdef inline void join(Paths *paths, uint32_t number, uint32_t child) noexcept:
    """Let *child*, whose parent is fork *number*, be found there."""
    cdef Fork *fork = fork_at(paths, number)
    cdef const Node *node = node_at(paths, child)
    if node.level == PLUS:
        fork.plus = child
    else:
        chain(&paths.children, child, hash_of_node(node, paths.children.key))
        fork.fan += 1
        fork.seen |= bit_of(node.level)


cdef inline uint32_t forked_at(Paths *paths, uint32_t number) except? 0:
    """The fork that *number* is, or that takes the place of the leaf or stem *number*. Raises MemoryError.

    It stays a fork as long as there is this node: to save 16 bytes is not worth the way back.
    """
    if kind_of(number) == FORK:
        return number
    cdef uint32_t forked = take(&paths.nodes[FORK])
    cdef Node *node = node_at(paths, forked)
    memcpy(node, node_at(paths, number), sizeof(Node))
    cdef uint32_t below = node.below
    if kind_of(node.parent) == STEM:
        node_at(paths, node.parent).below = forked
    elif node.level == PLUS:
        fork_at(paths, node.parent).plus = forked
    else:
        link_to(&paths.children, number, hash_of_node(node, paths.children.key))[0] = forked
    if kind_of(number) == LEAF:
        (<End *> at(&paths.ends, below)).place = forked
    else:
        node.below = NONE
        if below:
            node_at(paths, below).parent = forked
            join(paths, forked, below)
    give(&paths.nodes[kind_of(number)], number & NUMBER)
    return forked


cdef inline bint is_bare(const Paths *paths, uint32_t number) noexcept:
    """Whether nothing goes on from node *number* and no end hangs on it, as from no node below the root that is in use.
    """
    cdef const Fork *fork = fork_at(paths, number) if kind_of(number) == FORK else NULL
    return not (node_at(paths, number).below or fork != NULL and (fork.plus or fork.tail or fork.fan))


cdef inline void prune(Paths *paths, uint32_t number) noexcept:
    """Take away node *number* if it is bare, and what becomes bare by that."""
    cdef const Node *node
    cdef Fork *fork
    cdef uint32_t parent
    while number != ROOT:
        node = node_at(paths, number)
        if not is_bare(paths, number):
            return
        parent = node.parent
        fork = fork_at(paths, parent) if kind_of(parent) == FORK else NULL
        if fork == NULL:
            node_at(paths, parent).below = NONE
        elif node.level == PLUS:
            fork.plus = NONE
        else:
            unchain(&paths.children, number, hash_of_node(node, paths.children.key))
            fork.fan -= 1
            if not fork.fan:
                fork.seen = 0
        if node.level != PLUS:
            drop_text(&paths.texts, node.level)
        give(&paths.nodes[kind_of(number)], number & NUMBER)
        number = parent


cdef inline list children_of(const Paths *paths, uint32_t parent):
    """All children of *parent* but that by `+`, or the child of the stem *parent*."""
    cdef uint32_t left, kind, index, number
    cdef const Node *node
    cdef list found = []
    if kind_of(parent) == STEM:
        return [node_at(paths, parent).below]
    left = fork_at(paths, parent).fan if kind_of(parent) == FORK else 0
    for kind in range(KINDS):
        for index in range(paths.nodes[kind].count << PART_BITS):
            if not left:
                return found
            if is_held(&paths.nodes[kind], index):
                number = index | kind << NUMBER_BITS
                node = node_at(paths, number)
                if node.parent == parent and node.level != PLUS:
                    found.append(number)
                    left -= 1
    return found


# -- ends -------------------------------------------------------------------------------------------------------------

cdef inline bint is_tail(const Paths *paths, uint32_t end) noexcept:
    """Whether the filter of *end* goes on with `#` after the node that it hangs on."""
    cdef uint32_t place = (<End *> at(&paths.ends, end)).place
    return kind_of(place) == FORK and fork_at(paths, place).tail == end


cdef inline uint32_t own_end(const Paths *paths, uint32_t number) noexcept:
    """The end of the filter whose last level leads to node *number*, or NONE."""
    return NONE if kind_of(number) == STEM else node_at(paths, number).below


cdef inline uint32_t own_made(Paths *paths, uint32_t number) except 0:
    """As `own_end`, of a leaf or a fork, and made if there is none. Raises MemoryError."""
    cdef Node *node = node_at(paths, number)
    if not node.below:
        node.below = new_end(paths, number)
    return node.below


cdef inline uint32_t tail_made(Paths *paths, uint32_t number) except 0:
    """The end of the filter that goes on with `#` at fork *number*, made if there is none. Raises MemoryError."""
    cdef Fork *fork = fork_at(paths, number)
    if not fork.tail:
        fork.tail = new_end(paths, number)
    return fork.tail


cdef inline uint32_t new_end(Paths *paths, uint32_t place) except 0:
    cdef uint32_t end = take(&paths.ends)
    (<End *> at(&paths.ends, end)).place = place
    return end
