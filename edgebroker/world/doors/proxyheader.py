"""The PROXY header, version 2, sans-IO (haproxy.org, doc/proxy-protocol.txt): who is really at the other end.

header = parse(received)      # None: more is to come; raises HeaderError
received[header.size:]        # what the client itself said
"""

from __future__ import annotations

import ipaddress
from typing import Final

from edgebroker.dataclasses import dataclass

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES: Final = 16
HEADER_BYTES_MAX: Final = 4_096
"""Addresses take up to 216 bytes, what TLS told the proxy a few hundred. The format allows 64 KiB."""
LOCAL, PROXY = 0x20, 0x21
STREAM_IPV4, STREAM_IPV6, STREAM_UNIX = 0x11, 0x21, 0x31
ADDRESS_BYTES: Final = {STREAM_IPV4: 12, STREAM_IPV6: 36, STREAM_UNIX: 216}
TLV_TLS, TLV_TLS_COMMON_NAME = 0x20, 0x22
CLIENT_CERTIFICATE_NOW: Final = 0x02  # PP2_CLIENT_CERT_CONN: shown on this connection


class HeaderError(ValueError):
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


def parse(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of *data*; None if more bytes are needed. Raises HeaderError."""
    if not data.startswith(SIGNATURE[: len(data)]) or (len(data) > 12 and not data.startswith(SIGNATURE)):
        old = data.startswith(b"PROXY "[: len(data)])
        raise HeaderError("version 1 of the PROXY protocol; send version 2" if old else "no PROXY header")
    if len(data) < HEAD_BYTES:
        return None
    command, family = data[12], data[13]
    size = HEAD_BYTES + int.from_bytes(data[14:16])
    if command not in (LOCAL, PROXY):
        raise HeaderError(f"version and command 0x{command:02x}")
    if size > HEADER_BYTES_MAX:
        raise HeaderError(f"a header of {size} bytes, the limit is {HEADER_BYTES_MAX}")
    if len(data) < size:
        return None
    if command == LOCAL:
        return ProxyHeader(size)
    needed = ADDRESS_BYTES.get(family)
    if needed is None:
        if family == 0:
            return ProxyHeader(size)  # AF_UNSPEC: the proxy does not know either
        raise HeaderError(f"family and transport 0x{family:02x}: not a stream")
    if size - HEAD_BYTES < needed:
        raise HeaderError(f"{size - HEAD_BYTES} bytes of addresses, {needed} are needed")
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
                raise HeaderError("what TLS said is cut short")
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
            raise HeaderError("the values behind the addresses are cut short")
        found.append((data[at], data[at + 3 : end]))
        at = end
    return found
