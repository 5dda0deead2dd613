"""Ports of this machine for brokers that are started by a benchmark, a demo or a test."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, suppress

FIRST = 10_000
LAST = 32_767
"""From the next one on Linux takes ports for whoever dials: one of them may be gone while its broker is down."""


def free_ports(count: int) -> list[int]:
    """So many ports of 127.0.0.1 that nobody has now. Who asks at the same time gets others, with luck."""
    found: list[int] = []
    with ExitStack() as probes:
        while len(found) < count:
            port = FIRST + int.from_bytes(os.urandom(4), "big") % (LAST - FIRST + 1)
            with suppress(OSError):
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
    return found
