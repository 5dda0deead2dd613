"""DISCONNECT by the server for what a client did or failed to do (MQTT 5.0 section 4.13), by reason code."""

from __future__ import annotations

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.event_buffer import REFUSED
from edgebridge.frontend.handlers.connect import ConnectHandler, DisplacementCause
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import Instant
from edgebroker.node.timers import TimerQueue


class Disconnector:
    """Tells a client why, if its version can hear it, and closes."""

    def __init__(self, connect_handler: ConnectHandler, timers: TimerQueue) -> None:
        self._connect_handler = connect_handler
        self._timers = timers
        self.counts: dict[ReasonCode, int] = {}
        """Connections closed by us, but for CONNECTs that were refused."""

    @property
    def refusals(self) -> dict[ReasonCode, int]:
        """All of them, and CONNECTs that were refused."""
        refused = self._connect_handler.counters.refused
        both = {*self.counts, *refused}
        return {reason: self.counts.get(reason, 0) + refused.get(reason, 0) for reason in sorted(both)}

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        """The client broke the protocol."""
        if connection.state is ConnectionState.CONNECTED:
            self.disconnect(connection, error.reason, str(error))
        elif connection.state is ConnectionState.CHALLENGED:
            self._connect_handler.refuse(connection, error.reason, str(error))
        else:
            self.reject(connection, error.reason, str(error))

    def refuse_unreadable(self, connection: Connection, error: ProtocolError, body: bytes) -> None:
        """The first packet is no CONNECT that can be accepted."""
        self._connect_handler.refuse_unreadable(connection, error, body)

    def reject(self, connection: Connection, reason: ReasonCode, why: str) -> None:
        """Close a transport whose version is not known yet."""
        self.count(reason)
        self._connect_handler.connecting.forget(connection)
        self._connect_handler.events.add(REFUSED, connection, reason, why)
        connection.close()

    def disconnect(self, connection: Connection, reason: ReasonCode, why: str) -> None:
        """End a connection that was accepted."""
        self.count(reason)
        self._connect_handler.disconnect(connection, reason, why)

    def displace(self, connection: Connection, cause: DisplacementCause, reason: ReasonCode, why: str) -> None:
        """Close a connection so that others are served, whether its CONNECT was accepted or not."""
        self._connect_handler.counters.displace(cause)
        if connection.is_open:
            self.disconnect(connection, reason, why)
        else:
            self.reject(connection, reason, why)

    def check_keep_alive(self, connection: Connection, now: Instant) -> None:
        """Its keep-alive time is over, unless something was heard meanwhile [MQTT-3.1.2-22]."""
        due = connection.last_received_at + connection.keep_alive
        if connection.is_held:  # it is we who do not listen
            due = now + connection.keep_alive
        if due > now:
            self._timers.set(("alive", connection.number), due)
        else:
            self.disconnect(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing heard for 1.5 x keep alive")

    def count(self, reason: ReasonCode) -> None:
        """One more of *reason*."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
