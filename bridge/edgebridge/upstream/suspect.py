"""Which message a remote may not bear: some brokers answer what they forbid by hanging up, and never say why."""

from __future__ import annotations

from typing import Final

from edgebridge.upstream.terms import Memory

TIMES: Final = 3
"""Connections in a row that ended before the same message was answered: two may be chance."""


class Suspect:
    """The oldest message that the remote has not answered, and how often it hung up on it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._oldest: tuple[int, str, int] | None = None
        self._times = 0

    def blamed(self, reason: str) -> str:
        """The remote has ended a connection; *reason*, with what may be behind it."""
        oldest = self._memory.oldest()
        self._times = self._times + 1 if oldest == self._oldest else 1
        self._oldest = oldest
        if oldest is None or self._times < TIMES:
            return reason
        _, topic, octets = oldest
        return (
            f"{reason}; as before, it had not answered a message of {octets:,} bytes under {topic}: if it does not "
            "take that, write rules whose patterns leave the topic out, and what waits behind it goes"
        )
