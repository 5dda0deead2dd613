"""How much the memory of a process grows while a front end takes many things of one kind, and what it counts of them.

Run in a process of its own, `python -m tests.support.memory_growth KIND`: the resident set of a process that did other
things before says nothing. Prints one JSON object: `rss` and `held`, both in bytes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebroker.instants import MINUTE
from edgebroker.node import routes
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node

BOUNDLESS: Final = 1 << 40
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def text(value: str) -> bytes:
    octets = value.encode()
    return len(octets).to_bytes(2, "big") + octets


def length(size: int) -> bytes:
    out = bytearray()
    while True:
        size, octet = size >> 7, size & 0x7F
        out.append(octet | (0x80 if size else 0))
        if not size:
            return bytes(out)


def packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + length(len(body)) + body


def with_length(properties: bytes) -> bytes:
    return length(len(properties)) + properties


def user_properties(count: int, number: int = 0) -> bytes:
    return b"".join(b"\x26" + text(f"k{position}") + text(f"{number:08}{position}") for position in range(count))


def connect(client: str, expiry_s: int = 3_600, will: bytes = b"") -> bytes:
    flags = (0x04 | 0x02) if will else 0x02
    properties = with_length(b"\x11" + expiry_s.to_bytes(4, "big"))
    return packet(0x10, text("MQTT") + bytes((5, flags, 0, 0)) + properties + text(client) + will)


def subscribe(topic_filters: list[str], qos: int = 0) -> bytes:
    entries = b"".join(text(topic_filter) + bytes((qos,)) for topic_filter in topic_filters)
    return packet(0x82, b"\0\1\0" + entries)


def publish(topic: str, payload: bytes, first: int = 0x30, packet_id: int = 0, properties: bytes = b"") -> bytes:
    number = packet_id.to_bytes(2, "big") if first & 0x06 else b""
    return packet(first, text(topic) + number + with_length(properties) + payload)


def deep(number: int, levels: int, chars: int) -> str:
    """A topic of so many levels and characters; all of them differ in the first level."""
    part = (chars - 10) // levels - 1
    return f"{number:09}" + "".join(f"/{level:0{part}}" for level in range(levels - 1))


class Gateway:
    """A front end whose clients speak one after the other; nobody reads what they are sent."""

    def __init__(self) -> None:
        options = FrontendOptions(
            connections_max=BOUNDLESS,
            retained_messages_max=BOUNDLESS,
            retained_bytes_max=BOUNDLESS,
            queue_messages_max=BOUNDLESS,
            queue_bytes_max=BOUNDLESS,
            queued_messages_max=BOUNDLESS,
            queued_bytes_max=BOUNDLESS,
        )
        quota = Quota(
            connects_per_s=0, connects_per_address_per_s=0, memory_bytes_max=BOUNDLESS, sessions_max=BOUNDLESS
        )
        self.frontend = Frontend(Node(Ledger()), options, lambda: "assigned", quota=quota)
        self.now = MINUTE
        self.frontend.start(self.now)

    def open(self, client: str, expiry_s: int = 3_600, will: bytes = b"") -> Connection:
        connection = self.frontend.opened("192.0.2.1:1", self.now)
        self.say(connection, connect(client, expiry_s, will))
        assert connection.is_open, connection.disconnect_reason
        return connection

    def say(self, connection: Connection, data: bytes) -> None:
        self.now += 1_000
        self.frontend.feed(connection, data, self.now)
        while connection.job is not None or connection.is_held:
            self.now += 30_000
            self.frontend.fire(self.now)
        self.write()

    def write(self) -> None:
        dirty = list(self.frontend.dirty)
        self.frontend.dirty.clear()
        for connection in dirty:
            self.frontend.take_output(connection, self.now)

    def leave(self, connection: Connection) -> None:
        self.frontend.closed(connection, self.now)


def connections(gateway: Gateway) -> None:
    for number in range(4_000):
        gateway.open(f"client-{number}", 0)


def sessions(gateway: Gateway) -> None:
    for number in range(8_000):
        gateway.leave(gateway.open(f"client-{number}"))


def _subscribe(gateway: Gateway, count: int, levels: int, chars: int) -> None:
    connection = gateway.open("reader")
    for first in range(0, count, 50):
        gateway.say(connection, subscribe([deep(number, levels, chars) for number in range(first, first + 50)]))


def subscriptions(gateway: Gateway) -> None:
    _subscribe(gateway, 20_000, 3, 30)


def deep_subscriptions(gateway: Gateway) -> None:
    _subscribe(gateway, 3_000, 40, 250)


def _retain(gateway: Gateway, count: int, levels: int, chars: int, payload: int, properties: bytes = b"") -> None:
    connection = gateway.open("publisher")
    for number in range(count):
        gateway.say(connection, publish(deep(number, levels, chars), bytes(payload), 0x31, 0, properties))


def retained(gateway: Gateway) -> None:
    _retain(gateway, 20_000, 3, 30, 64)


def deep_retained(gateway: Gateway) -> None:
    _retain(gateway, 8_000, 127, 254, 1)


def user_property_messages(gateway: Gateway) -> None:
    connection = gateway.open("publisher")
    for number in range(200):
        message = publish(f"topic/{number}", b"x", 0x31, 0, user_properties(500, number))
        gateway.say(connection, message)


def aliases(gateway: Gateway) -> None:
    for number in range(100):
        connection = gateway.open(f"client-{number}", 0)
        for alias in range(1, 33):
            topic = f"{number}/{alias}/" + "t" * 1_900
            gateway.say(connection, publish(topic, b"", 0x30, 0, b"\x23" + alias.to_bytes(2, "big")))


def wills(gateway: Gateway) -> None:
    for number in range(2_000):
        properties = with_length(b"\x18" + (3_000).to_bytes(4, "big") + user_properties(20, number))
        gateway.leave(gateway.open(f"client-{number}", 3_600, properties + text(f"will/{number}") + text("w" * 4_096)))


def queued(gateway: Gateway) -> None:
    connection = gateway.open("reader")
    gateway.say(connection, subscribe(["queue/#"], 1))
    gateway.leave(connection)
    publisher = gateway.open("publisher", 0)
    for number in range(40_000):
        gateway.say(publisher, publish(f"queue/{number % 100}", bytes(64), 0x32, 1 + number % 60_000))


def inflight(gateway: Gateway) -> None:
    for number in range(30):
        gateway.say(gateway.open(f"reader-{number}"), subscribe([f"queue/{number}"], 1))
    publisher = gateway.open("publisher", 0)
    for number in range(30_000):
        gateway.say(publisher, publish(f"queue/{number % 30}", bytes(64), 0x32, 1 + number % 60_000))


def unreleased(gateway: Gateway) -> None:
    for number in range(60):
        connection = gateway.open(f"client-{number}")
        for packet_id in range(1, 1_024):
            gateway.say(connection, publish("t", b"", 0x34, packet_id))


KINDS: Final[dict[str, Callable[[Gateway], None]]] = {
    kind.__name__: kind
    for kind in (
        *(connections, sessions, subscriptions, deep_subscriptions, retained, deep_retained, user_property_messages),
        *(aliases, wills, queued, inflight, unreleased),
    )
}


def resident() -> int:
    """Bytes of the resident set, after what is free went back to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE


def main(kind: str) -> None:
    routes.ROUTES_MAX = 64  # the cache of topics is bounded and belongs to nobody: it would hide what is measured
    gateway = Gateway()
    warm = gateway.open("warm", 0)
    gateway.say(warm, publish("warm", b""))
    gateway.leave(warm)
    before = resident()
    KINDS[kind](gateway)
    after = resident()
    gateway.frontend.memory_limit.check(gateway.now)
    print(json.dumps({"rss": after - before, "held": gateway.frontend.memory_limit.held_bytes}))


if __name__ == "__main__":
    main(sys.argv[1])
