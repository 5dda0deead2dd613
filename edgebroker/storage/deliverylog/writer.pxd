# C types for writer.py; the meaning is there.
cimport cython


cdef class Digests:
    cdef public dict totals
    cdef public Py_ssize_t texts_chars
    @cython.locals(total=list)
    cpdef add(self, tuple flow, long long first, long long count)


cdef class DeliveryLog:
    cdef public str node, boot
    cdef public long long sample_qos0
    cdef public Py_ssize_t block_rows, rows_written
    cdef readonly object _making
    cdef list _finished, _messages, _copies, _anchors, _digest_rows, _filter_rows
    cdef long long _sequence, _minute, _minute_start, _minute_end, _waiting_since
    cdef Py_ssize_t _facts, _rows_chars, _rows_numbers, _filters_chars, _waiting_chars
    cdef dict _traces, _filters, _placements
    cdef set _bridges
    cdef int _origin_of(self, str publisher) except -1
    cdef Digests _digests
    cpdef published(
        self, long long now_us, str publisher, long long first, long long count, str topic, int qos,
        Py_ssize_t payload_bytes, Py_ssize_t copies, trace=*, event=*, int origin=*
    )
    cpdef count_published(self, long long now_us, str publisher, long long first, long long count, int origin=*)
    cpdef filtered(
        self, long long now_us, str publisher, long long first, long long count, str topic, int qos, cause,
        Py_ssize_t payload_bytes, trace=*, int origin=*
    )
    cpdef matched(
        self, long long now_us, str publisher, str subscriber, long long first, long long count, int qos, int origin=*
    )
    @cython.locals(number="long long", numbers="long long")
    cpdef fate(
        self, long long now_us, str publisher, str subscriber, long long first, long long count, str topic,
        str filter_text, int qos, fate, cause, long long wait_us, Py_ssize_t payload_bytes, trace=*,
        int origin=*
    )
    @cython.locals(number="long long", numbers="long long")
    cdef _message(
        self, long long now_us, str publisher, long long first, long long count, str topic, int qos, fate, cause,
        Py_ssize_t payload_bytes, Py_ssize_t copies, trace, event, int origin
    )
    @cython.locals(step="long long", start="long long", kept="long long")
    cdef object _recorded(self, long long first, long long count, bint is_whole)
    @cython.locals(rows=Py_ssize_t)
    cdef _count_row(self, long long numbers, Py_ssize_t chars)
    cdef _count_flow(self, long long now_us, tuple flow, long long first, long long count)
    cdef _build_for(self, Py_ssize_t facts)
