"""Clients that were told to go to another gateway: for a while they are refused here, so that they go there.

No library follows a Server Reference by itself, but many have a list of servers: after a refusal they try the next one.
Nobody is locked out for ever: the refusal ends after `mqtt.move_refusal_s`, and at once if the other gateway cannot be
reached.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Protocol

from edgebridge.frontend.options import Redirect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import MOVED_CLIENTS_MAX

WATCH: Final[Duration] = 300 * SECOND
"""How long behind the refusal a client that comes back is noticed: libraries wait two minutes at most between attempts
to connect.
"""


class MoveWay(Enum):
    """How a client was told to go. The value is the label in metrics."""

    USE_ANOTHER_SERVER = "use_another_server"
    """DISCONNECT 0x9C with a Server Reference: for now."""
    SERVER_MOVED = "server_moved"
    """DISCONNECT 0x9D with a Server Reference: for good."""
    CLOSED = "closed"
    """Its connection was closed, and its next CONNECT is refused: MQTT 3.1.1 has no other words."""


class MoveOutcome(Enum):
    """What is known of a moved client in the end. The value is the label in metrics."""

    ARRIVED = "arrived"
    """Another gateway has its session."""
    RETURNED = "returned"
    """It is connected here again."""
    UNKNOWN = "unknown"
    """It was not seen again."""


class MoveTableFull(EdgebrokerError):
    """So many clients are moved that no more can be refused here; the text says when to try again."""


class ClientMove(NamedTuple):
    """Where a client was sent and how, and until when its CONNECTs are refused."""

    gateway: str
    redirect: Redirect
    way: MoveWay
    refused_until: Instant
    begun_at: Instant
    outcome: MoveOutcome | None = None
    """None: it is on its way."""
    pause: Duration | None = None
    """How long a client that has arrived was without a connection; None: nobody knows."""


def move_text(gateway: str) -> str:
    """Return the Reason String for a client that is sent to *gateway*."""
    return f"an operator sends this client to {gateway}"


class GatewayPaths(Protocol):
    """Knows to which gateways a path is open."""

    def is_reachable(self, gateway: str) -> bool:
        """Return whether there is an open path to *gateway*, which is in the topology."""


class ClientMoves:
    """The moved clients of a gateway by client identifier, the oldest first; at most MOVED_CLIENTS_MAX."""

    def __init__(self, refusal_s: int) -> None:
        """*refusal_s*: seconds for which CONNECTs of a moved client are refused; 0: they are not."""
        self.refusal_s = refusal_s
        self.moved = dict.fromkeys(MoveWay, 0)
        """Clients that were told to go."""
        self.ended = dict.fromkeys(MoveOutcome, 0)
        self.refused = 0
        """CONNECTs of moved clients that were refused."""
        self._moves: dict[str, ClientMove] = {}
        self._past: dict[str, ClientMove] = {}  # the last one of each client, at most as many
        self._paths: GatewayPaths | None = None

    def __len__(self) -> int:
        return len(self._moves)

    def use_paths(self, paths: GatewayPaths, gateways: frozenset[str]) -> None:
        """Ask *paths* from now on. Moves to gateways that are none of *gateways* end: the topology has changed."""
        self._paths = paths
        for client_id in [name for name, move in self._moves.items() if move.gateway not in gateways]:
            self._end(client_id, MoveOutcome.UNKNOWN)

    def begin(self, client_id: str, gateway: str, redirect: Redirect, is_told: bool, now: Instant) -> MoveWay:
        """Record that *client_id* is sent to *gateway*. Raises MoveTableFull.

        is_told: whether its version of MQTT has words for *redirect*.
        """
        if len(self._moves) >= MOVED_CLIENTS_MAX:
            oldest, move = next(iter(self._moves.items()))
            if now < move.refused_until:
                seconds = -(-(move.refused_until - now) // SECOND)
                raise MoveTableFull(f"{MOVED_CLIENTS_MAX:,} clients are on their way; go on in {seconds} s")
            self._end(oldest, MoveOutcome.UNKNOWN)
        way = MoveWay.CLOSED
        if is_told:
            is_lasting = redirect.reason == ReasonCode.SERVER_MOVED
            way = MoveWay.SERVER_MOVED if is_lasting else MoveWay.USE_ANOTHER_SERVER
        self._moves[client_id] = ClientMove(gateway, redirect, way, now + self.refusal_s * SECOND, now)
        self.moved[way] += 1
        return way

    def refusal(self, client_id: str, now: Instant) -> ClientMove | None:
        """Return the move because of which a CONNECT of *client_id* is refused, and count it; None: it may come in."""
        move = self._moves.get(client_id)
        if move is None or now >= move.refused_until:
            return None
        if self._paths is not None and not self._paths.is_reachable(move.gateway):
            return None
        self.refused += 1
        return move

    def will_delay_s(self, client_id: str, now: Instant) -> int:
        """Return for how many seconds the will of *client_id* has to wait: a client on its way has not failed."""
        move = self._moves.get(client_id)
        return 0 if move is None else max(0, -(-(move.refused_until - now) // SECOND))

    def last(self, client_id: str) -> ClientMove | None:
        """Return the last move of *client_id*, which says how it ended; None if none is known."""
        return self._moves.get(client_id) or self._past.get(client_id)

    def connected(self, client_id: str) -> None:
        """Record that *client_id* is connected here."""
        if client_id in self._moves:
            self._end(client_id, MoveOutcome.RETURNED)

    def arrived(self, client_id: str, now: Instant) -> None:
        """Record that another gateway has taken over the session of *client_id*, which may come back at any time."""
        if client_id in self._moves:
            self._end(client_id, MoveOutcome.ARRIVED, now - self._moves[client_id].begun_at)

    def purge(self, now: Instant) -> None:
        """End the moves of clients that were not seen again."""
        for client_id in [name for name, move in self._moves.items() if now >= move.refused_until + WATCH]:
            self._end(client_id, MoveOutcome.UNKNOWN)

    def _end(self, client_id: str, outcome: MoveOutcome, pause: Duration | None = None) -> None:
        self._past.pop(client_id, None)
        if len(self._past) >= MOVED_CLIENTS_MAX:
            del self._past[next(iter(self._past))]
        self._past[client_id] = self._moves.pop(client_id)._replace(outcome=outcome, pause=pause)
        self.ended[outcome] += 1
