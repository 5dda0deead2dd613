# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The searches of a content tree with C types. The interface is that of the reference."""

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from edgebroker.matching.compiled.buckets cimport LOOSE, WORDS_MAX, Bucket
from edgebroker.matching.compiled.forks cimport Fork, branch
from edgebroker.matching.compiled.leaves cimport Leaf, Leaves, passes
from edgebroker.matching.compiled.members cimport LINK_WORDS_MAX, Members
from edgebroker.matching.compiled.nodes cimport TreeNode, maybe_at, yes_at

from edgebroker.matching.outcomes import MatchResult

cdef extern from *:
    int __builtin_ctzll(unsigned long long bits) noexcept
    void __builtin_prefetch(const void* address) noexcept

cdef enum:
    BATCH = 16  # leaves looked at together

cdef uint32_t LOOSE_FLAG = 1U << 31  # on a leaf of a batch: it must be verified


cdef class Harvest:
    """The members found so far: borrowed from leaves, which stay as they are while a search runs."""

    cdef PyObject** numbers
    cdef Py_ssize_t used, room
    cdef dict several  # members that may be found again

    def __dealloc__(self):
        PyMem_Free(self.numbers)

    cdef int more(self, Py_ssize_t wanted) except -1:
        cdef Py_ssize_t room = self.used + wanted + self.room + 64
        grown = <PyObject**>PyMem_Realloc(self.numbers, room * sizeof(PyObject*))
        if not grown:
            raise MemoryError
        self.numbers = grown
        self.room = room
        return 0

    cdef int take(self, Leaf* leaf) except -1:
        """Take all members of *leaf*."""
        cdef Members members
        cdef Py_ssize_t count
        if not leaf.many:
            if self.used == self.room:
                self.more(1)
            self.numbers[self.used] = leaf.members
            self.used += 1
            return 0
        members = <Members>leaf.members
        if leaf.several:
            self.several.update(members.links)
            return 0
        count = len(members.links)
        if self.used + count > self.room:
            self.more(count)
        memcpy(&self.numbers[self.used], members.numbers, count * sizeof(PyObject*))
        self.used += count
        return 0

    cdef int take_local(self, Leaf* leaf, int local) except -1:
        """Take the members of *leaf* that are reached over the link *local*."""
        if leaf.many:
            links = (<Members>leaf.members).links
            self.several.update({number: link for number, link in links.items() if link == local})
        elif leaf.link == local:
            if self.used == self.room:
                self.more(1)
            self.numbers[self.used] = leaf.members
            self.used += 1
        return 0

    cdef list gathered(self):
        """All of them, each once; then start anew."""
        cdef Py_ssize_t place
        cdef list found = PyList_New(self.used)
        for place in range(self.used):
            number = <object>self.numbers[place]
            Py_INCREF(number)
            PyList_SET_ITEM(found, place, number)
        if self.several:
            found += self.several
        return found


cdef Harvest basket = Harvest()  # one is enough: a search neither waits nor calls itself


def match(Leaves leaves, trees, attributes):
    """The members, each once, of all leaves of *trees* that accept an event with *attributes*."""
    basket.used = 0
    basket.several = {}
    leaves.event.look_at(attributes)
    for tree in trees:
        collect(leaves, <TreeNode>tree.root, False, basket)
    return basket.gathered()


def decide(Leaves leaves, trees, attributes, mask):
    """The links of *mask* (one bit each) over which some leaf of *trees* accepts an event with *attributes*."""
    cdef uint64_t[LINK_WORDS_MAX] open_
    cdef uint64_t[LINK_WORDS_MAX] yes
    words_of(mask, open_)
    memset(yes, 0, leaves.link_words * sizeof(uint64_t))
    leaves.event.look_at(attributes)
    for tree in trees:
        close(leaves, <TreeNode>tree.root, False, open_, yes)
    return number_of(yes, leaves.link_words)


def route(Leaves leaves, trees, attributes, mask, int local):
    """`match` for the members over the link *local*, and `decide` for the links of *mask*, in one walk."""
    cdef uint64_t[LINK_WORDS_MAX] open_
    cdef uint64_t[LINK_WORDS_MAX] yes
    words_of(mask, open_)
    memset(yes, 0, leaves.link_words * sizeof(uint64_t))
    basket.used = 0
    basket.several = {}
    leaves.event.look_at(attributes)
    for tree in trees:
        both(leaves, <TreeNode>tree.root, False, open_, yes, local, basket)
    return MatchResult(basket.gathered(), number_of(yes, leaves.link_words))


