"""Ready-made MQTT 3.1.1 packets for the load generator.

The generator does not use the broker's own codec on purpose: a fault of the codec would cancel out, and a prebuilt
chunk of plain bytes costs nothing to send. Section numbers are those of MQTT 3.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence

PAYLOAD_BYTES = 64  # a typical reading
CONNACK_ACCEPTED = b"\x20\x02\x00\x00"
DISCONNECT = b"\xe0\x00"
PUBACK_BYTES = 4


def connect(client_id: str, will: tuple[str, bytes] | None = None) -> bytes:
    """CONNECT with a clean session and no keep-alive; *will* is topic and payload, retained (section 3.1)."""
    if will is None:
        return packet(0x10, text("MQTT") + b"\x04\x02\x00\x00" + text(client_id))
    topic, payload = will
    last = text(topic) + len(payload).to_bytes(2, "big") + payload
    return packet(0x10, text("MQTT") + b"\x04\x26\x00\x00" + text(client_id) + last)


def subscribe(filters: Sequence[str], qos: int) -> bytes:
    """One SUBSCRIBE, packet id 1, that asks for every filter at the same QoS (section 3.8)."""
    return packet(0x82, b"\x00\x01" + b"".join(text(one) + bytes([qos]) for one in filters))


def publish(topic: str, payload: bytes, packet_id: int | None = None) -> bytes:
    """PUBLISH at QoS 0, or at QoS 1 if there is a packet id (section 3.3)."""
    if packet_id is None:
        return packet(0x30, text(topic) + payload)
    return packet(0x32, text(topic) + packet_id.to_bytes(2, "big") + payload)


def retained(topic: str, payload: bytes) -> bytes:
    """PUBLISH at QoS 0, to be kept (section 3.3.1.3)."""
    return packet(0x31, text(topic) + payload)


def puback(packet_id: int) -> bytes:
    """PUBACK (section 3.4)."""
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


def numbered_payload(number: int, length: int = PAYLOAD_BYTES) -> bytes:
    """So many bytes that differ from message to message: a swapped or torn message shows."""
    return f"{number:08d}".encode().ljust(length, b".")


def packet(first_byte: int, body: bytes) -> bytes:
    """A fixed header and its body."""
    return head(first_byte, len(body)) + body


def head(first_byte: int, rest: int) -> bytes:
    """A fixed header that announces *rest* bytes; their number takes seven bits per byte (section 2.2.3)."""
    length = bytearray()
    while True:
        rest, septet = rest >> 7, rest & 0x7F
        length.append(septet | (0x80 if rest else 0))
        if not rest:
            return bytes([first_byte]) + bytes(length)


def text(value: str) -> bytes:
    """A UTF-8 string behind its two length bytes (section 1.5.3)."""
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded
