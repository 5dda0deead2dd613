# C types for deliveries.py; the meaning is there.
cimport cython

from edgebridge.session.journal.text cimport TextInterner
from edgebridge.session.journal.copy_record cimport CopyReader
from edgebridge.session.journal.message_header cimport MessageHeader
from edgebridge.session.journal.message cimport StoredMessage, read_publication
from edgebroker.publication cimport Publication

cdef int IS_MESSAGE, IS_SETTLED, _QOS, _RETAIN, _RELEASED
cdef long long _MISSES_MAX

cdef object _ONE


cdef class HeldNumbers:
    cdef dict _pages
    cpdef add(self, long long number)
    @cython.locals(taken=list, end=cython.longlong, page=cython.longlong, upto=cython.longlong, held=object, found=object, lowest=object)
    cpdef list remove_range(self, long long first, long long count)


cdef class StoredCopy:
    cdef public StoredMessage message
    cdef public long long number, sent
    cdef public int qos, packet_id
    cdef public bint retain, released
    cdef public tuple identifiers, label


cdef class StoredDeliveries:
    cdef public object clock
    cdef public long long lsn
    cdef public bint is_in_snapshot
    cdef public long long misread
    cdef long long _misses
    cdef dict _numbers
    cdef public dict messages
    cdef public TextInterner texts
    cdef MessageHeader _header
    cdef CopyReader _copy_reader
    cdef dict _copies, _received, _sent_early, _apply
    cdef object _will_published
    @cython.locals(message=StoredMessage)
    cpdef end_snapshot(self)
    @cython.locals(messages=dict, message=StoredMessage)
    cpdef set finish(self)
    @cython.locals(message=StoredMessage)
    cpdef remove_copy(self, StoredCopy copy)
    @cython.locals(index=Py_ssize_t, record=bytes, kind=int)
    cpdef Py_ssize_t apply_row(self, long long first, list records, Py_ssize_t at) except -1
    @cython.locals(
        head=MessageHeader, at=Py_ssize_t, copies=Py_ssize_t, number=cython.ulonglong, key=object, message=StoredMessage,
        is_again=bint, moved=StoredCopy,
    )
    cpdef _message(self, bytes record)
    @cython.locals(head=MessageHeader)
    cpdef Publication retained(self, bytes record)
    @cython.locals(
        said=CopyReader, flags=int, end=Py_ssize_t, copies=dict, held=StoredCopy, sent=cython.longlong, made=StoredCopy,
    )
    cpdef Py_ssize_t _take_copy(self, bytes record, Py_ssize_t at, StoredMessage message, bint is_again) except -1
    @cython.locals(copies=dict, found=StoredCopy, first=cython.longlong, count=cython.longlong, copy=object)
    cpdef _settled(self, bytes record)
    @cython.locals(numbers=HeldNumbers, found=StoredCopy)
    cpdef _settle_held(self, long long session, dict copies, long long first, long long count)
    @cython.locals(copies=dict)
    cpdef StoredCopy _find(self, session, copy)
