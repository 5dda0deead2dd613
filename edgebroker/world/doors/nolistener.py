"""Why nobody can be listened to, in one line."""

from __future__ import annotations

import socket


def no_listener(address: str, error: OSError | UnicodeError, option: str) -> str:
    """*address* as people write it; *option* is where they choose another port.

    A UnicodeError is what the system's resolver is not even asked about: a name with an empty part, or a long one.
    """
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot listen on {address}: no such host"
    reason = error.strerror or str(error)
    if "in use" in reason or "in use" in str(error):
        reason = f"the port is in use; another broker? choose one with {option}"
    return f"cannot listen on {address}: {reason}"
