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


class State(Enum):
    """Where a connection stands, as the server sees it."""

    AWAITING_CONNECT = "awaiting CONNECT"
    AUTHENTICATING = "authenticating"
    """CONNECT came, and the answer takes time. Nothing is read meanwhile, so no packet is allowed or wrong."""
    CHALLENGED = "challenged"
    """AUTH answered CONNECT: the client goes on with AUTH, or says good-bye [MQTT-3.1.2-30]."""
    CONNECTED = "connected"
    CLOSED = "closed"


CONNECTED: Final = State.CONNECTED
"""For the hot path: in Python 3.11 a function written in Python finds the members of an enumeration."""
CLOSED: Final = State.CLOSED

# From CONNECT and AUTH on, it depends on what they say: the client is let in, challenged or refused.
TRANSITIONS: Final[dict[tuple[State, type[Packet]], State]] = {
    (State.AWAITING_CONNECT, Connect): State.CONNECTED,
    (State.CHALLENGED, Auth): State.CONNECTED,
    (State.CHALLENGED, Disconnect): State.CLOSED,
    (State.CONNECTED, Auth): State.CONNECTED,
    (State.CONNECTED, Publish): State.CONNECTED,
    (State.CONNECTED, PubAck): State.CONNECTED,
    (State.CONNECTED, PubRec): State.CONNECTED,
    (State.CONNECTED, PubRel): State.CONNECTED,
    (State.CONNECTED, PubComp): State.CONNECTED,
    (State.CONNECTED, Subscribe): State.CONNECTED,
    (State.CONNECTED, Unsubscribe): State.CONNECTED,
    (State.CONNECTED, PingReq): State.CONNECTED,
    (State.CONNECTED, Disconnect): State.CLOSED,
}


def next_state(state: State, packet: type[Packet]) -> State | None:
    """The state after *packet* from the client; None if it is not allowed now."""
    return TRANSITIONS.get((state, packet))
