"""How a peer is told that it does not speak the protocol of docs/link-protocol.md."""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class FrameBroken(EdgebrokerError):
    """Bytes of a peer are no frame, or say something that cannot be; the message says what. The connection ends."""
