# C types for stream.py; the meaning is there.
cimport cython


cdef class SocketStream:
    cdef public int handshake_turns
    cdef object _loop, _peer, _poller, _protocol, _receive, _received, _send, _socket
    cdef bytearray _unsent
    cdef int _descriptor
    cdef Py_ssize_t _full_bytes
    cdef bint _is_closing, _is_full, _is_lost, _is_reading
    cpdef open(self)
    cpdef readable(self)
    @cython.locals(sent=Py_ssize_t)
    cpdef writable(self)
    @cython.locals(sent=Py_ssize_t)
    cpdef write(self, bytes data)
    cpdef close(self)
    cpdef abort(self)
    cpdef pause_reading(self)
    cpdef resume_reading(self)
    cpdef bint is_closing(self) except -1
    cpdef Py_ssize_t get_write_buffer_size(self) except -1
    cpdef set_write_buffer_limits(self, Py_ssize_t high)
    cdef _fail(self, error)
    cdef _disconnect(self)
    cpdef finish_close(self)
