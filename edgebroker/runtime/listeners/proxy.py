"""The PROXY protocol, version 2 (haproxy.org, doc/proxy-protocol.txt): a sans-I/O parser, and the layer that uses it.

    header = parse_proxy_header(received)   # None: more bytes are needed; raises ProxyHeaderError
    received[header.size:]                  # the first bytes of the client

The layer passes nothing up before the header has named the client behind the proxy.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, Final

from edgebridge.frontend.options import ClientCertificate
from edgebroker.dataclasses import dataclass
from edgebroker.limits import CONNECT_TIMEOUT_S
from edgebroker.names import hostport
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals, Layer
from edgebroker.runtime.loop.reactor import ClientProtocol
from edgebroker.runtime.loop.stream import Transport
from edgebroker.runtime.settings.sections import ListenerSettings

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES: Final = 16
HEADER_BYTES_MAX: Final = 4_096
"""Addresses take up to 216 bytes, what TLS told the proxy a few hundred. The format allows 64 KiB."""
LOCAL, PROXY = 0x20, 0x21
STREAM_IPV4, STREAM_IPV6, STREAM_UNIX = 0x11, 0x21, 0x31
ADDRESS_BYTES: Final = {STREAM_IPV4: 12, STREAM_IPV6: 36, STREAM_UNIX: 216}
TLV_TLS, TLV_TLS_COMMON_NAME = 0x20, 0x22
CLIENT_CERTIFICATE_NOW: Final = 0x02  # PP2_CLIENT_CERT_CONN: shown on this connection


class ProxyHeaderError(ValueError):
    """These bytes are no PROXY header of version 2."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """What the proxy says. Without `host` it speaks for itself (LOCAL: a health check), or does not know."""

    size: int
    """Of the whole header, in bytes."""
    host: str = ""
    port: int = 0
    is_tls: bool = False
    """The client spoke TLS to the proxy."""
    common_name: str = ""
    """From a client certificate that the proxy verified on this connection."""


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of *data*; None if more bytes are needed. Raises HeaderError."""
    if not data.startswith(SIGNATURE[: len(data)]) or (len(data) > 12 and not data.startswith(SIGNATURE)):
        old = data.startswith(b"PROXY "[: len(data)])
        raise ProxyHeaderError("version 1 of the PROXY protocol; send version 2" if old else "no PROXY header")
    if len(data) < HEAD_BYTES:
        return None
    command, family = data[12], data[13]
    size = HEAD_BYTES + int.from_bytes(data[14:16])
    if command not in (LOCAL, PROXY):
        raise ProxyHeaderError(f"version and command 0x{command:02x}")
    if size > HEADER_BYTES_MAX:
        raise ProxyHeaderError(f"a header of {size} bytes, the limit is {HEADER_BYTES_MAX}")
    if len(data) < size:
        return None
    if command == LOCAL:
        return ProxyHeader(size)
    needed = ADDRESS_BYTES.get(family)
    if needed is None:
        if family == 0:
            return ProxyHeader(size)  # AF_UNSPEC: the proxy does not know either
        raise ProxyHeaderError(f"family and transport 0x{family:02x}: not a stream")
    if size - HEAD_BYTES < needed:
        raise ProxyHeaderError(f"{size - HEAD_BYTES} bytes of addresses, {needed} are needed")
    host, port = _source(family, data)
    is_tls, common_name = _tls(data[HEAD_BYTES + needed : size])
    return ProxyHeader(size, host, port, is_tls, common_name)


def _source(family: int, data: bytes) -> tuple[str, int]:
    if family == STREAM_IPV4:
        return str(ipaddress.IPv4Address(data[16:20])), int.from_bytes(data[24:26])
    if family == STREAM_IPV6:
        return str(ipaddress.IPv6Address(data[16:32])), int.from_bytes(data[48:50])
    return "unix", 0


