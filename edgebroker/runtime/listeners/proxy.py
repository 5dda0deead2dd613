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
"""Addresses take up to 216 bytes, the TLS information a few hundred. The format allows 64 KiB."""
LOCAL, PROXY = 0x20, 0x21
STREAM_IPV4, STREAM_IPV6, STREAM_UNIX = 0x11, 0x21, 0x31
ADDRESS_BYTES: Final = {STREAM_IPV4: 12, STREAM_IPV6: 36, STREAM_UNIX: 216}
TLV_TLS, TLV_TLS_COMMON_NAME = 0x20, 0x22
CLIENT_CERTIFICATE_NOW: Final = 0x02  # PP2_CLIENT_CERT_CONN: presented on this connection


class ProxyHeaderError(ValueError):
    """The bytes are not a PROXY header of version 2."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """The contents of a header. Without `host` the proxy connects for itself (LOCAL: a health check), or the client is
    unknown.
    """

    size: int
    """Of the whole header, in bytes."""
    host: str = ""
    port: int = 0
    is_tls: bool = False
    """Whether the client uses TLS to the proxy."""
    common_name: str = ""
    """Of a client certificate that the proxy verified on this connection."""


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parses the header at the beginning of *data*; None if more bytes are needed. Raises ProxyHeaderError."""
    if not data.startswith(SIGNATURE[: len(data)]) or (len(data) > 12 and not data.startswith(SIGNATURE)):
        is_version_1 = data.startswith(b"PROXY "[: len(data)])
        raise ProxyHeaderError("version 1 of the PROXY protocol; send version 2" if is_version_1 else "no PROXY header")
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
    address_bytes = ADDRESS_BYTES.get(family)
    if address_bytes is None:
        if family == 0:
            return ProxyHeader(size)  # AF_UNSPEC: unknown to the proxy, too
        raise ProxyHeaderError(f"family and transport 0x{family:02x}: not a stream")
    if size - HEAD_BYTES < address_bytes:
        raise ProxyHeaderError(f"{size - HEAD_BYTES} bytes of addresses, {address_bytes} are needed")
    host, port = _source(family, data)
    is_tls, common_name = _tls(data[HEAD_BYTES + address_bytes : size])
    return ProxyHeader(size, host, port, is_tls, common_name)


def _source(family: int, data: bytes) -> tuple[str, int]:
    if family == STREAM_IPV4:
        return str(ipaddress.IPv4Address(data[16:20])), int.from_bytes(data[24:26])
    if family == STREAM_IPV6:
        return str(ipaddress.IPv6Address(data[16:32])), int.from_bytes(data[48:50])
    return "unix", 0


def _tls(data: bytes) -> tuple[bool, str]:
    """Returns whether the client uses TLS, and its verified common name, from the list of type, length and value."""
    for kind, value in _values(data):
        if kind == TLV_TLS:
            if len(value) < 5:
                raise ProxyHeaderError("what TLS said is cut short")
            flags, is_verified = value[0], int.from_bytes(value[1:5]) == 0
            name = ""
            if is_verified and flags & CLIENT_CERTIFICATE_NOW:
                names = [inner for inner_kind, inner in _values(value[5:]) if inner_kind == TLV_TLS_COMMON_NAME]
                name = names[0].decode("utf-8", "replace") if names else ""
            return bool(flags & 1), name
    return False, ""


def _values(data: bytes) -> list[tuple[int, bytes]]:
    values = []
    offset = 0
    while offset < len(data):
        end = offset + 3 + int.from_bytes(data[offset + 1 : offset + 3])
        if offset + 3 > len(data) or end > len(data):
            raise ProxyHeaderError("the values behind the addresses are cut short")
        values.append((data[offset], data[offset + 3 : end]))
        offset = end
    return values


class ProxyLayer(Layer):
    """Passes nothing up before the PROXY header has arrived. Refuses if the listener has changed by then."""

    __slots__ = ("_header", "_is_closed", "_is_unchanged", "_label", "_received", "_refusals", "_settings", "_timeout")

    def __init__(
        self,
        above: ClientProtocol | Layer,
        settings: ListenerSettings,
        label: str,
        refusals: ConnectionRefusals,
        is_unchanged: Callable[[], bool],
    ) -> None:
        """*label*: the listener's name for people. is_unchanged: whether the layers above still match the listener's
        settings.
        """
        super().__init__(above)
        self._is_unchanged = is_unchanged
        self._settings = settings
        self._label = label
        self._refusals = refusals
        self._received = b""
        self._header: ProxyHeader | None = None
        self._is_closed = False
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:
        """Waits for the header, if the peer is a trusted proxy."""
        self.below = transport
        if self._is_trusted():
            self._timeout = asyncio.get_running_loop().call_later(CONNECT_TIMEOUT_S, self._on_timeout)
        else:
            self._refuse(ConnectionRefusalCause.PROXY_SOURCE, "proxy_sources does not name it")

    def data_received(self, data: bytes) -> None:
        """Parses the header, then passes data up."""
        if self._header is not None:
            self.above.data_received(data)
            return
        if self._is_closed:
            return
        self._received += data
        try:
            self._header = parse_proxy_header(self._received)
        except ProxyHeaderError as error:
            self._refuse(ConnectionRefusalCause.PROXY_HEADER, str(error))
            return
        if self._header is not None and not self._is_unchanged():
            self._header = None
            self._refuse(ConnectionRefusalCause.PROXY_HEADER, "it came late, and other terms hold at this listener now")
        elif self._header is not None:
            rest, self._received = self._received[self._header.size :], b""
            self._accept(self._header)
            if rest:
                self.above.data_received(rest)

    def pause_writing(self) -> None:
        if self._header is not None:
            self.above.pause_writing()

    def resume_writing(self) -> None:
        if self._header is not None:
            self.above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports that the socket is closed."""
        self._cancel_timeout()
        if self._header is not None:
            super().connection_lost(exc)

    def get_extra_info(self, name: str) -> Any:
        """As for an asyncio transport; `peername` is the client's address."""
        if name == "peername" and self._header is not None and self._header.host:
            return self._header.host, self._header.port
        return self.below.get_extra_info(name)

    # -- inside -------------------------------------------------------------------------------------------------

    def _is_trusted(self) -> bool:
        if self._settings.path is not None:
            return True  # the file's mode controls access
        peer = self.below.get_extra_info("peername")
        if not peer:
            return False  # closed already, so its address is unknown
        address: Any = ipaddress.ip_address(peer[0].partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._settings.proxy_sources)

    def _accept(self, header: ProxyHeader) -> None:
        self._cancel_timeout()
        self.above.connection_made(self)
        if header.common_name:
            self.client_protocol.connection.certificate = ClientCertificate(header.common_name)

    def _on_timeout(self) -> None:
        self._refuse(ConnectionRefusalCause.PROXY_HEADER, f"no header in {CONNECT_TIMEOUT_S} s")

    def _refuse(self, cause: ConnectionRefusalCause, why: str) -> None:
        self._is_closed = True
        self._cancel_timeout()
        peer = self.below.get_extra_info("peername")
        self._refusals.record(cause, self._label, hostport(*peer[:2]) if peer else "?", why)
        self.below.abort()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
