"""What a kept message costs the card: bytes written per byte of payload, counted on a clock that is only a number."""

from __future__ import annotations

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendHost, FrontendOptions
from edgebridge.wire.fields import write_text
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.work import WorkPurpose, Write

PAYLOAD = 64
SYNC_US = 2 * MILLISECOND


class Gateway(FrontendHost):
    """A front end whose disk takes SYNC_US for a commit, and what was written to it."""

    def __init__(self) -> None:
        journal = Journal(b"sixteen bytes...", JournalOptions(commit_us=15 * MILLISECOND))
        self.frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned", journal=journal, host=self)
        self.written = 0
        self.now: Instant = SECOND
        self.frontend.journal.clock_offset = 1_700_000_000 * SECOND
        self._ends: list[tuple[Instant, object]] = []
        self.frontend.start(self.now)

    def connect(self, client: str, flags: int) -> Connection:
        connection = self.frontend.opened("test", self.now)
        self.feed(connection, packet(0x10, write_text("MQTT") + bytes((4, flags, 0, 0)) + write_text(client)))
        return connection

    def feed(self, connection: Connection, chunk: bytes) -> None:
        self.frontend.feed(connection, chunk, self.now)

    def pass_time(self, length: Instant, reader: Connection) -> int:
        """Let time pass; *reader* acknowledges what it gets. How many messages that is."""
        end, heard = self.now + length, 0
        while self.now < end:
            self.now += MILLISECOND
            while self._ends and self._ends[0][0] <= self.now:
                self.frontend.synced(self._ends.pop(0)[1], self.now)
            self.frontend.fire(self.now)
            for delivery in self.frontend.take_output(reader, self.now):
                if delivery[0] == 0x32:
                    at = 4 + int.from_bytes(delivery[2:4])
                    self.feed(reader, b"\x40\2" + delivery[at : at + 2])
                    heard += 1
        return heard

    def disk_work_due(self) -> None:
        work = self.frontend.journal.take_work(self.now)
        if work is not None:
            if work.purpose is WorkPurpose.BATCH:
                self.written += sum(len(one.data) for one in work.operations if isinstance(one, Write))
            self._ends.append((self.now + SYNC_US, work))


def packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def test_a_thousand_messages_a_second_cost_little_more_than_twice_their_payload() -> None:
    """Ten publishers, a durable reader, as `edgebroker bench durable` has them."""
    gateway = Gateway()
    reader = gateway.connect("bench-durable", 0)
    gateway.feed(reader, packet(0x82, b"\0\1" + write_text("bench/durable/#") + b"\1"))
    gateway.pass_time(SECOND, reader)
    publishers = [gateway.connect(f"bench-pub-{number}", 2) for number in range(10)]
    before, heard = gateway.written, 0
    for number in range(2_000):
        topic = write_text(f"bench/durable/{number % 10:02d}")
        publish = packet(0x32, topic + (number + 1).to_bytes(2) + bytes(PAYLOAD))
        gateway.feed(publishers[number % 10], publish)
        heard += gateway.pass_time(MILLISECOND, reader)
        for publisher in publishers:
            gateway.frontend.take_output(publisher, gateway.now)
    heard += gateway.pass_time(SECOND, reader)
    assert heard == 2_000
    assert (gateway.written - before) / (heard * PAYLOAD) < 2.4


def test_much_at_once_does_not_wait_for_the_next_commit() -> None:
    """A fifth of a second with 100 unacknowledged messages: with a commit each 15 ms it was 1,400 of them."""
    gateway = Gateway()
    reader = gateway.connect("bench-durable", 0)
    gateway.feed(reader, packet(0x82, b"\0\1" + write_text("bench/durable/#") + b"\1"))
    gateway.pass_time(SECOND, reader)
    publisher = gateway.connect("bench-pub", 2)
    gateway.pass_time(SECOND, reader)
    before, sent, acknowledged = gateway.written, 0, 0
    for _ in range(200):
        while sent - acknowledged < 100:
            body = write_text("bench/durable/00") + (sent % 65_535 + 1).to_bytes(2) + bytes(PAYLOAD)
            gateway.feed(publisher, packet(0x32, body))
            sent += 1
        gateway.pass_time(MILLISECOND, reader)
        acknowledged += sum(one.count(b"\x40\2") for one in gateway.frontend.take_output(publisher, gateway.now))
    assert acknowledged > 3_000
    assert (gateway.written - before) / (acknowledged * PAYLOAD) < 2.4


def test_many_handshakes_of_qos_2_do_not_wait_for_the_next_commit() -> None:
    """A fifth of a second with 100 unfinished messages, whose two steps at the publisher are a commit each: with one in
    15 ms it was 1,100 of them.
    """
    gateway = Gateway()
    reader = gateway.connect("bench-durable", 0)
    gateway.feed(reader, packet(0x82, b"\0\1" + write_text("bench/durable/#") + b"\1"))
    gateway.pass_time(SECOND, reader)
    publisher = gateway.connect("bench-pub", 0)
    gateway.pass_time(SECOND, reader)
    before, sent, finished = gateway.written, 0, 0
    for _ in range(200):
        while sent - finished < 100:
            body = write_text("bench/durable/00") + (sent % 65_535 + 1).to_bytes(2) + bytes(PAYLOAD)
            gateway.feed(publisher, packet(0x34, body))
            sent += 1
        gateway.pass_time(MILLISECOND, reader)
        for answers in gateway.frontend.take_output(publisher, gateway.now):
            for at in range(0, len(answers), 4):
                finished += answers[at] == 0x70
                if answers[at] == 0x50:
                    gateway.feed(publisher, packet(0x62, answers[at + 2 : at + 4]))
    assert finished > 2_500
    assert (gateway.written - before) / (finished * PAYLOAD) < 2.8
