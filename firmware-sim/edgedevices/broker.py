"""The broker of a run: its address, and the credentials and TLS context that devices present."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedevices import BrokerUnreachable, InputInvalid

PORT = 1883
REACH_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The resolved address for `socket.connect`."""

    family: int
    place: Any
    host: str
    """The name or address that the user gave: a TLS certificate must be for it."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default: int = PORT) -> BrokerAddress:
        """Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`. *default*: the port if there is none. Raises InputInvalid."""
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
            host, port = text, str(default)  # no port, or an IPv6 address without brackets
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise InputInvalid(f"{text!r} is no address; write HOST:PORT, for instance 127.0.0.1:{PORT}")
        return cls(host, int(port))

    def check_reachable(self) -> None:
        """Opens and closes a TCP connection. Raises BrokerUnreachable with the system's reason."""
        try:
            socket.create_connection((self.host, self.port), REACH_TIMEOUT_S).close()
        except OSError as error:
            raise BrokerUnreachable(f"cannot reach a broker at {self}: {error.strerror or error}") from error

    def endpoint(self) -> BrokerEndpoint:
        """Resolves the address, once. Raises BrokerUnreachable with the system's reason."""
        try:
            family, _, _, _, place = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise BrokerUnreachable(f"cannot reach a broker at {self}: {error.strerror or error}") from error
        return BrokerEndpoint(family, place, self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerCredentials:
    """The credentials of every connection of a run. password: the text of its file. tls: None is plain TCP."""

    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def read(
        cls,
        username: str | None = None,
        password_file: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        tls: bool = False,
    ) -> BrokerCredentials:
        """Reads the credentials from files, so that no secret is in the list of processes. ca: None is the system's.
        Raises InputInvalid.
        """
        password = None
        if password_file is not None:
            if username is None:
                raise InputInvalid("--password-file goes with --username NAME")
            try:
                password = password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise InputInvalid(f"cannot read {password_file}: {reason(error)}") from error
        if (cert is None) != (key is None):
            raise InputInvalid("--cert and --key go together")
        if not (tls or ca or cert):
            return cls(username, password)
        try:
            context = ssl.create_default_context(cafile=None if ca is None else str(ca))
            if cert is not None:
                context.load_cert_chain(cert, key)
        except OSError as error:  # includes ssl.SSLError
            named = ", ".join(str(path) for path in (ca, cert, key) if path is not None)
            raise InputInvalid(f"cannot use {named or 'the certificates of this system'}: {reason(error)}") from error
        return cls(username, password, context)


ANYONE = BrokerCredentials()
"""Nothing to present, over plain TCP."""


def reason(error: Exception) -> str:
    """Returns the system's message for *error*."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
