# C types for returned.py; the meaning is there.
cimport cython

from edgebridge.session.inflight cimport Entry, entry_of
from edgebridge.session.knowntexts cimport KnownTexts
from edgebridge.session.session cimport Session
from edgebridge.session.storedmessage cimport StoredMessage
from edgebridge.session.storedtraffic cimport StoredCopy
from edgebroker.publication cimport Publication


@cython.locals(
    sent=list, known=KnownTexts, labels=dict, copy=StoredCopy, message=StoredMessage, publication=Publication,
    text=str, entry=Entry,
)
cpdef take_back(dict copies, Session session, clock, take_up)
