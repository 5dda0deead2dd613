"""Tells whether the Host header of a request names this machine.

A web page can send requests to its visitor's own machine under a host name that it resolves to that machine (DNS
rebinding): for the browser they have the same origin as the page. So where a listener is reachable only from this
machine, requests must name this machine.
"""

from __future__ import annotations

import ipaddress


def names_this_machine(host: str) -> bool:
    """Whether a Host header, `name`, `name:port` or `[IPv6]:port`, names this machine. Browsers always send one."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not name or name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
