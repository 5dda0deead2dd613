"""Connections that the front end closes for what their clients did or failed to do, counted by reason."""

from __future__ import annotations

from edgebridge.frontend.connecting import Connecting
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.notes import REFUSED
from edgebridge.session.lifecycle import State
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import Instant
from edgebroker.node.timers import Timers


class Expelling:
    """Tells a client why, if its version can hear it, and closes."""

    def __init__(self, connecting: Connecting, timers: Timers) -> None:
        self._connecting = connecting
        self._timers = timers
        self.counts: dict[ReasonCode, int] = {}
        """Connections closed by us, but for CONNECTs that were refused."""

    @property
    def refusals(self) -> dict[ReasonCode, int]:
        """All of them, and CONNECTs that were refused."""
        refused = self._connecting.attendance.refused
        both = {*self.counts, *refused}
        return {reason: self.counts.get(reason, 0) + refused.get(reason, 0) for reason in sorted(both)}

    def offended(self, connection: Connection, error: ProtocolError) -> None:
        """The client broke the protocol."""
        if connection.state is State.CONNECTED:
            self.dismiss(connection, error.reason, str(error))
        elif connection.state is State.CHALLENGED:
            self._connecting.refuse(connection, error.reason, str(error))
        else:
            self.turn_away(connection, error.reason, str(error))

    def refuse_unreadable(self, connection: Connection, error: ProtocolError, body: bytes) -> None:
        """The first packet is no CONNECT that can be accepted."""
        self._connecting.refuse_unreadable(connection, error, body)

    def turn_away(self, connection: Connection, reason: ReasonCode, why: str) -> None:
        """Close a transport whose version is not known yet."""
        self.count(reason)
        self._connecting.notes.add(REFUSED, connection, reason, why)
        connection.close()

    def dismiss(self, connection: Connection, reason: ReasonCode, why: str) -> None:
        """End a connection that was accepted."""
        self.count(reason)
        self._connecting.dismiss(connection, reason, why)

    def check_alive(self, connection: Connection, now: Instant) -> None:
        """Its keep-alive time is over, unless something was heard meanwhile [MQTT-3.1.2-22]."""
        due = connection.heard + connection.keep_alive
        if connection.is_held:  # it is we who do not listen
            due = now + connection.keep_alive
        if due > now:
            self._timers.set(("alive", connection.number), due)
        else:
            self.dismiss(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing heard for 1.5 x keep alive")

    def count(self, reason: ReasonCode) -> None:
        """One more of *reason*."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
