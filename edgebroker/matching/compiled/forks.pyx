# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Forks with C types. The interface is that of the reference."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from edgebroker.matching.compiled.buckets cimport Bucket
from edgebroker.matching.compiled.codes cimport attribute_of, length_of
from edgebroker.matching.compiled.columns cimport Covered, close_column, column_bytes, cover, open_column
from edgebroker.matching.compiled.leaves cimport Leaves
from edgebroker.matching.compiled.members cimport LINK_WORDS_MAX
from edgebroker.matching.compiled.nodes cimport TreeNode, maybe_at, yes_at

import sys

cdef extern from *:
    int __builtin_popcountll(unsigned long long bits) noexcept


cdef class Fork(TreeNode):
    """A test of one attribute, with an edge for each set of cells that predicates below accept, and a `*` edge."""

    def __cinit__(self, Leaves leaves, cells, int span_max):
        self.leaves = leaves
        self.cut = cells
        self.span_max = span_max
        self.nodes = []
        self.stars = []
        self.is_fork = True
        if cells is not None:
            open_column(&self.column, cells)
            leaves.hold(cells)
        self.index_kids()

    def __dealloc__(self):
        close_column(&self.column)
        PyMem_Free(self.edges)
        PyMem_Free(self.kids)

    @property
    def cells(self):
        """What the fork tells apart. None: nothing, it has `*` edges only."""
        return self.cut

    def children(self):
        """All nodes to which edges lead, `*` last."""
        return self.nodes + self.stars

    def attach(self, unsigned long long edge, TreeNode node):
        """Let *edge* lead to *node*, whose leaves count from now on for this fork alone, not for those above."""
        cdef int used = len(self.nodes)
        node.parent = self
        node.edge = edge
        self.count += node.count
        if not edge:
            self.stars.append(node)
            return
        if used == self.edges_room:
            grown = <uint64_t*>PyMem_Realloc(self.edges, (used + used // 2 + 4) * sizeof(uint64_t))
            if not grown:
                raise MemoryError
            self.edges = grown
            self.edges_room = used + used // 2 + 4
        self.edges[used] = edge
        self.nodes.append(node)
        self.index_kids()

    def detach(self, TreeNode node):
        """Take away the edge to *node*."""
        cdef int place, other
        node.parent = None
        self.count -= node.count
        if not node.edge:
            self.stars.remove(node)
            return
        place = self.nodes.index(node)
        del self.nodes[place]
        for other in range(place, len(self.nodes)):
            self.edges[other] = self.edges[other + 1]
        self.index_kids()

    def swap(self, TreeNode old, TreeNode new):
        """Let the edge to *old* lead to *new*. Counts stay as they are."""
        new.parent = self
        new.edge = old.edge
        old.parent = None
        nodes = self.nodes if old.edge else self.stars
        nodes[nodes.index(old)] = new

    def discard(self):
        """Give back what the fork and all below hold, and let go of that, so that nothing is held in a circle."""
        cdef TreeNode node
        if self.cut is not None:
            self.leaves.let_go(self.cut)
        for node in self.children():
            node.parent = None
            (<object>node).discard()
        self.cut = None
        self.nodes, self.stars = [], []
        self.index_kids()

    def annotate(self):
        """Find the annotation from those of the children; say whether it changed."""
        cdef uint64_t[LINK_WORDS_MAX] yes
        cdef uint64_t[LINK_WORDS_MAX] reach
        cdef int words = self.leaves.link_words
        cdef int word, cell, kid
        cdef uint64_t here
        cdef TreeNode node
        cdef bint tests = self.cut is not None
        for word in range(words):
            yes[word] = <uint64_t>0xFFFFFFFFFFFFFFFF if tests else 0
            reach[word] = 0
            for cell in range(self.column.count):
                here = 0
                for kid in range(self.starts[cell], self.starts[cell + 1]):
                    here |= yes_at(<TreeNode>self.nodes[self.kids[kid]], word)
                yes[word] &= here
            for node in self.nodes:
                reach[word] |= yes_at(node, word) | maybe_at(node, word)
            for node in self.stars:
                yes[word] |= yes_at(node, word)
                reach[word] |= yes_at(node, word) | maybe_at(node, word)
        return self.take_over(yes, reach, words)

    def bytes(self):
        """Bytes taken, without the nodes below."""
        size = 300 + self.edges_room * 8 + 2 * self.starts[self.column.count + 1] + column_bytes(&self.column)
        size += sys.getsizeof(self.nodes) + sys.getsizeof(self.stars)
        return size if self.cut is None else size + self.cut.bytes()

    cdef unsigned long long edge_for(self, unsigned int leaf) except? 0xFFFFFFFFFFFFFFFF:
        cdef uint32_t* at = &self.leaves.pool[self.leaves.leaves[leaf].code]
        cdef uint32_t* end = at + self.leaves.leaves[leaf].units
        cdef Covered covered
        if self.cut is None:
            return 0
        while at < end:
            if attribute_of(at[0]) == self.column.attribute:
                cover(&self.column, self.cut, self.leaves.interning, at, &covered)
                return covered.cells if __builtin_popcountll(covered.cells) <= self.span_max else 0
            at += length_of(at[0])
        return 0

    cdef TreeNode child_at(self, unsigned long long edge):
        cdef int place
        if not edge:
            return <TreeNode>self.stars[len(self.stars) - 1] if self.stars else None
        for place in range(len(self.nodes)):
            if self.edges[place] == edge:
                return <TreeNode>self.nodes[place]
        return None

    cdef int index_kids(self) except -1:
        """Write down anew which nodes the values of each cell lead to."""
        cdef int used = len(self.nodes)
        cdef int place, cell
        cdef size_t total = 0
        for place in range(used):
            total += __builtin_popcountll(self.edges[place])
        kids = <uint16_t*>PyMem_Malloc((total + used + 1) * sizeof(uint16_t))
        if not kids:
            raise MemoryError
        PyMem_Free(self.kids)
        self.kids = kids
        total = 0
        for cell in range(self.column.count):
            self.starts[cell] = total
            for place in range(used):
                if self.edges[place] >> cell & 1:
                    kids[total] = place
                    total += 1
        self.starts[self.column.count] = total
        for place in range(used):
            kids[total + place] = place
        self.starts[self.column.count + 1] = total + used
        return 0


def plant(TreeNode root, unsigned int leaf):
    """The bucket below *root* where *leaf* belongs, made if there is none."""
    cdef Fork fork
    cdef TreeNode child
    cdef unsigned long long edge
    while root.is_fork:
        fork = <Fork>root
        edge = fork.edge_for(leaf)
        child = fork.child_at(edge)
        if child is None:
            child = Bucket(fork.leaves)
            fork.attach(edge, child)
        root = child
    return root


def root_of(TreeNode node):
    """The root of the tree in which *node* is."""
    while node.parent is not None:
        node = node.parent
    return node


def count_in(TreeNode node, long long leaves):
    """Count *leaves* more (or fewer) at all forks above *node*."""
    node = node.parent
    while node is not None:
        node.count += leaves
        node = node.parent


def gain(Bucket bucket, unsigned int leaf):
    """Bring the annotations of the path to *leaf* in *bucket* up to date, after members have joined it."""
    if bucket.gain(leaf) and bucket.parent is not None:
        annotate_up(bucket.parent)


def annotate_up(node):
    """Annotate *node* anew, and the path above it as far as something changes."""
    while node is not None and node.annotate():
        node = node.parent
