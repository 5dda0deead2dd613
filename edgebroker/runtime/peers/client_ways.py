"""The ways in which clients of this gateway get to another one of the federation, and why some have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.session.session import Session
from edgebroker.errors import EdgebrokerError
from edgebroker.names import Address, ClientAddress, ClientId
from edgebroker.overlay.topology.topology import Topology


class ClientUnmovable(EdgebrokerError):
    """A client cannot be sent to another gateway; the text says why."""


class OpenPaths(Protocol):
    """Knows to which gateways a path is open (`overlay.link_state`)."""

    def is_reachable(self, gateway: str) -> bool:
        """Returns whether there is an open path to *gateway*, which is in the topology."""


class ClientWays:
    """The ways of the clients of the gateway *name* to others."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        paths: OpenPaths,
        sessions: Mapping[ClientId, Session],
        has_roaming: bool = True,
    ) -> None:
        """has_roaming: whether sessions of this gateway move with their clients."""
        self._topology = topology
        self._name = name
        self._paths = paths
        self._sessions = sessions
        self._has_roaming = has_roaming

    def has_moving_session(self, client: str) -> bool:
        """Returns whether the session of *client* moves with it: it outlives the connection and is in the journal."""
        session = self._sessions.get(ClientId(client))
        return self._has_roaming and session is not None and session.number > 0

    def described(self, client: str, gateway: str) -> dict[str, Any]:
        """Returns how the client *client* gets to *gateway*: `server reference`, if MQTT 5 tells it where that is;
        `reconnect`, if it is disconnected and refused for a while; or `none`, and why. JSON.
        """
        session = self._sessions.get(ClientId(client))
        connection: Connection | None = None if session is None else session.connection
        version = None if connection is None else connection.dialect.version
        why = ""
        if client.startswith(BRIDGE_CLIENT_PREFIX):
            why = "it is a bridge of this gateway"
        elif session is None or connection is None:
            why = "it is not connected"
        else:
            try:
                reference = self.server_reference(session, gateway)
            except EdgebrokerError as error:
                why = str(error)
            else:
                return {"way": "server reference" if reference else "reconnect", "why_none": "", "version": version}
        return {"way": "none", "why_none": why, "version": version}

    def server_reference(self, session: Session, gateway: str) -> str:
        """Returns where the client of *session* finds *gateway*, as a Server Reference; empty for one of MQTT 3.1.1.
        Raises ClientUnmovable, TopologyInvalid.
        """
        self._topology.gateway(gateway)
        if gateway == self._name:
            raise ClientUnmovable(f"the clients of this gateway are at {gateway} already")
        addresses = self._topology.client_addresses(gateway)
        if not addresses:
            raise ClientUnmovable(
                f"where clients connect to {gateway} is not known: give it `clients` in the topology file"
            )
        connection: Connection | None = session.connection
        usable: list[Address] = []
        if connection is not None and connection.is_v5:
            usable = _usable_addresses(session.client_id, connection, gateway, addresses)
        if not self._paths.is_reachable(gateway):
            raise ClientUnmovable(f"no path is open to {gateway}: it could not take over the session")
        return " ".join(map(str, usable))


def _usable_addresses(
    client: str, connection: Connection, gateway: str, addresses: Sequence[ClientAddress]
) -> list[Address]:
    """Returns those of *addresses* that *client* can use. Raises ClientUnmovable.

    A Server Reference has no scheme: a client that follows it connects as before, with TLS or without. So it gets the
    addresses of its own kind only, and is never led from TLS to a connection without.
    """
    listener = connection.listener_context
    if listener.is_websocket:
        raise ClientUnmovable(f"{client} is connected by WebSocket, and `clients` has addresses of MQTT over TCP alone")
    has_tls = listener.has_tls
    usable = [one.address for one in addresses if has_tls is None or one.is_tls == has_tls]
    if not usable:
        how, missing = ("with TLS", "mqtts://") if has_tls else ("without TLS", "mqtt://")
        raise ClientUnmovable(f"{client} is connected {how}, and `clients` of {gateway} has no {missing}")
    return usable
