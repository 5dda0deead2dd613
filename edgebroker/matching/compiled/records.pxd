"""Records of one size under numbers, and chains of records by hash, in C memory that grows and shrinks by small steps.

A record lies in a part of PART records, so it never moves, and no array of records is ever copied to make it longer. A
part without records is given back. Number 0 is never given: it means none.

Records that are chained may be of several kinds, told apart by the highest two bits of their numbers.

Chains are linear hashing (Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980): one chain
per record, and with each record that comes or goes one chain is split in two, or two become one. There is no moment at
which everything is hashed anew. A record that is chained begins with the number of the next one.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define edgebroker_prefetch(address) __builtin_prefetch(address)
    #else
    #define edgebroker_prefetch(address) ((void) (address))
    #endif
    """
    void prefetch "edgebroker_prefetch"(const void *address) noexcept nogil

cdef enum:
    NONE = 0
    PART_BITS = 9
    PART = 1 << PART_BITS  # 512 leaves are 8 KiB: a small tree stays small
    NUMBER_BITS = 30
    NUMBER = (1 << NUMBER_BITS) - 1  # what is not the kind in a number
    PARTS_MAX = 1 << (NUMBER_BITS - PART_BITS)
    HEADS_BITS = 10
    HEADS = 1 << HEADS_BITS


cdef struct Part:
    char *records
    uint32_t free  # the place of the first free record plus 1; that holds the next one. 0: the part is full
    uint32_t used
    uint32_t before  # of this part in the list of parts that have free records; indices of parts plus 1
    uint32_t after


cdef struct Records:
    Part *parts
    uint32_t size  # bytes of one record, all zero when it is taken
    uint32_t live
    uint32_t count  # of parts, those given back among them
    uint32_t held  # parts that have memory
    uint32_t room  # of `parts`
    uint32_t open  # the first part with free records, plus 1
    uint32_t vacant  # the first part without memory, plus 1


ctypedef uint32_t (*HashOf)(const void *record, uint64_t key) noexcept


cdef struct Chains:
    uint32_t **heads
    Records *kinds
    HashOf hash_of
    uint64_t key
    uint32_t filled  # records in all chains
    uint32_t count  # of chains
    uint32_t mask  # the smallest 2^k - 1 that is not below count - 1
    uint32_t held  # arrays of HEADS heads
    uint32_t room  # of `heads`


# -- records ----------------------------------------------------------------------------------------------------------

cdef inline void *at(const Records *records, uint32_t number) noexcept nogil:
    """The record *number*, which must be in use, or be free in a part that has memory."""
    return records.parts[number >> PART_BITS].records + (number & (PART - 1)) * records.size


cdef inline bint is_held(const Records *records, uint64_t number) noexcept nogil:
    """Whether there is memory for *number*: `at` may be asked, but the record may be free."""
    return number >> PART_BITS < records.count and records.parts[number >> PART_BITS].records != NULL


cdef inline void open_part(Records *records, uint32_t index) noexcept nogil:
    """Put part *index* first in the list of parts that have free records."""
    cdef Part *part = records.parts + index
    part.before = NONE
    part.after = records.open
    if records.open:
        records.parts[records.open - 1].before = index + 1
    records.open = index + 1


cdef inline void close_part(Records *records, uint32_t index) noexcept nogil:
    """Take part *index* out of that list."""
    cdef Part *part = records.parts + index
    if part.before:
        records.parts[part.before - 1].after = part.after
    else:
        records.open = part.after
    if part.after:
        records.parts[part.after - 1].before = part.before


cdef inline int add_part(Records *records) except -1:
    """Get memory for PART more records. Raises MemoryError."""
    cdef uint32_t index = records.vacant - 1 if records.vacant else records.count
    cdef uint32_t room, place
    cdef Part *parts
    if index == records.room:
        room = max(4, records.room + (records.room >> 1))
        parts = <Part *> realloc(records.parts, room * sizeof(Part)) if room <= PARTS_MAX else NULL
        if parts == NULL:
            raise MemoryError
        records.parts = parts
        records.room = room
    cdef char *memory = <char *> calloc(PART, records.size)
    if memory == NULL:
        raise MemoryError
    cdef Part *part = records.parts + index
    if records.vacant:
        records.vacant = part.after
    else:
        records.count += 1
    records.held += 1
    cdef uint32_t first = 1 if index == 0 else 0  # number 0 counts as used for ever
    part.records = memory
    part.used = first
    part.free = first + 1
    for place in range(first, PART - 1):
        (<uint32_t *> (memory + place * records.size))[0] = place + 2
    open_part(records, index)
    return 0


cdef inline uint32_t take(Records *records) except 0:
    """The number of a record that was free; it is zero. Raises MemoryError."""
    if not records.open:
        add_part(records)
    cdef uint32_t index = records.open - 1
    cdef Part *part = records.parts + index
    cdef uint32_t place = part.free - 1
    cdef uint32_t *record = <uint32_t *> (part.records + place * records.size)
    part.free = record[0]
    part.used += 1
    if not part.free:
        close_part(records, index)
    records.live += 1
    record[0] = 0
    return index << PART_BITS | place


cdef inline void give(Records *records, uint32_t number) noexcept:
    """Free record *number*."""
    cdef uint32_t index = number >> PART_BITS
    cdef Part *part = records.parts + index
    cdef uint32_t *record = <uint32_t *> at(records, number)
    memset(record, 0, records.size)
    if not part.free:
        open_part(records, index)
    record[0] = part.free
    part.free = (number & (PART - 1)) + 1
    part.used -= 1
    records.live -= 1
    if not part.used:
        close_part(records, index)
        free(part.records)
        part.records = NULL
        part.after = records.vacant
        records.vacant = index + 1
        records.held -= 1


