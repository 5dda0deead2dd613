"""SUBACKs that wait until other gateways know the subscriptions that they grant.

A client that has its SUBACK may publish a question at once; over a faster link the question would overtake the
subscription to the topic of the answer, and nobody would send that here. Only the SUBACK waits: everything else of its
connection goes on, also messages that the subscription matches, as MQTT 5.0 section 3.8.4 allows. A connection that
ends takes its SUBACKs with it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebroker.limits import MIB

HELD_BYTES_MAX: Final = 4 * MIB
"""What all held SUBACKs may take; more are sent at once. 8,000 of one reason code, or 60 of the largest."""
HELD_SUBACK_BYTES: Final = 500
"""What a held SUBACK takes beside its bytes, with its part of an open flush here and at a neighbour."""


class _HeldSuback(NamedTuple):
    connection: Connection
    packet: bytes
    awaited: int
    """The record that must be on disk before the SUBACK is written."""

    @property
    def octets(self) -> int:
        return HELD_SUBACK_BYTES + len(self.packet)


class HeldSubacks:
    """The SUBACKs that wait, by the flush of interests that releases them."""

    def __init__(self, session_journal: SessionJournal, is_holding: bool) -> None:
        """*is_holding*: False if SUBACKs are to wait for nobody."""
        self.changes = 0
        """How many subscriptions have changed what other gateways know."""
        self.outcomes: Counter[str] = Counter(confirmed=0, timed_out=0, no_room=0)
        """SUBACKs, by why they were sent: the other gateways know the subscriptions, or the time was over, or too many
        waited already.
        """
        self._journal = session_journal
        self._is_holding = is_holding
        self._new: list[_HeldSuback] = []
        self._by_flush: dict[int, list[_HeldSuback]] = {}
        self._bytes = 0

    @property
    def needs_flush(self) -> bool:
        """Whether SUBACKs wait for which no flush has begun."""
        return bool(self._new)

    def must_hold(self, changes: int) -> bool:
        """Whether the SUBACK of a subscription must wait that was granted when `changes` was *changes*: it has changed
        what other gateways know, or may be covered by one that they do not know yet.
        """
        return self._is_holding and (self.changes != changes or bool(self._by_flush or self._new))

    def hold(self, connection: Connection, packet: bytes, awaited: int) -> None:
        """Send the SUBACK *packet* when other gateways know its subscriptions, and record *awaited* is on disk."""
        held = _HeldSuback(connection, packet, awaited)
        if self._bytes + held.octets > HELD_BYTES_MAX:
            self._send(held, "no_room")
            return
        self._bytes += held.octets
        self._new.append(held)

    def flush_begun(self, request: int) -> None:
        """Let all for which no flush had begun wait for the flush *request*."""
        self._by_flush[request], self._new = self._new, []

    def flush_ended(self, request: int, is_complete: bool) -> None:
        """Send the SUBACKs that waited for the flush *request*."""
        self._release(self._by_flush.pop(request, []), "confirmed" if is_complete else "timed_out")

    def release_all(self) -> None:
        """Send all SUBACKs: the gateway leaves its peers."""
        waiting, self._by_flush = self._by_flush, {}
        for each in (*waiting.values(), self._new):
            self._release(each, "timed_out")
        self._new = []

    def _release(self, subacks: list[_HeldSuback], outcome: str) -> None:
        for held in subacks:
            self._bytes -= held.octets
            self._send(held, outcome)

    def _send(self, held: _HeldSuback, outcome: str) -> None:
        if not held.connection.closing:
            self.outcomes[outcome] += 1
            self._journal.add_barrier(held.connection, held.awaited)
            held.connection.send(held.packet)
