"""Attacks by clients who were let in: topics, subscriptions, filters, retained messages, readers who do not read."""

from __future__ import annotations

import time
from typing import ClassVar

from .. import packets
from .attack import Attack

BATCH = 20


class DeepTopics(Attack):
    """Topics nobody has seen before, as deep and as long as they may be."""

    name: ClassVar = "deep-topics"
    about: ClassVar = "PUBLISH to ever new topics of 128 levels and of 60,000 characters, SUBSCRIBE to as deep filters"
    unit: ClassVar = "packets"

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.join(packets.connect("abuse-deep")) is None:
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


class Subscriptions(Attack):
    """As many subscriptions as one client can have."""

    name: ClassVar = "subscriptions"
    about: ClassVar = "100,000 subscriptions from one client in packets of 100, then over again"
    unit: ClassVar = "subscriptions"

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.join(packets.connect("abuse-subs")) is None:
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
        if not self.crowd.members and self.crowd.join(packets.connect("abuse-retained")) is None:
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
            member = self.crowd.join(packets.connect(f"abuse-{number}"), receive_bytes=2_048)
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
        if not self.crowd.members and self.crowd.join(packets.connect("abuse-filters")) is None:
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
        member = self.crowd.join(packets.connect("abuse-store"))
        assert member is not None
        count = self.scaled(20_000)
        for first in range(0, count, 100):
            numbers = range(first, min(first + 100, count))
            self.crowd.push_all(member, b"".join(packets.retained(f"abuse/r/{n}", b"s" * 100) for n in numbers))
        self.crowd.scatter()

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.join(packets.connect("abuse-all")) is None:
            time.sleep(0.01)
            return 0
        member = self.crowd.members[0]
        sent = self.crowd.push(member, packets.subscribe(["abuse/#"], 0))
        until = time.monotonic() + 0.02
        while member.fileno() >= 0 and time.monotonic() < until:
            self.crowd.drink(member)
            time.sleep(0.001)
        return 1 if sent else 0


ATTACKS = (DeepTopics, Subscriptions, RetainedFlood, NeverReads, FilterBombs, RetainedReaders)
