"""The life of one connection, as a table: what is absent is a protocol error (section 3 of both standards)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from edgebridge.wire.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Unsubscribe,
)


class ConnectionState(Enum):
    """Where a connection stands, as the server sees it."""

    AWAITING_CONNECT = "awaiting CONNECT"
    AUTHENTICATING = "authenticating"
    """CONNECT came, and the answer takes time. Nothing is read meanwhile, so no packet is allowed or wrong."""
    CHALLENGED = "challenged"
    """AUTH answered CONNECT: the client goes on with AUTH, or says good-bye [MQTT-3.1.2-30]."""
    CONNECTED = "connected"
    CLOSED = "closed"


CONNECTED: Final = ConnectionState.CONNECTED
"""For the hot path: in Python 3.11 a function written in Python finds the members of an enumeration."""
CLOSED: Final = ConnectionState.CLOSED

# From CONNECT and AUTH on, it depends on what they say: the client is let in, challenged or refused.
TRANSITIONS: Final[dict[tuple[ConnectionState, type[Packet]], ConnectionState]] = {
    (ConnectionState.AWAITING_CONNECT, Connect): ConnectionState.CONNECTED,
    (ConnectionState.CHALLENGED, Auth): ConnectionState.CONNECTED,
    (ConnectionState.CHALLENGED, Disconnect): ConnectionState.CLOSED,
    (ConnectionState.CONNECTED, Auth): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, Publish): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, PubAck): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, PubRec): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, PubRel): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, PubComp): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, Subscribe): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, Unsubscribe): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, PingReq): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTED, Disconnect): ConnectionState.CLOSED,
}


def next_state(state: ConnectionState, packet: type[Packet]) -> ConnectionState | None:
    """The state after *packet* from the client; None if it is not allowed now."""
    return TRANSITIONS.get((state, packet))
