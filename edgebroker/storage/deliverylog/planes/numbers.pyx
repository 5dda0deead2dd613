# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Decodes numbers from planes, with C types; the twin in plain Python is in `edgebroker.storage.deliverylog.columns`.

*planes* contains *count* distances, or nothing, which means zeros: the caller must have checked that, nothing is checked
here. All sums are modulo 2**64.
"""

from libc.stdint cimport int64_t, uint64_t

cdef uint64_t MASK = 0xFFFF_FFFF_FFFF_FFFF


def sums(base, bytes planes, Py_ssize_t count):
    """Return the sum of *base* and each distance, as signed numbers."""
    if not planes:  # most columns of most blocks
        return [<int64_t>(<uint64_t>(base & MASK))] * count
    cdef uint64_t start = base & MASK
    cdef Py_ssize_t number, size = len(planes)
    cdef const unsigned char* octets = planes
    return [<int64_t>(start + _distance(octets, number, count, size)) for number in range(count)]


def running(first, base, bytes planes, Py_ssize_t count):
    """Return *first* and *count* more numbers, each the previous one plus *base* plus the next distance."""
    cdef uint64_t step = base & MASK
    cdef uint64_t total = first & MASK
    cdef Py_ssize_t number, size = len(planes)
    cdef const unsigned char* octets = planes
    cdef list found = [<int64_t>total]
    for number in range(count):
        total += step + _distance(octets, number, count, size)
        found.append(<int64_t>total)
    return found


cdef inline uint64_t _distance(
    const unsigned char* octets, Py_ssize_t number, Py_ssize_t count, Py_ssize_t size
) noexcept:
    """Return distance *number*: its lowest byte is in the first plane of *count* bytes, the next one in the second."""
    cdef uint64_t distance = 0
    cdef int shift = 0
    while number < size:
        distance |= <uint64_t>octets[number] << shift
        shift += 8
        number += count
    return distance
