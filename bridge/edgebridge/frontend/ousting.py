"""What an operator has done to a client: its connection ends, or its session with all that waits for it."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.session.session import Session
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import Instant
from edgebroker.records import Cause

DISCONNECTED: Final = "an operator ended the connection"
ENDED: Final = "an operator ended the session"


def disconnect(frontend: Frontend, session: Session) -> bool:
    """End the connection of *session*: its will goes out, its session waits or ends as if the network had failed.

    False if its client is away already.
    """
    if not session.is_present:
        return False
    frontend.connecting.dismiss(session.connection, ReasonCode.ADMINISTRATIVE_ACTION, DISCONNECTED)
    return True


def end(frontend: Frontend, session: Session, now: Instant) -> int:
    """End *session* at once, and its connection; its will goes out. Returns how many messages for it are dropped."""
    connecting, dropped = frontend.connecting, frontend.ledger.dropped
    before = dropped.get(Cause.SESSION_ENDED, 0)
    connection: Connection | None = session.connection
    session.expiry_s = 0
    if connection is not None:
        connecting.dismiss(connection, ReasonCode.ADMINISTRATIVE_ACTION, ENDED)
        if not connection.paused:  # the world writes no more to who does not read
            frontend.delivery.written(connection, now)
        connecting.detach(connection, now)  # with an expiry of 0 the session ends with it
    else:
        connecting.end_session(session, now)
    return dropped.get(Cause.SESSION_ENDED, 0) - before