cdef int words_of(object mask, uint64_t* words) except -1:
    cdef int word = 0
    memset(words, 0, LINK_WORDS_MAX * sizeof(uint64_t))
    if mask < 0 or mask.bit_length() <= 64:
        words[0] = mask & <object>0xFFFFFFFFFFFFFFFF
        return 0
    while mask and word < LINK_WORDS_MAX:
        words[word] = mask & 0xFFFFFFFFFFFFFFFF
        mask >>= 64
        word += 1
    return 0


cdef object number_of(uint64_t* words, int used):
    if used == 1:
        return words[0]
    return sum([int(words[word]) << 64 * word for word in range(used)])


cdef int gather(
    Leaves leaves, Bucket bucket, uint64_t* left, int outcome, int* at, uint64_t* reach, uint64_t wanted, uint32_t* batch
) noexcept:
    """Move the next leaves of *left*, from word *at* on, to *batch*; return how many, 0 at the end.

    With *reach* only from words that reach some of the links *wanted*: cutting has put leaves of one link side by side.

    Leaves lie anywhere in memory, and so does their code: both are asked for before the first of the batch is looked
    at, which hides most of the waiting.
    """
    cdef int used = 0
    cdef int word = at[0]
    cdef int place
    cdef uint64_t bits, loose
    cdef uint32_t leaf
    cdef Leaf* one
    while word < bucket.room and used < BATCH:
        bits = left[word]
        if not bits or (reach != NULL and not reach[word] & wanted):
            word += 1
            continue
        loose = bucket.rows[LOOSE * bucket.room + word] if outcome == 1 else <uint64_t>0xFFFFFFFFFFFFFFFF
        while bits and used < BATCH:
            place = __builtin_ctzll(bits)
            leaf = bucket.slots[64 * word + place]
            __builtin_prefetch(&leaves.leaves[leaf])
            batch[used] = leaf | (LOOSE_FLAG if loose >> place & 1 else 0)
            used += 1
            bits &= bits - 1
        left[word] = bits
        if not bits:
            word += 1
    at[0] = word
    for place in range(used):
        one = &leaves.leaves[batch[place] & ~LOOSE_FLAG]
        if batch[place] & LOOSE_FLAG:
            __builtin_prefetch(&leaves.pool[one.code])
            __builtin_prefetch(&leaves.pool[one.code + 16])
        else:
            __builtin_prefetch(one.members)
    return used


cdef int collect(Leaves leaves, TreeNode node, bint doubtful, Harvest harvest) except -1:
    """Take the members of all leaves at and below *node* that accept the event.

    doubtful: an edge on the way was followed because the value lies between two floats; nothing below is settled.
    """
    cdef uint64_t[WORDS_MAX] left
    cdef Bucket bucket
    cdef Fork fork
    cdef uint32_t[BATCH] batch
    cdef int word, outcome, kid, first, last, used, place
    cdef bint doubt = doubtful
    cdef uint32_t leaf
    leaves.steps += 1
    if node.is_fork:
        fork = <Fork>node
        if fork.cut is not None:
            first = branch(fork, &last, &doubt)
            for kid in range(first, last):
                collect(leaves, <TreeNode>fork.nodes[fork.kids[kid]], doubt, harvest)
        for kid in range(len(fork.stars)):
            collect(leaves, <TreeNode>fork.stars[kid], doubtful, harvest)
        return 0
    bucket = <Bucket>node
    outcome = bucket.narrow(left)
    if outcome == 0:
        return 0
    if doubtful:
        outcome = 2
    word = 0
    while True:
        used = gather(leaves, bucket, left, outcome, &word, NULL, 0, batch)
        if not used:
            return 0
        for place in range(used):
            leaf = batch[place] & ~LOOSE_FLAG
            if not batch[place] & LOOSE_FLAG or passes(leaves, leaf):
                harvest.take(&leaves.leaves[leaf])


