"""How it stands with the remote: a table of what may follow what."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Of one bridge."""

    PAUSED = "paused"
    """An operator wants it so."""
    CLOSED = "closed"
    """Outside its hours."""
    WAITING = "waiting"
    """Until it is time to dial."""
    DIALLING = "dialling"
    GREETING = "greeting"
    """CONNECT was sent."""
    OPEN = "open"
    """CONNACK came: messages go through."""


_S = State
NEXT: Final[dict[State, frozenset[State]]] = {
    _S.PAUSED: frozenset({_S.WAITING, _S.CLOSED}),
    _S.CLOSED: frozenset({_S.WAITING, _S.PAUSED}),
    _S.WAITING: frozenset({_S.DIALLING, _S.PAUSED, _S.CLOSED, _S.WAITING}),
    _S.DIALLING: frozenset({_S.GREETING, _S.WAITING, _S.PAUSED, _S.CLOSED}),
    _S.GREETING: frozenset({_S.OPEN, _S.WAITING, _S.PAUSED, _S.CLOSED}),
    _S.OPEN: frozenset({_S.WAITING, _S.PAUSED, _S.CLOSED}),
}
"""What is not here cannot be."""


class Order(StrEnum):
    """What the splice asks of the world."""

    DIAL = "dial"
    """Connect to the remote; then say `dialled`, or `lost` with the reason."""
    HANG_UP = "hang up"
    """Write what there is, and close the connection to the remote, or give up dialling. Say nothing."""
    ELSEWHERE = "elsewhere"
    """Begin with the next address when the remote is dialled again: who answers at this one is of no use."""
    OPEN = "open"
    """Open an end towards our own front end, and say `opened`."""
    CLOSE = "close"
    """Write what there is, and close that end. Say nothing."""
