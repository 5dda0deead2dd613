"""Where the broker is."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from edgedevices.errors import BrokerUnreachable, InputInvalid

PORT = 1883
REACH_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What `socket.connect` takes."""

    family: int
    place: Any
    host: str
    """By what name or address the user knows it: what a TLS certificate has to name."""


@dataclass(frozen=True, slots=True)
class Address:
    """Host name or IP address, and TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `HOST`, `HOST:PORT` or `[IPV6]:PORT`. Raises InputInvalid."""
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = text, str(PORT)  # no port, or an IPv6 address without brackets
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise InputInvalid(f"{text!r} is no address; write HOST:PORT, for instance 127.0.0.1:{PORT}")
        return cls(host, int(port))

    def check_reachable(self) -> None:
        """Open and close one TCP connection. Raises BrokerUnreachable with the system's reason."""
        try:
            socket.create_connection((self.host, self.port), REACH_TIMEOUT_S).close()
        except OSError as error:
            raise BrokerUnreachable(f"cannot reach a broker at {self}: {error.strerror or error}") from error

    def endpoint(self) -> Endpoint:
        """The address as the system dials it, resolved once. Raises BrokerUnreachable with the system's reason."""
        try:
            family, _, _, _, place = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise BrokerUnreachable(f"cannot reach a broker at {self}: {error.strerror or error}") from error
        return Endpoint(family, place, self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
