# C types for session_journal.py; the meaning is there.


cdef class SessionJournal:
    cdef public object storage, clock_offset, directory
    cdef public long long awaited, synced, last_session
    cdef public bint is_full, is_refusing, is_in_qos2, is_federated, is_in_transaction
    cdef public list unblocked
    cdef object _timers, _sender
    cdef list _blocked, _settled
    cdef dict _promised, _ending
    cdef long long _submitted_lsn
    cdef int _sender_packet_id
    cdef bint _begins_transaction
    cdef object _transactions
    cdef object _transfer_from, _commit_due, _committed_at, _settled_by
