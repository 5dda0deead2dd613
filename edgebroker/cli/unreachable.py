"""The error that no broker answers at an address."""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class BrokerNoAnswer(EdgebrokerError):
    """No broker answers there, or not in the way it was spoken to; the message says where and why."""
