"""Why nobody can be listened to, in one line."""

from __future__ import annotations

import socket


def no_listener(address: str, error: OSError, option: str) -> str:
    """*address* as people write it; *option* is where they choose another port."""
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: no such host"
    reason = error.strerror or str(error)
    if "in use" in reason or "in use" in str(error):
        reason = f"the port is in use; another broker? choose one with {option}"
    return f"cannot listen on {address}: {reason}"
