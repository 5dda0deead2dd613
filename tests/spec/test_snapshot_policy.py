"""The snapshot policy of a journal with little space: whether a snapshot pays, and when it is due."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.packets import Connect, PubAck, Publish, SubAck, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebroker.instants import SECOND
from edgebroker.limits import KIB
from edgebroker.storage.journal.journal import FULL_BYTES_PER_S, Journal, SnapshotPolicy
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.recovery import recover
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.disk import Disk
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer

SEGMENT = 16 * KIB
LITTLE = JournalOptions(segment_bytes=SEGMENT, bytes_max=4 * SEGMENT)
"""As little as there may be; a snapshot is usually made after 32 MiB."""


def work(journal: Journal, disk: Disk, now: int) -> None:
    """Do all that is due."""
    while (due := journal.due()) is not None and due <= now:
        done = journal.next_work(now)
        assert done is not None
        for operation in done.operations:
            disk.do(operation)
        journal.done(done, now)


def test_starts_do_not_fill_a_journal_of_little_room() -> None:
    """Each begins a segment. Five were more than there may be, and nothing was written that made a snapshot due."""
    disk = Disk(Random(1))
    for start in range(12):
        found = recover(disk, lambda lsn, record: None)
        journal = Journal(b"sixteen bytes...", LITTLE, found)
        for now in (SECOND, 2 * SECOND):
            journal.append(b"record", now)
            work(journal, disk, now + SECOND)
            assert not journal.is_refusing, f"start {start}: {journal.refusal_reason}"
            if journal.wants_snapshot:
                journal.begin_snapshot(now)
                journal.append(b"all there is", now)
                journal.end_snapshot(now)
                work(journal, disk, now + SECOND)
                assert not journal.wants_snapshot, "once is enough"


def test_a_full_journal_whose_readers_come_takes_messages_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are let in, for what waits for them is what fills it. What they fetched is said in a few bytes: nothing that
    is written shows how little there is to state.
    """
    monkeypatch.setattr("edgebroker.storage.journal.journal.FULL_BYTES_PER_S", 1)  # it is stated for that alone
    simulation = Simulation()
    options = replace(LITTLE, bytes_max=6 * SEGMENT)
    broker = SimulatedBroker(simulation, FrontendOptions(inflight_max=1_000), store=SimulatedStore(simulation, options))
    player = TranscriptPlayer(broker)
    player.play("""
    alice > CONNECT clean=0 session=3600    alice < CONNACK
    alice > SUBSCRIBE t qos=1               alice < SUBACK granted=1
    alice cut
    """)
    journal = broker.frontend.journal.storage
    assert journal is not None
    bob, alice = SimulatedClient("bob", broker), SimulatedClient("alice", broker)
    bob.send(Connect("bob"))
    bob_says = count(1)

    def publish() -> int:
        """What the gateway says to one more message."""
        bob.send(Publish("t", b"x" * 900, 1, packet_id=next(bob_says)))
        simulation.run_until(simulation.now + SECOND)
        [reason] = [packet.reason for packet in bob.receive() if isinstance(packet, PubAck)]
        return reason

    while publish() == 0:
        pass
    player.play("""
    carol > CONNECT clean=0 session=60      carol < CONNACK reason=0x97    carol < CLOSED
    wait 60s
    """)
    assert publish() == 0x97, "all of it waits for alice"
    alice.send(Connect("alice", False, properties={Property.SESSION_EXPIRY_INTERVAL: 3_600}))
    for text in ("t", "u"):
        alice.send(Subscribe(1, [SubscriptionOption(text, 1)]))
    granted = []
    for _ in range(62):
        simulation.run_until(simulation.now + SECOND)
        for packet in alice.receive():
            if isinstance(packet, Publish):
                alice.send(PubAck(packet.packet_id))
            elif isinstance(packet, SubAck):
                granted += packet.reasons
    assert granted == [1, 0x97], "what is kept already needs no room"
    assert journal.segments.bytes <= options.bytes_max
    assert publish() == 0


def test_a_full_journal_is_stated_again_in_vain_at_a_slow_pace() -> None:
    since = SnapshotPolicy(LITTLE)
    since.snapshot_bytes = 10 * FULL_BYTES_PER_S
    since.add_written(100, SECOND)
    assert since.is_due(5 * SEGMENT, is_full=True), "nobody knows what there is to win"
    since.snapshot_taken(5 * SEGMENT, 2 * SECOND)
    since.add_written(100, 11 * SECOND)
    assert not since.is_due(5 * SEGMENT, is_full=True)
    since.add_written(100, 12 * SECOND)
    assert since.is_due(5 * SEGMENT, is_full=True)
    assert not since.is_due(5 * SEGMENT, is_full=False)
