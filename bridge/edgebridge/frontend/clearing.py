"""What an operator clears of what is retained: by an empty message, as a client would, so that everybody hears it."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.frontend import Frontend
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import Instant
from edgebroker.names import ClientId
from edgebroker.publication import Publication

PUBLISHER: Final = ClientId("$operator")
"""Whose message it is in the delivery log."""


class NotCleared(EdgebrokerError):
    """A retained message stays; the text says why."""


def clear(frontend: Frontend, topic: str, now: Instant) -> None:
    """Let nothing be retained under *topic*. Raises NotCleared."""
    keeping = frontend.keeping
    if keeping.is_refusing:  # what a restart would forget is not done
        raise NotCleared(f"the disk takes nothing: {keeping.trouble}")
    try:
        reason = frontend.publishing.accept(Publication(PUBLISHER, topic, b"", 1, True, now), now)
    except EdgebrokerError as error:  # a reader's queue refuses, or the memory of all
        raise NotCleared(str(error)) from error
    if reason != ReasonCode.SUCCESS:
        raise NotCleared(f"{topic} is the broker's own")
