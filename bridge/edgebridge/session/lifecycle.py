"""The life of one connection, as a table: what is absent is a protocol error (section 3 of both standards)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from edgebridge.wire.packets import (
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
    CONNECTED = "connected"
    CLOSED = "closed"


# AUTH is absent: it may only follow a CONNECT with an authentication method, and we refuse those [MQTT-4.12.0-1].
TRANSITIONS: Final[dict[tuple[State, type[Packet]], State]] = {
    (State.AWAITING_CONNECT, Connect): State.CONNECTED,
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
