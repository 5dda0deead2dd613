# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Segments of `LIKE` patterns in texts, with C types; the twin in plain Python is in `edgebroker.predicate`."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

cdef enum:
    PLACES = 128  # the bits of two words
    PAGES = 0x1100  # of 256 code points
    SMALL = 2048  # characters of one times those of the other: 3 us at worst; making the tables takes 0.5 to 1
    FIND_IS_LINEAR = 2500  # characters, from which `str.find` takes the two-way algorithm for a literal this long


def end_of_places(tuple places, str text, Py_ssize_t at, Py_ssize_t stop):
    """Where the first run of `text[at:stop]` ends that fits *places*, a character or "" (any) each; -1 if none does.

    128 places take a pass of 1 to 2 ns a character, whatever they are.
    """
    cdef Py_ssize_t count = len(places)
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t here = at
    cdef uint8_t* reached = NULL
    if at < 0 or stop > len(text) or stop - at < count:
        return -1
    if count <= PLACES:
        return _pass(places, 0, text, at, stop, NULL)
    # reached[n]: the places before end at n. Each pass reads it, and writes where its own places end.
    reached = <uint8_t*>PyMem_Malloc(stop + 1)
    if reached == NULL:
        raise MemoryError
    memset(reached, 1, stop + 1)
    try:
        while here >= 0 and begin < count:
            here = _pass(places, begin, text, here, stop, reached)
            begin += PLACES
        return here
    finally:
        PyMem_Free(reached)


def end_of_text(str literal, str text, Py_ssize_t at, Py_ssize_t stop):
    """Where the first *literal* in `text[at:stop]` ends; -1 if there is none. As `str.find`, but always linear.

    That takes time by both lengths where one is short: 64 times `aba` in 64 KiB of `a` 10 ms, which take 4 here.
    """
    cdef Py_ssize_t chars = len(literal)
    cdef Py_ssize_t sought = stop - at
    if chars * sought <= SMALL or (chars > PLACES and sought >= FIND_IS_LINEAR):
        at = text.find(literal, at, stop)
        return at + chars if at >= 0 else -1
    return end_of_places(tuple(literal), text, at, stop)


cdef Py_ssize_t _pass(
    tuple places, Py_ssize_t begin, str text, Py_ssize_t at, Py_ssize_t stop, uint8_t* reached
) except -2:
    """Where the first PLACES of *places* from *begin* end first: Shift-And (Baeza-Yates and Gonnet).

    Bit n of `low`, and of `high` for n + 64, says that the last n + 1 characters fit the first n + 1 places. Two tables
    make a letter of a character: a number from 1 for those that places want, 0 for all others.
    """
    cdef uint8_t page_of[PAGES]
    cdef uint8_t letters[PLACES + 2][256]  # the first page is of those that nobody wants, the second of Latin-1
    cdef uint64_t fits[PLACES + 1]
    cdef uint64_t fits_high[PLACES + 1]
    cdef uint64_t low = 0
    cdef uint64_t high = 0
    cdef Py_ssize_t count = min(<Py_ssize_t>PLACES, <Py_ssize_t>len(places) - begin)
    cdef uint64_t complete = <uint64_t>1 << (count - 1 & 63)
    cdef int kind = PyUnicode_KIND(text)
    cdef void* data = PyUnicode_DATA(text)
    cdef uint8_t* latin = <uint8_t*>data
    cdef int pages = 1
    cdef int known = 0
    cdef Py_ssize_t first = -1
    cdef Py_ssize_t place, here
    cdef bint begins, ends
    cdef uint8_t* letter
    cdef uint8_t* latin_letters = letters[1]
    cdef uint32_t character
    cdef str one
    memset(letters[1], 0, 256)
    if kind > 1:
        memset(page_of, 0, PAGES)
        memset(letters[0], 0, 256)
        page_of[0] = 1
    fits[0] = fits_high[0] = 0
    for place in range(count):
        if not <str>places[begin + place]:
            if place < 64:
                fits[0] |= <uint64_t>1 << place
            else:
                fits_high[0] |= <uint64_t>1 << (place - 64)
    for place in range(count):
        one = <str>places[begin + place]
        if not one:
            continue
        character = one[0]
        if kind == 1:
            if character > 0xFF:
                return -1
            letter = &letters[1][character]
        else:
            if not page_of[character >> 8]:
                pages += 1
                page_of[character >> 8] = pages
                memset(letters[pages], 0, 256)
            letter = &letters[page_of[character >> 8]][character & 0xFF]
        if not letter[0]:
            known += 1
            letter[0] = known
            fits[known] = fits[0]
            fits_high[known] = fits_high[0]
        if place < 64:
            fits[letter[0]] |= <uint64_t>1 << place
        else:
            fits_high[letter[0]] |= <uint64_t>1 << (place - 64)
    if reached == NULL and kind == 1:  # nearly all: a third of the time
        if count <= 64:
            for here in range(at, stop):
                low = (low << 1 | 1) & fits[latin_letters[latin[here]]]
                if low & complete:
                    return here + 1
            return -1
        for here in range(at, stop):
            known = latin_letters[latin[here]]
            high = (high << 1 | low >> 63) & fits_high[known]
            low = (low << 1 | 1) & fits[known]
            if high & complete:
                return here + 1
        return -1
    begins = reached == NULL or reached[at] != 0
    for here in range(at, stop):
        character = PyUnicode_READ(kind, data, here)
        known = letters[page_of[character >> 8]][character & 0xFF] if kind > 1 else latin_letters[character]
        high = (high << 1 | low >> 63) & fits_high[known]
        low = (low << 1 | begins) & fits[known]
        ends = ((low if count <= 64 else high) & complete) != 0
        if ends and first < 0:
            first = here + 1
            if reached == NULL:
                return first
        if reached != NULL:
            begins = reached[here + 1]
            reached[here + 1] = ends
    return first
