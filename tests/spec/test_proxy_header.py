"""The PROXY header, version 2 (haproxy.org, doc/proxy-protocol.txt, section 2.2): valid and invalid headers."""

from __future__ import annotations

import ipaddress

import pytest

from edgebroker.runtime.listeners.proxy import (
    HEADER_BYTES_MAX,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    parse_proxy_header,
)


def header(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(body).to_bytes(2) + body


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + len(value).to_bytes(2) + value


IPV4 = ipaddress.ip_address("192.0.2.7").packed + ipaddress.ip_address("192.0.2.1").packed + b"\x30\x39\x07\x5b"
IPV6 = ipaddress.ip_address("2001:db8::7").packed + ipaddress.ip_address("::1").packed + b"\x30\x39\x07\x5b"
TLS = tlv(0x20, b"\x03\0\0\0\0" + tlv(0x21, b"TLSv1.3") + tlv(0x22, "pümp".encode()))

TAKEN = {
    "IPv4": (header(0x21, 0x11, IPV4), ProxyHeader(28, "192.0.2.7", 12345)),
    "IPv6": (header(0x21, 0x21, IPV6), ProxyHeader(52, "2001:db8::7", 12345)),
    "a Unix socket": (header(0x21, 0x31, bytes(216)), ProxyHeader(232, "unix", 0)),
    "the proxy itself": (header(0x20, 0x00, b""), ProxyHeader(16)),
    "the proxy itself, with addresses to be ignored": (header(0x20, 0x11, IPV4), ProxyHeader(28)),
    "nobody knows": (header(0x21, 0x00, b"abc"), ProxyHeader(19)),
    "TLS with a certificate": (
        header(0x21, 0x11, IPV4 + tlv(0x04, b"\0\0") + TLS),
        ProxyHeader(28 + 5 + len(TLS), "192.0.2.7", 12345, True, "pümp"),
    ),
    "a certificate that was not verified": (
        header(0x21, 0x11, IPV4 + tlv(0x20, b"\x03\0\0\0\x01" + tlv(0x22, b"x"))),
        ProxyHeader(40, "192.0.2.7", 12345, True, ""),
    ),
    "a certificate of an earlier connection": (
        header(0x21, 0x11, IPV4 + tlv(0x20, b"\x05\0\0\0\0" + tlv(0x22, b"x"))),
        ProxyHeader(40, "192.0.2.7", 12345, True, ""),
    ),
}


@pytest.mark.parametrize(("data", "said"), TAKEN.values(), ids=TAKEN)
def test_what_a_header_says(data: bytes, said: ProxyHeader) -> None:
    assert parse_proxy_header(data) == said
    assert parse_proxy_header(data + b"\x10rest") == said
    assert all(parse_proxy_header(data[:length]) is None for length in range(len(data)))


REFUSED = {
    "MQTT": (b"\x10\x0c\x00\x04MQTT", "no PROXY header"),
    "version 1": (b"PROXY TCP4 192.0.2.7", "version 1 of the PROXY protocol; send version 2"),
    "a signature with a mistake": (b"\r\n\r\n\x00\r\nQUIT\r", "no PROXY header"),
    "another version": (header(0x31, 0x11, IPV4), "version and command 0x31"),
    "another command": (header(0x22, 0x11, IPV4), "version and command 0x22"),
    "datagrams": (header(0x21, 0x12, IPV4), "family and transport 0x12: not a stream"),
    "half an address": (header(0x21, 0x11, IPV4[:-1]), "11 bytes of addresses, 12 are needed"),
    "too long": (header(0x21, 0x11, bytes(HEADER_BYTES_MAX)), "a header of 4112 bytes, the limit is 4096"),
    "half a value": (header(0x21, 0x11, IPV4 + b"\x04\0\x05abc"), "the values behind the addresses are cut short"),
    "half of what TLS said": (header(0x21, 0x11, IPV4 + tlv(0x20, b"\x01")), "what TLS said is cut short"),
}


@pytest.mark.parametrize(("data", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_header(data: bytes, why: str) -> None:
    with pytest.raises(ProxyHeaderError, match=f"^{why}"):
        parse_proxy_header(data)
