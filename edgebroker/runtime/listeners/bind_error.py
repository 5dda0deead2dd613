"""The error message for an address that cannot be bound, with the option that chooses another port."""

from __future__ import annotations

import errno
import socket


def describe_bind_error(address: str, error: OSError | UnicodeError, option: str) -> str:
    """Returns a message for people. *address*: what could not be bound; *option*: what chooses another port.

    A UnicodeError means that the host name has an empty or too long label, so that the resolver was not asked.
    """
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot listen on {address}: no such host"
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        reason = f"the port is in use; another broker? choose one with {option}"
    elif error.errno == errno.EADDRNOTAVAIL:
        reason = "this machine has no such address, or has it not yet; 0.0.0.0 stands for all that it has"
    elif error.errno == errno.EACCES:
        reason = f"permission denied; ports below 1024 want root or CAP_NET_BIND_SERVICE: choose one with {option}"
    return f"cannot listen on {address}: {reason}"