cdef inline size_t bytes_of_records(const Records *records) noexcept nogil:
    return <size_t> records.held * PART * records.size + records.room * sizeof(Part)


cdef inline void free_records(Records *records) noexcept:
    cdef uint32_t index
    for index in range(records.count):
        free(records.parts[index].records)
    free(records.parts)


# -- chains -----------------------------------------------------------------------------------------------------------

cdef inline void *at_kind(const Records *kinds, uint32_t number) noexcept nogil:
    """The record *number* of the kind that its highest bits tell."""
    return at(kinds + (number >> NUMBER_BITS), number & NUMBER)


cdef inline uint32_t *head(const Chains *chains, uint32_t number) noexcept nogil:
    """Where chain *number* begins."""
    return chains.heads[number >> HEADS_BITS] + (number & (HEADS - 1))


cdef inline uint32_t *head_of(const Chains *chains, uint32_t hash) noexcept nogil:
    """Where the chain of *hash* begins."""
    cdef uint32_t number = hash & chains.mask
    if number >= chains.count:
        number &= chains.mask >> 1
    return head(chains, number)


cdef inline bint has_heads(Chains *chains) noexcept:
    """Whether there is memory for one chain more, after trying to get it."""
    cdef uint32_t room
    cdef uint32_t **heads
    if chains.count >> HEADS_BITS < chains.held:
        return True
    if chains.held == chains.room:
        room = max(4, chains.room + (chains.room >> 1))
        heads = <uint32_t **> realloc(chains.heads, room * sizeof(uint32_t *))
        if heads == NULL:
            return False
        chains.heads = heads
        chains.room = room
    chains.heads[chains.held] = <uint32_t *> calloc(HEADS, sizeof(uint32_t))
    if chains.heads[chains.held] == NULL:
        return False
    chains.held += 1
    return True


cdef inline int open_chains(Chains *chains, Records *kinds, HashOf hash_of, uint64_t key) except -1:
    """Begin with one chain. kinds: the records of each kind. Raises MemoryError."""
    chains.kinds = kinds
    chains.hash_of = hash_of
    chains.key = key
    if not has_heads(chains):
        raise MemoryError
    chains.count = 1
    return 0


cdef inline void chain(Chains *chains, uint32_t number, uint32_t hash) noexcept:
    """Put record *number* into the chain of *hash*. Where there is no memory for more chains they become longer."""
    cdef uint32_t *begin = head_of(chains, hash)
    (<uint32_t *> at_kind(chains.kinds, number))[0] = begin[0]
    begin[0] = number
    chains.filled += 1
    if chains.filled > chains.count and has_heads(chains):
        split(chains)


cdef inline void split(Chains *chains) noexcept:
    """Add a chain, and move there what belongs there: it was in one chain up to now."""
    cdef uint32_t added = chains.count
    chains.count += 1
    if added > chains.mask:
        chains.mask = chains.mask << 1 | 1
    cdef uint32_t *stay = head(chains, added & (chains.mask >> 1))
    cdef uint32_t *leave = head(chains, added)
    cdef uint32_t number = stay[0]
    cdef uint32_t *record
    while number:
        record = <uint32_t *> at_kind(chains.kinds, number)
        if chains.hash_of(record, chains.key) & chains.mask == added:
            leave[0] = number
            leave = record
        else:
            stay[0] = number
            stay = record
        number = record[0]
    stay[0] = leave[0] = NONE


cdef inline uint32_t *link_to(const Chains *chains, uint32_t number, uint32_t hash) noexcept nogil:
    """What leads to record *number*, which is in the chain of *hash*: its head, or the record before."""
    cdef uint32_t *link = head_of(chains, hash)
    while link[0] != number:
        link = <uint32_t *> at_kind(chains.kinds, link[0])
    return link


cdef inline void unchain(Chains *chains, uint32_t number, uint32_t hash) noexcept:
    """Take record *number* out of the chain of *hash*, and one chain away if there are more than records."""
    link_to(chains, number, hash)[0] = (<uint32_t *> at_kind(chains.kinds, number))[0]
    chains.filled -= 1
    if chains.count > chains.filled and chains.count > 1:
        merge(chains)


cdef inline void merge(Chains *chains) noexcept:
    """Append the last chain to the one that it was split from."""
    cdef uint32_t last = chains.count - 1
    cdef uint32_t *link = head(chains, last & (chains.mask >> 1))
    while link[0]:
        link = <uint32_t *> at_kind(chains.kinds, link[0])
    link[0] = head(chains, last)[0]
    head(chains, last)[0] = NONE
    chains.count = last
    if last <= (chains.mask >> 1) + 1:
        chains.mask >>= 1
    if chains.held > (chains.count >> HEADS_BITS) + 1:
        chains.held -= 1
        free(chains.heads[chains.held])


cdef inline size_t bytes_of_chains(const Chains *chains) noexcept nogil:
    return <size_t> chains.held * HEADS * sizeof(uint32_t) + chains.room * sizeof(uint32_t *)


cdef inline void free_chains(Chains *chains) noexcept:
    cdef uint32_t index
    for index in range(chains.held):
        free(chains.heads[index])
    free(chains.heads)