cdef int close(Leaves leaves, TreeNode node, bint doubtful, uint64_t* mask, uint64_t* yes) except -1:
    """Add to *yes* the links of *mask* over which a leaf at or below *node* accepts."""
    cdef uint64_t[WORDS_MAX] left
    cdef uint64_t[LINK_WORDS_MAX] open_
    cdef uint64_t[LINK_WORDS_MAX] links
    cdef Bucket bucket
    cdef Fork fork
    cdef int words = leaves.link_words
    cdef uint32_t[BATCH] batch
    cdef int word, outcome, kid, first, last, link_word, used, place
    cdef bint doubt = doubtful
    cdef uint64_t some = 0
    cdef uint32_t leaf
    leaves.steps += 1
    for word in range(words):
        open_[word] = mask[word] & ~yes[word] & (yes_at(node, word) | maybe_at(node, word))
        if not doubtful:
            yes[word] |= open_[word] & yes_at(node, word)
            open_[word] &= maybe_at(node, word)
        some |= open_[word]
    if not some:
        return 0
    if node.is_fork:
        fork = <Fork>node
        if fork.cut is not None:
            first = branch(fork, &last, &doubt)
            for kid in range(first, last):
                close(leaves, <TreeNode>fork.nodes[fork.kids[kid]], doubt, open_, yes)
                if is_closed(open_, yes, words):
                    return 0
        for kid in range(len(fork.stars)):
            close(leaves, <TreeNode>fork.stars[kid], doubtful, open_, yes)
            if is_closed(open_, yes, words):
                return 0
        return 0
    bucket = <Bucket>node
    outcome = bucket.narrow(left)
    if outcome == 0:
        return 0
    if doubtful:
        outcome = 2
    word = 0
    while True:
        some = 0
        for link_word in range(words):
            some |= open_[link_word] & ~yes[link_word]
        used = gather(leaves, bucket, left, outcome, &word, bucket.reach, some, batch)
        if not used:
            return 0
        for place in range(used):
            leaf = batch[place] & ~LOOSE_FLAG
            if not links_left(leaves, leaf, open_, yes, links):
                continue
            if not batch[place] & LOOSE_FLAG or passes(leaves, leaf):
                for link_word in range(words):
                    yes[link_word] |= links[link_word]
                if is_closed(open_, yes, words):
                    return 0


cdef inline uint64_t links_left(Leaves leaves, uint32_t leaf, uint64_t* open_, uint64_t* yes, uint64_t* links) except? 1:
    """Write to *links* those of *leaf* that are open and not yet YES; return whether there are any."""
    cdef Leaf* one = &leaves.leaves[leaf]
    cdef uint64_t some = 0
    cdef int word
    if leaves.link_words == 1 and not one.many:  # as nearly always
        links[0] = <uint64_t>1 << one.link & open_[0] & ~yes[0]
        return links[0]
    memset(links, 0, leaves.link_words * sizeof(uint64_t))
    leaves.links_into(leaf, links)
    for word in range(leaves.link_words):
        links[word] &= open_[word] & ~yes[word]
        some |= links[word]
    return some


cdef inline bint is_closed(uint64_t* open_, uint64_t* yes, int words) noexcept:
    cdef uint64_t some = 0
    cdef int word
    for word in range(words):
        some |= open_[word] & ~yes[word]
    return some == 0


cdef int both(Leaves leaves, TreeNode node, bint doubtful, uint64_t* mask, uint64_t* yes, int local, Harvest harvest) except -1:
    """`close` for the links of *mask*, and taking the members over the link *local* on the way."""
    cdef uint64_t[WORDS_MAX] left
    cdef uint64_t[LINK_WORDS_MAX] links
    cdef Bucket bucket
    cdef Fork fork
    cdef int words = leaves.link_words
    cdef int here_word = local >> 6
    cdef uint64_t here = <uint64_t>1 << (local & 63)
    cdef uint32_t[BATCH] batch
    cdef int word, outcome, kid, first, last, link_word, used, place
    cdef bint doubt = doubtful
    cdef uint64_t open_
    cdef uint64_t some = 0
    cdef uint32_t leaf
    leaves.steps += 1
    for word in range(words):
        open_ = mask[word] & ~yes[word] & (yes_at(node, word) | maybe_at(node, word))
        if not doubtful:
            yes[word] |= open_ & yes_at(node, word)
            open_ &= maybe_at(node, word)
        some |= open_
    if not some and not (yes_at(node, here_word) | maybe_at(node, here_word)) & here:
        return 0
    if node.is_fork:
        fork = <Fork>node
        if fork.cut is not None:
            first = branch(fork, &last, &doubt)
            for kid in range(first, last):
                both(leaves, <TreeNode>fork.nodes[fork.kids[kid]], doubt, mask, yes, local, harvest)
        for kid in range(len(fork.stars)):
            both(leaves, <TreeNode>fork.stars[kid], doubtful, mask, yes, local, harvest)
        return 0
    bucket = <Bucket>node
    outcome = bucket.narrow(left)
    if outcome == 0:
        return 0
    if doubtful:
        outcome = 2
    word = 0
    while True:
        used = gather(leaves, bucket, left, outcome, &word, NULL, 0, batch)
        if not used:
            return 0
        for place in range(used):
            leaf = batch[place] & ~LOOSE_FLAG
            memset(links, 0, words * sizeof(uint64_t))
            leaves.links_into(leaf, links)
            some = 0
            for link_word in range(words):
                some |= links[link_word] & mask[link_word] & ~yes[link_word]
            if here_word < words:
                some |= links[here_word] & here
            if some and (not batch[place] & LOOSE_FLAG or passes(leaves, leaf)):
                for link_word in range(words):
                    yes[link_word] |= links[link_word] & mask[link_word]
                if here_word < words and links[here_word] & here:
                    harvest.take_local(&leaves.leaves[leaf], local)
