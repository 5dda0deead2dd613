"""The attacker of `bench abuse`, a process of its own, and its attacks; those on memory are in `memory_attacks`.

It is started as `python -m edgelab.bench.abuse.attacker PORT NAME SCALE FOLDER` and has the core only while the
well-behaved clients leave it. A word a line on standard input (`prepare`, `go`, `halt`) is answered by one JSON
object on standard output.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import ClassVar, Final

from edgelab.bench import packets
from edgelab.bench.abuse.attack import Attack
from edgelab.bench.abuse.memory_attacks import MEMORY_ATTACKS
from edgelab.bench.abuse.share_attacks import SHARE_ATTACKS

TEXT_MAX = 65_535
HUGE = 268_435_455  # the largest remaining length there is (section 2.2.3)


class ConnectionFlood(Attack):
    """Connections that go as soon as they have come."""

    name: ClassVar = "connections"
    about: ClassVar = "connections opened and dropped as fast as it goes, half of them with half a CONNECT"
    unit: ClassVar = "connections"

    def strike(self) -> int:
        half = packets.connect("abuse")[:9]
        for number in range(10):
            if (member := self.crowd.dial()) is not None and number % 2:
                self.crowd.push(member, half)
        self.crowd.hang_up_all()
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
            self.crowd.discard_input(member)
        time.sleep(1.0)
        return sent


class LengthBombs(Attack):
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
                member = self.crowd.connect(packets.connect(f"abuse-{number}"))
                length = (HUGE, 16 * 1024 * 1024 - 8, 500_000)[number % 3]
                start = packets.head((0x30, 0x30, 0x82)[number % 3], length)
            if member is None:
                time.sleep(0.01)
                return 0
            self.crowd.push(member, start)
        for member in list(self.crowd.members):
            sent += self.crowd.push(member, self.CHUNK)
            if member.fileno() >= 0:
                self.crowd.discard_input(member)
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
        self.crowd.hang_up_all()
        return 1


class TakeOvers(Attack):
    """The same client identifier, again and again."""

    name: ClassVar = "take-overs"
    about: ClassVar = "one client identifier connects as fast as it goes, each time taking itself over"
    unit: ClassVar = "CONNECTs"

    def strike(self) -> int:
        for _ in range(10):
            self.crowd.connect(packets.connect("abuse-one"))
        for member in self.crowd.members[:-1]:
            self.crowd.discard_input(member)
        for member in self.crowd.members[:-2]:
            self.crowd.hang_up(member)
        return 10


class Wills(Attack):
    """Clients with wills that all vanish at once."""

    name: ClassVar = "wills"
    about: ClassVar = "1,000 clients with retained wills of 1 KiB dropped at once, then they come again"
    unit: ClassVar = "wills"

    def strike(self) -> int:
        while len(self.crowd.members) < self.scaled(1_000):
            number = len(self.crowd.members)
            if self.crowd.connect(packets.connect(f"abuse-{number}", (f"abuse/wills/{number}", b"w" * 1_024))) is None:
                time.sleep(0.01)
                return 0
            if number % 20 == 19:
                return 0  # a blow is short
        count = len(self.crowd.members)
        self.crowd.hang_up_all()
        return count


CONNECTION_ATTACKS = (ConnectionFlood, SlowLoris, LengthBombs, GiantConnects, TakeOvers, Wills)


BATCH = 20


class DeepTopics(Attack):
    """Topics nobody has seen before, as deep and as long as they may be."""

    name: ClassVar = "deep-topics"
    about: ClassVar = "PUBLISH to ever new topics of 128 levels and of 60,000 characters, SUBSCRIBE to as deep filters"
    unit: ClassVar = "packets"

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.connect(packets.connect("abuse-deep")) is None:
            time.sleep(0.01)
            return 0
        out = []
        for _ in range(BATCH):
            self._number += 1
            out.append(packets.publish(f"abuse/{self._number}" + "/x" * 126, b""))
        out.append(packets.publish(f"abuse/{self._number}/" + "y" * 60_000, b""))
        out.append(packets.subscribe([f"abuse/{self._number}" + "/+" * 126], 0))
        self.crowd.push_all(self.crowd.members[0], b"".join(out))
        return BATCH + 2


class SubscriptionFlood(Attack):
    """As many subscriptions as one client can have."""

    name: ClassVar = "subscriptions"
    about: ClassVar = "100,000 subscriptions from one client in packets of 100, then over again"
    unit: ClassVar = "subscriptions"

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.connect(packets.connect("abuse-subs")) is None:
            time.sleep(0.01)
            return 0
        first = self._number = self._number % 100_000
        self._number += 100
        filters = [f"abuse/{number % 317}/+/{number}/#" for number in range(first, first + 100)]
        self.crowd.push_all(self.crowd.members[0], packets.subscribe(filters, 0))
        return 100


class RetainedFlood(Attack):
    """Retained messages on ever new topics."""

    name: ClassVar = "retained"
    about: ClassVar = "retained messages of 1 KiB on ever new topics, until the store is full and beyond"
    unit: ClassVar = "messages"

    def prepare(self) -> None:
        self._number = 0
        self._payload = b"r" * 1_024

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.connect(packets.connect("abuse-retained")) is None:
            time.sleep(0.01)
            return 0
        out = []
        for _ in range(BATCH):
            self._number += 1
            out.append(packets.retained(f"abuse/retained/{self._number}", self._payload))
        self.crowd.push_all(self.crowd.members[0], b"".join(out))
        return BATCH


class NeverReads(Attack):
    """Readers of a busy topic who never read."""

    name: ClassVar = "never-reads"
    about: ClassVar = "50 subscribers, half QoS 1, who never read, of a topic with 1 KiB messages as fast as it goes"
    unit: ClassVar = "messages"

    def strike(self) -> int:
        wanted = self.scaled(50) + 1
        while len(self.crowd.members) < wanted:
            number = len(self.crowd.members)
            member = self.crowd.connect(packets.connect(f"abuse-{number}"), receive_bytes=2_048)
            if member is None:
                time.sleep(0.01)
                return 0
            if number:
                self.crowd.push(member, packets.subscribe(["abuse/busy"], number % 2))
        writer = self.crowd.members[0]
        message = packets.publish("abuse/busy", b"b" * 1_024, packet_id=7)
        self.crowd.push_all(writer, message * BATCH)
        return BATCH


class FilterBombs(Attack):
    """The largest filters that are legal, on everything, so that every message is looked at."""

    name: ClassVar = "filters"
    about: ClassVar = "filters of 2 KiB, 64 terms and 64 conjunctions on '#', each another, as fast as it goes"
    unit: ClassVar = "filters"

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.connect(packets.connect("abuse-filters")) is None:
            time.sleep(0.01)
            return 0
        filters = []
        for _ in range(self.scaled(4)):
            self._number += 1
            n = self._number % 20_000
            filters.append(f"$filter/{widest(n) if n % 2 else steepest(n)}/#")
        self.crowd.push_all(self.crowd.members[0], packets.subscribe(filters, 0))
        return len(filters)


def widest(number: int) -> str:
    """64 alternatives on 64 attributes."""
    return " OR ".join(f"a{number}_{term} > {term}.{number}" for term in range(64))


def steepest(number: int) -> str:
    """Six times (a OR b), joined by AND: 64 conjunctions of six terms."""
    return " AND ".join(f"(b{number}_{term} > {number} OR c{number}_{term} LIKE 'x{number}%25y')" for term in range(6))


class RetainedReaders(Attack):
    """SUBSCRIBE to everything over a large store of retained messages."""

    name: ClassVar = "subscribe-all"
    about: ClassVar = "SUBSCRIBE # again and again over 20,000 retained messages, by a reader who reads"
    unit: ClassVar = "SUBSCRIBEs"

    def prepare(self) -> None:
        member = self.crowd.connect(packets.connect("abuse-store"))
        assert member is not None
        count = self.scaled(20_000)
        for first in range(0, count, 100):
            numbers = range(first, min(first + 100, count))
            self.crowd.push_all(member, b"".join(packets.retained(f"abuse/r/{n}", b"s" * 100) for n in numbers))
        self.crowd.hang_up_all()

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.connect(packets.connect("abuse-all")) is None:
            time.sleep(0.01)
            return 0
        member = self.crowd.members[0]
        sent = self.crowd.push(member, packets.subscribe(["abuse/#"], 0))
        until = time.monotonic() + 0.02
        while member.fileno() >= 0 and time.monotonic() < until:
            self.crowd.discard_input(member)
            time.sleep(0.001)
        return 1 if sent else 0


SESSION_ATTACKS = (DeepTopics, SubscriptionFlood, RetainedFlood, NeverReads, FilterBombs, RetainedReaders)


ALL_ATTACKS: tuple[type[Attack], ...] = (*CONNECTION_ATTACKS, *SESSION_ATTACKS, *SHARE_ATTACKS, *MEMORY_ATTACKS)
ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in ALL_ATTACKS}

REST_S: Final = 0.01
"""After each blow of a small attack: it shall show that it works, and end soon."""


def main(port: int, name: str, scale: float, folder: Path) -> None:
    """Do as told until standard input ends."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    attack = ATTACKS[name](port, scale, folder)
    done = 0
    for line in iter(sys.stdin.readline, ""):
        word = line.strip()
        if word == "prepare":
            attack.prepare()
        elif word == "go":
            print("{}", flush=True)
            done = 0
            while not select.select([sys.stdin], [], [], 0)[0]:
                done += attack.strike()
                if scale < 1:
                    time.sleep(REST_S)
            continue
        elif word == "halt":
            attack.retreat()
        print(json.dumps({"done": done, "rebuffs": attack.crowd.rebuffs, **attack.verdict()}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
