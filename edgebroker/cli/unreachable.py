"""Where no broker answers."""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class Unreachable(EdgebrokerError):
    """No broker answers there, or not in the way it was spoken to; the message says where and why."""