def _tls(data: bytes) -> tuple[bool, str]:
    """(whether the client spoke TLS, its verified common name), from the list of type, length and value."""
    for kind, value in _values(data):
        if kind == TLV_TLS:
            if len(value) < 5:
                raise ProxyHeaderError("what TLS said is cut short")
            said, verified = value[0], int.from_bytes(value[1:5]) == 0
            name = ""
            if verified and said & CLIENT_CERTIFICATE_NOW:
                names = [inner for inner_kind, inner in _values(value[5:]) if inner_kind == TLV_TLS_COMMON_NAME]
                name = names[0].decode("utf-8", "replace") if names else ""
            return bool(said & 1), name
    return False, ""


def _values(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    at = 0
    while at < len(data):
        end = at + 3 + int.from_bytes(data[at + 1 : at + 3])
        if at + 3 > len(data) or end > len(data):
            raise ProxyHeaderError("the values behind the addresses are cut short")
        found.append((data[at], data[at + 3 : end]))
        at = end
    return found


class ProxyLayer(Layer):
    """Lets nobody up before it knows for whom the proxy speaks, or if the terms are others by then."""

    __slots__ = ("_alarm", "_head", "_header", "_holds", "_is_over", "_label", "_refusals", "_settings")

    def __init__(
        self,
        above: ClientProtocol | Layer,
        settings: ListenerSettings,
        label: str,
        refusals: ConnectionRefusals,
        holds: Callable[[], bool],
    ) -> None:
        """*label* is the listener's, for people.  holds: whether what is above is still what the listener wants."""
        super().__init__(above)
        self._holds = holds
        self._settings = settings
        self._label = label
        self._refusals = refusals
        self._head = b""
        self._header: ProxyHeader | None = None
        self._is_over = False
        self._alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:
        """A proxy dialled, or somebody who says so."""
        self.below = transport
        if self._is_trusted():
            self._alarm = asyncio.get_running_loop().call_later(CONNECT_TIMEOUT_S, self._too_slow)
        else:
            self._refuse(ConnectionRefusalCause.PROXY_SOURCE, "proxy_sources does not name it")

    def data_received(self, data: bytes) -> None:
        """Bytes of the header, then of the client."""
        if self._header is not None:
            self.above.data_received(data)
            return
        if self._is_over:
            return
        self._head += data
        try:
            self._header = parse_proxy_header(self._head)
        except ProxyHeaderError as error:
            self._refuse(ConnectionRefusalCause.PROXY_HEADER, str(error))
            return
        if self._header is not None and not self._holds():
            self._header = None
            self._refuse(ConnectionRefusalCause.PROXY_HEADER, "it came late, and other terms hold at this listener now")
        elif self._header is not None:
            rest, self._head = self._head[self._header.size :], b""
            self._introduce(self._header)
            if rest:
                self.above.data_received(rest)

    def pause_writing(self) -> None:
        if self._header is not None:
            self.above.pause_writing()

    def resume_writing(self) -> None:
        if self._header is not None:
            self.above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by whichever side."""
        self._forget_alarm()
        if self._header is not None:
            super().connection_lost(exc)

    def get_extra_info(self, name: str) -> Any:
        """As of a transport; the address is the client's."""
        if name == "peername" and self._header is not None and self._header.host:
            return self._header.host, self._header.port
        return self.below.get_extra_info(name)

    # -- inside -------------------------------------------------------------------------------------------------

    def _is_trusted(self) -> bool:
        if self._settings.path is not None:
            return True  # the mode of the file says who may
        peer = self.below.get_extra_info("peername")
        if not peer:
            return False  # it has gone already, and cannot say who it was
        address: Any = ipaddress.ip_address(peer[0].partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._settings.proxy_sources)

    def _introduce(self, header: ProxyHeader) -> None:
        self._forget_alarm()
        self.above.connection_made(self)
        if header.common_name:
            self.client_protocol.connection.certificate = ClientCertificate(header.common_name)

    def _too_slow(self) -> None:
        self._refuse(ConnectionRefusalCause.PROXY_HEADER, f"no header in {CONNECT_TIMEOUT_S} s")

    def _refuse(self, cause: ConnectionRefusalCause, why: str) -> None:
        self._is_over = True
        self._forget_alarm()
        peer = self.below.get_extra_info("peername")
        self._refusals.record(cause, self._label, hostport(*peer[:2]) if peer else "?", why)
        self.below.abort()

    def _forget_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
