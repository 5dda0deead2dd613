"""Whether the Host header of a request names this machine.

A web page can make requests to its visitor's own machine under a name that it made point there (DNS rebinding): for
the browser they go to where the page came from. So where only this machine can reach a listener, requests must name
it.
"""

from __future__ import annotations

import ipaddress


def names_this_machine(host: str) -> bool:
    """Whether a Host header, `name`, `name:port` or `[IPv6]:port`, means this machine. Browsers always send one."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not name or name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
