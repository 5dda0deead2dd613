"""Names and addresses: types for the names of clients, gateways and subscriptions, a suggestion for a misspelt name,
a host with its TCP port, and the names of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

ClientId = NewType("ClientId", str)
"""The MQTT Client Identifier, unique in one broker."""

SubscriptionNumber = NewType("SubscriptionNumber", int)
"""The number of one (client, subscription) pair in this broker; never reused within one run."""


ALIKE: Final = 0.6
"""The smallest similarity of a suggestion, 0 to 1; the default of `difflib`."""
CHARS_COMPARED: Final = 64
"""The characters of the misspelt name that are compared. Known names are shorter, and 64 KiB would take 8 ms."""


def most_alike(name: str, names: Iterable[str]) -> str | None:
    """Return the one of *names* that is most similar to *name*, or None if none is similar enough.

    The result is the first one of `difflib.get_close_matches`. That function compares with every name whose letters are
    about the same, 25 us each; this one tries the names with most letters in common first and stops when no other can
    be better.
    """
    from difflib import SequenceMatcher  # 0.2 MiB, loaded only after a misspelt name

    name = name[:CHARS_COMPARED]
    letters = [(letter, name.count(letter)) for letter in set(name)]
    once = [letter for letter, count in letters if count == 1]  # `in` takes a tenth of the time of `count`
    repeated = [(letter, count) for letter, count in letters if count > 1]
    candidates = []
    for each in names:
        common = sum([letter in each for letter in once]) + sum(
            [min(count, each.count(letter)) for letter, count in repeated]
        )
        ratio_max = 2 * common / (len(name) + len(each) or 1)  # the same as SequenceMatcher.quick_ratio(), 10 x faster
        if ratio_max >= ALIKE:
            candidates.append((ratio_max, each))
    matcher = SequenceMatcher()
    matcher.set_seq2(name)
    best = (ALIKE, "")
    for ratio_max, each in sorted(candidates, reverse=True):
        if ratio_max < best[0]:
            break
        matcher.set_seq1(each)
        best = max(best, (matcher.ratio(), each))
    return best[1] or None


def hostport(host: str, port: int) -> str:
    """Return `host:port`; an IPv6 address is put in brackets to separate it from the port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([^\s\[\]/:,]{1,253})):([0-9]{1,5})")


class Address(NamedTuple):
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `host:port`, `10.0.0.1:port` or `[2001:db8::1]:port`. Raises ValueError."""
        found = _ADDRESS.fullmatch(text)
        if not found or not 1 <= int(found[3]) <= 65_535:
            raise ValueError(f"{text!r} is not host:port")
        return cls(found[1] or found[2], int(found[3]))

    def __str__(self) -> str:
        return hostport(self.host, self.port)


class ClientAddress(NamedTuple):
    """Where MQTT clients connect: with TLS or without, at a host name or IP address and a TCP port."""

    is_tls: bool
    address: Address

    @classmethod
    def parse(cls, text: str) -> ClientAddress:
        """Parse `mqtt://host:port`, or `mqtts://host:port` for TLS. Raises ValueError."""
        scheme, separator, address = text.partition("://")
        if not separator or scheme not in ("mqtt", "mqtts"):
            raise ValueError(f"{text!r} is not mqtt://host:port or mqtts://host:port")
        return cls(scheme == "mqtts", Address.parse(address))

    def __str__(self) -> str:
        return f"mqtt{'s' * self.is_tls}://{self.address}"


def names_this_machine(host: str) -> bool:
    """Return whether a Host header, `name`, `name:port` or `[IPv6]:port`, names this machine. Browsers always send one.

    A web page can send requests to its visitor's own machine under a host name that it resolves to that machine (DNS
    rebinding): for the browser they have the same origin as the page. So where a listener is reachable only from this
    machine, requests must name this machine.
    """
    import ipaddress  # only for HTTP and WebSocket

    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not name or name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
