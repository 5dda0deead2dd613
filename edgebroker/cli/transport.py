"""The transport from a client to its broker: TCP or a Unix socket, then TLS and WebSocket if asked for."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from edgebroker.errors import BrokerNoAnswer

ANSWER_TIMEOUT_S: Final = 10  # a broker that takes longer is not going to answer


class ByteReader(Protocol):
    """A source of bytes, as `asyncio.StreamReader`."""

    async def read(self, n: int = -1, /) -> bytes:
        """Returns at most *n* bytes; none at the end."""


class ByteWriter(Protocol):
    """A sink of bytes, as `asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> None:
        """Sends *data* as soon as possible."""

    async def drain(self) -> None:
        """Waits until the write buffer has room."""

    def close(self) -> None:
        """Closes after the write buffer is sent."""

    async def wait_closed(self) -> None:
        """Waits until it is closed."""


_NAME_MISMATCHES = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL


@dataclass(frozen=True, slots=True)
class BrokerTransport:
    """The address of a broker. `path`: a Unix socket, in place of `host` and `port`; `websocket`: path of the URL,
    empty for plain MQTT.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    path: Path | None = None
    tls: ssl.SSLContext | None = None
    websocket: str = ""

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else f"{self.host}:{self.port}"

    async def open(self) -> tuple[ByteReader, ByteWriter]:
        """Connects. Raises BrokerNoAnswer."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reader, writer = await self._dial()
                if not self.websocket:
                    return reader, writer
                from edgebroker.cli.websocket import open_websocket  # wsproto and h11 take 15 ms to import

                is_secure = self.tls is not None
                stream = await open_websocket(reader, writer, f"{self.host}:{self.port}", self.websocket, is_secure)
                return stream, stream
        except TimeoutError:
            raise BrokerNoAnswer(f"cannot reach {self}: no answer in {ANSWER_TIMEOUT_S} s") from None
        except socket.gaierror as error:
            raise BrokerNoAnswer(f"cannot reach {self}: {error.strerror}") from None
        except ssl.SSLCertVerificationError as error:
            has_other_name = error.verify_code in _NAME_MISMATCHES
            remedy = (
                " Ask by a name that it has, or say --insecure"
                if has_other_name
                else "; --cafile names who signs for it"
            )
            raise BrokerNoAnswer(f"cannot trust {self}: {error.verify_message}{remedy}") from None
        except ssl.SSLError as error:
            raise BrokerNoAnswer(f"cannot speak TLS with {self}: {error_text(error)}") from None
        except ConnectionResetError:
            step = "TLS or WebSocket" if self.tls or self.websocket else "it"
            raise BrokerNoAnswer(f"cannot reach {self}: the connection was closed before {step} began") from None
        except OSError as error:
            raise BrokerNoAnswer(f"cannot reach {self}: {os.strerror(error.errno or 0)}") from None

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to the first address of the host that answers. Raises the last address's OSError if none does."""
        name = self.host if self.tls is not None else None
        if self.path is not None:
            return await asyncio.open_unix_connection(self.path, ssl=self.tls, server_hostname=name)
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for *_, address in addresses[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection(str(address[0]), self.port, ssl=self.tls, server_hostname=name)
        last = str(addresses[-1][4][0])
        return await asyncio.open_connection(last, self.port, ssl=self.tls, server_hostname=name)


def error_text(error: OSError) -> str:
    """Returns the text of a connection's error, for people."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return error.strerror or str(error)
