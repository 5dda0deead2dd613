"""A device that goes where servers send it (MQTT 5.0 section 4.11): which server it dials next.

For now (0x9C) means until that connection ends, then the configured server is dialled again; for good (0x9D) means that
the new server is the configured one from now on. A reference has no scheme: TLS stays as the run has it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebridge.wire.properties import Properties, Property, text_property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Duration, Instant
from edgedevices import InputInvalid
from edgedevices.broker import BrokerAddress

REDIRECTS_MAX: Final = 4
"""References that are followed in a row, in case servers send a device round in a circle."""
ROW_PAUSE: Final[Duration] = 60 * SECOND
"""A reference that comes as much later than the last one begins a new row."""


class ServerReference(NamedTuple):
    """Where a server has sent a device, with CONNACK or DISCONNECT."""

    servers: str
    """`host` or `host:port`, apart by blanks."""
    is_lasting: bool
    """Whether it has sent it there for good."""

    @classmethod
    def of(cls, reason: ReasonCode | int, properties: Properties) -> ServerReference | None:
        """Return the reference in a packet; None if it has none."""
        servers = text_property(properties, Property.SERVER_REFERENCE)
        if reason not in (ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED) or not servers:
            return None
        return cls(servers, reason == ReasonCode.SERVER_MOVED)


class ReferenceFollower:
    """The servers of one device. `home`: the configured one."""

    def __init__(self, home: BrokerAddress) -> None:
        self.home = home
        self.followed = 0
        """References that it followed."""
        self._in_a_row = 0
        self._followed_at: Instant = 0

    def next_server(self, reference: ServerReference | None, now: Instant) -> BrokerAddress:
        """Return the server to dial. *reference*: where the last connection ended with one, else None."""
        if reference is None:
            return self.home
        if now - self._followed_at >= ROW_PAUSE:
            self._in_a_row = 0
        address = self._address_in(reference.servers)
        if address is None or self._in_a_row >= REDIRECTS_MAX:
            return self.home
        self._in_a_row += 1
        self._followed_at = now
        self.followed += 1
        if reference.is_lasting:
            self.home = address
        return address

    def _address_in(self, servers: str) -> BrokerAddress | None:
        """Return the first server of a reference; None if it has a scheme, or is no address."""
        first = servers.partition(" ")[0]
        if "/" in first:
            return None
        try:
            return BrokerAddress.parse(first, self.home.port)
        except InputInvalid:
            return None
