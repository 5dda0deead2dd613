"""The texts of topic levels, each held once under a number, with a count of uses.

Texts are octets here: UTF-8, in which lone surrogates are encoded like any other code point, so that every Python
string has an encoding, and one only.
"""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from edgebroker.matching.compiled.records cimport (
    NONE,
    PART_BITS,
    Chains,
    Records,
    at,
    bytes_of_chains,
    bytes_of_records,
    chain,
    free_chains,
    free_records,
    give,
    head_of,
    is_held,
    open_chains,
    take,
    unchain,
)

cdef enum:
    NEAR_MAX = 16  # most levels of real topics have no more octets, and cost no memory beside their record


cdef union Octets:
    unsigned char near[NEAR_MAX]
    unsigned char *far


cdef struct Level:
    uint32_t next  # in its chain
    uint32_t hash
    uint32_t uses
    uint32_t length
    Octets octets


cdef struct LevelTexts:
    Records records
    Chains chains
    size_t far_bytes


# -- octets ----------------------------------------------------------------------------------------------------------

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


# -- hashing ----------------------------------------------------------------------------------------------------------
# A polynomial over the integers modulo P, taken at a secret point (Carter and Wegman, "Universal classes of hash
# functions", 1979). Texts come from clients: two of them, up to n octets long, collide with a chance of at most
# n / 2^30, whoever chose them, as long as the point is unknown.

cdef enum:
    P_BITS = 31
    P = 0x7FFFFFFF


cdef inline uint64_t key_of(Py_hash_t secret) noexcept nogil:
    """A point to hash at, below 2^30: what `stir` makes stays below 2^33 then and its products below 2^64."""
    return (<uint64_t> secret) >> 1 & 0x3FFFFFFF | 0x10000000


cdef inline uint64_t stir(uint64_t hash, uint64_t word, uint64_t key) noexcept nogil:
    """One more coefficient, below 2^32. The result is not fully reduced."""
    hash = hash * key + word
    return (hash & P) + (hash >> P_BITS)


cdef inline uint32_t settle(uint64_t hash) noexcept nogil:
    """The result modulo P, mixed (as MurmurHash3 does) so that the low bits alone tell hashes apart."""
    hash = (hash & P) + (hash >> P_BITS)
    cdef uint32_t mixed = <uint32_t> (hash - P if hash >= P else hash)
    mixed = (mixed ^ mixed >> 16) * <uint32_t> 0x85EBCA6B
    mixed = (mixed ^ mixed >> 13) * <uint32_t> 0xC2B2AE35
    return mixed ^ mixed >> 16


cdef inline uint32_t hash_of_octets(const unsigned char *text, uint32_t length, uint64_t key) noexcept nogil:
    cdef uint64_t hash = length
    while length >= 3:
        hash = stir(hash, text[0] | text[1] << 8 | text[2] << 16, key)
        text += 3
        length -= 3
    if length:
        hash = stir(hash, text[0] | (text[1] << 8 if length == 2 else 0), key)
    return settle(hash)


cdef inline uint32_t hash_of_level(const void *record, uint64_t key) noexcept:
    return (<const Level *> record).hash


# -- texts ------------------------------------------------------------------------------------------------------------

cdef inline int open_texts(LevelTexts *texts, uint64_t key) except -1:
    """Begin without texts. Raises MemoryError."""
    texts.records.size = sizeof(Level)
    return open_chains(&texts.chains, &texts.records, hash_of_level, key)


cdef inline const unsigned char *octets_of(const Level *level) noexcept nogil:
    if level.length <= NEAR_MAX:
        return &level.octets.near[0]
    return level.octets.far


cdef inline uint32_t find_text(const LevelTexts *texts, const unsigned char *text, uint32_t length) noexcept nogil:
    """The number of the level *text*, or NONE if nobody holds it."""
    return find_hashed(texts, text, length, hash_of_octets(text, length, texts.chains.key))


cdef inline uint32_t find_hashed(
    const LevelTexts *texts, const unsigned char *text, uint32_t length, uint32_t hash
) noexcept nogil:
    """As `find_text`. hash: of *text*."""
    cdef uint32_t number = head_of(&texts.chains, hash)[0]
    cdef const Level *level
    while number:
        level = <const Level *> at(&texts.records, number)
        if level.hash == hash and level.length == length and memcmp(octets_of(level), text, length) == 0:
            return number
        number = level.next
    return NONE


cdef inline uint32_t take_text(LevelTexts *texts, const unsigned char *text, uint32_t length) except 0:
    """The number of the level *text*, used once more. Raises MemoryError."""
    cdef uint32_t number = find_text(texts, text, length)
    cdef Level *level
    cdef unsigned char *far = NULL
    if not number:
        if length > NEAR_MAX:
            far = <unsigned char *> malloc(length)
            if far == NULL:
                raise MemoryError
        try:
            number = take(&texts.records)
        except MemoryError:
            free(far)
            raise
        level = <Level *> at(&texts.records, number)
        level.hash = hash_of_octets(text, length, texts.chains.key)
        level.length = length
        if far != NULL:
            level.octets.far = far
            texts.far_bytes += bytes_of_far(length)
        memcpy(<unsigned char *> octets_of(level), text, length)
        chain(&texts.chains, number, level.hash)
    level = <Level *> at(&texts.records, number)
    level.uses += 1
    return number


cdef inline void drop_text(LevelTexts *texts, uint32_t number) noexcept:
    """One use of the level *number* less."""
    cdef Level *level = <Level *> at(&texts.records, number)
    level.uses -= 1
    if not level.uses:
        unchain(&texts.chains, number, level.hash)
        if level.length > NEAR_MAX:
            free(level.octets.far)
            texts.far_bytes -= bytes_of_far(level.length)
        give(&texts.records, number)


cdef inline str text_of(const LevelTexts *texts, uint32_t number):
    """The level *number* as a string."""
    cdef const Level *level = <const Level *> at(&texts.records, number)
    return PyUnicode_DecodeUTF8(<const char *> octets_of(level), level.length, "surrogatepass")


cdef inline size_t bytes_of_far(uint32_t length) noexcept nogil:
    """What an allocation of *length* octets takes: with its size, in steps of 16."""
    return (<size_t> length + 8 + 15) & ~<size_t> 15


cdef inline size_t bytes_of_texts(const LevelTexts *texts) noexcept nogil:
    return bytes_of_records(&texts.records) + bytes_of_chains(&texts.chains) + texts.far_bytes


cdef inline void free_texts(LevelTexts *texts) noexcept:
    cdef uint32_t number
    cdef const Level *level
    for number in range(texts.records.count << PART_BITS):
        if is_held(&texts.records, number):
            level = <const Level *> at(&texts.records, number)
            if level.uses and level.length > NEAR_MAX:
                free(level.octets.far)
    free_chains(&texts.chains)
    free_records(&texts.records)
