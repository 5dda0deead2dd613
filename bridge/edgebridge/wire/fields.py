"""The six kinds of field (MQTT 5.0 section 1.5; MQTT 3.1.1 sections 1.5 and 2.2.3), read from and written to bytes.

Readers take a whole packet's body and an offset and return the value and the offset behind it. A field that ends
beyond its packet is malformed: the frame is complete, so waiting would never help.
"""

from __future__ import annotations

from typing import Final

from edgebridge.wire.errors import MalformedPacket

U16_MAX: Final = 0xFFFF
U32_MAX: Final = 0xFFFF_FFFF
VARIABLE_MAX: Final = 268_435_455  # four bytes of seven bits


def overrun() -> MalformedPacket:
    """The error for a field that ends beyond its packet."""
    return MalformedPacket("a field ends beyond the end of its packet", v311="section 2.2.3", v5="section 2.1.4")


def trailing(packet: str) -> MalformedPacket:
    """The error for bytes behind the last field of *packet*."""
    return MalformedPacket(f"{packet} goes on behind its last field", v311="section 2.2.3", v5="section 2.1.4")


def read_byte(body: bytes, at: int) -> tuple[int, int]:
    """One byte. Raises MalformedPacket at the end of *body*, as all readers do."""
    if at >= len(body):
        raise overrun()
    return body[at], at + 1


def read_u16(body: bytes, at: int) -> tuple[int, int]:
    """A Two Byte Integer, most significant byte first."""
    end = at + 2
    if end > len(body):
        raise overrun()
    return body[at] << 8 | body[at + 1], end


def read_u32(body: bytes, at: int) -> tuple[int, int]:
    """A Four Byte Integer, most significant byte first."""
    end = at + 4
    if end > len(body):
        raise overrun()
    return int.from_bytes(body[at:end], "big"), end


def read_variable(body: bytes, at: int) -> tuple[int, int]:
    """A Variable Byte Integer of one to four bytes. Longer forms than necessary are taken: they do no harm."""
    value = shift = 0
    while shift < 28:
        if at >= len(body):
            raise overrun()
        octet = body[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
    raise MalformedPacket("a variable byte integer has at most four bytes", v311="section 2.2.3", v5="section 1.5.5")


def read_binary(body: bytes, at: int) -> tuple[bytes, int]:
    """Binary Data: a two byte length and as many bytes."""
    start = at + 2
    if start > len(body):
        raise overrun()
    end = start + (body[at] << 8 | body[at + 1])
    if end > len(body):
        raise overrun()
    return body[start:end], end


def read_text(body: bytes, at: int) -> tuple[str, int]:
    """A UTF-8 Encoded String. A byte order mark is kept: it is text like any other [5: MQTT-1.5.4-3]."""
    start = at + 2  # as `read_binary`, without the call: 64 KiB may hold 26,000 texts
    if start > len(body):
        raise overrun()
    end = start + (body[at] << 8 | body[at + 1])
    if end > len(body):
        raise overrun()
    try:
        text = body[start:end].decode()
    except UnicodeDecodeError as error:
        raise MalformedPacket(
            f"a string is not well-formed UTF-8 at its byte {error.start}", v311="MQTT-1.5.3-1", v5="MQTT-1.5.4-1"
        ) from None
    if "\0" in text:
        raise MalformedPacket("a string holds U+0000", v311="MQTT-1.5.3-2", v5="MQTT-1.5.4-2")
    return text, end


def read_pair(body: bytes, at: int) -> tuple[tuple[str, str], int]:
    """A UTF-8 String Pair: name and value."""
    name, at = read_text(body, at)
    value, at = read_text(body, at)
    return (name, value), at


def write_variable(value: int) -> bytes:
    """*value* (0 to VARIABLE_MAX) as a Variable Byte Integer, in as few bytes as possible [5: MQTT-1.5.5-1]."""
    if value < 0x80:
        return bytes((value,))
    if value > VARIABLE_MAX:
        raise ValueError(f"a variable byte integer is at most {VARIABLE_MAX}, not {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_binary(octets: bytes) -> bytes:
    """*octets* as Binary Data. Raises ValueError beyond 65,535 bytes."""
    if len(octets) > U16_MAX:
        raise ValueError(f"a string or binary field has at most {U16_MAX} bytes, not {len(octets)}")
    return len(octets).to_bytes(2, "big") + octets


def write_text(text: str) -> bytes:
    """*text* as a UTF-8 Encoded String. Raises ValueError beyond 65,535 bytes, or for text that is no UTF-8."""
    return write_binary(text.encode())


def write_pair(pair: tuple[str, str]) -> bytes:
    """*pair* as a UTF-8 String Pair."""
    return write_text(pair[0]) + write_text(pair[1])
