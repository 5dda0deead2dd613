"""A disk that the journal has filled: queued messages can still be fetched, which frees space again."""

from __future__ import annotations

from itertools import count

from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.packets import Connect, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Property
from edgebroker.instants import SECOND
from edgebroker.limits import MIB
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.work import WorkPurpose
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import OPTIONS, SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer

SEGMENT = OPTIONS.segment_bytes
DISK = 24 * SEGMENT
LARGE = 3 * MIB // 2


class Flooded:
    """A gateway whose disk is filled by what bob publishes for alice, who is away."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.store = SimulatedStore(self.simulation)
        self.store.disk.bytes_max = DISK
        options = FrontendOptions(inflight_max=1, queue_messages_max=100_000, queue_bytes_max=1 << 30)
        self.broker = SimulatedBroker(self.simulation, options, store=self.store)
        TranscriptPlayer(self.broker).play("""
        alice > CONNECT clean=0 session=86400    alice < CONNACK
        alice > SUBSCRIBE t qos=2                alice < SUBACK granted=2
        alice cut
        """)
        self.bob = SimulatedClient("bob", self.broker)
        self.bob.send(Connect("bob"))
        self._identifiers = count(1)

    @property
    def journal(self) -> Journal:
        journal = self.broker.frontend.journal.storage
        assert journal is not None
        return journal

    def publish(self, size: int = 200, topic: str = "t", retain: bool = False) -> int:
        """What the gateway says to one more message."""
        self.bob.send(Publish(topic, b"x" * size, 1, retain, packet_id=next(self._identifiers)))
        self.simulation.run_until(self.simulation.now + SECOND // 5)
        [reason] = [packet.reason for packet in self.bob.receive() if isinstance(packet, PubAck)]
        return reason

    def flood(self) -> int:
        """Publish until that is refused; how many were taken."""
        taken = 0
        while self.publish() == 0:
            taken += 1
        return taken

    def fetch(self, most: int = 1 << 30) -> list[bytes]:
        """What alice gets, one by one, and acknowledges."""
        alice = SimulatedClient("alice", self.broker)
        alice.send(Connect("alice", False, properties={Property.SESSION_EXPIRY_INTERVAL: 86_400}))
        got: list[bytes] = []
        idle = 0
        while idle < 100 and len(got) < most:
            self.simulation.run_until(self.simulation.now + SECOND // 20)
            idle += 1
            for packet in alice.receive():
                idle = 0
                match packet:
                    case Publish(qos=1, packet_id=number, payload=payload):
                        got.append(payload)
                        alice.send(PubAck(number))
                    case Publish(qos=2, packet_id=number, payload=payload):
                        got.append(payload)
                        alice.send(PubRec(number))
                    case PubRec(packet_id=number):
                        alice.send(PubRel(number))
                    case PubRel(packet_id=number):
                        alice.send(PubComp(number))
        alice.cut()
        self.simulation.run_until(self.simulation.now + SECOND)
        return got


def test_what_fills_a_disk_can_be_fetched_and_leaves_it() -> None:
    """One by one, which costs a sector each: more than there was room for."""
    flooded = Flooded()
    taken = flooded.flood()
    assert taken * 200 > DISK // 5, "with what is said of them, a second time for the snapshot, it is all of it"
    assert not flooded.journal.failures, "what is refused was never tried"
    assert "room" in flooded.journal.refusal_reason
    assert len(flooded.fetch()) == taken
    assert flooded.flood() > taken // 2
    assert not flooded.journal.failures


def test_a_gateway_on_a_full_disk_may_start_again_and_again() -> None:
    flooded = Flooded()
    taken = flooded.flood()
    for _ in range(12):
        flooded.broker.crash(True)
        flooded.simulation.run_until(flooded.simulation.now + 2 * SECOND)
        assert not flooded.journal.failures
    assert len(flooded.fetch()) == taken


def test_a_message_for_which_there_is_no_room_holds_nobody_up() -> None:
    """It would need a file of its own, and all behind it would wait for that."""
    flooded = Flooded()
    flooded.store.disk.bytes_max = 4 * LARGE
    assert flooded.publish() == 0
    assert flooded.publish(LARGE) == 0
    assert flooded.publish(LARGE) == 0x97
    assert flooded.publish() == 0
    assert not flooded.journal.failures
    assert len(flooded.fetch()) == 3
    assert flooded.publish(LARGE) == 0


def test_the_room_of_the_run_before_is_used_at_once() -> None:
    """Else a disk that is full would let nobody begin, though most of what it holds is not needed any more."""
    flooded = Flooded()
    while not flooded.journal.replay_from > 1 or len(flooded.journal.segments.free) < 4:
        assert flooded.publish(900) == 0
        flooded.fetch(1)
    used = flooded.store.disk.bytes_used
    flooded.store.disk.bytes_max = used
    flooded.broker.crash(True)
    flooded.simulation.run_until(flooded.simulation.now + 2 * SECOND)
    assert not flooded.journal.failures


def test_a_disk_that_refused_room_is_asked_again() -> None:
    """Also where it says that it has plenty: perhaps it lied before, or somebody has freed some."""
    journal, now = Journal(b"sixteen bytes...", OPTIONS), 0

    def work() -> None:
        nonlocal now
        now += 11 * SECOND
        while (due := journal.due()) is not None and due <= now and (one := journal.next_work(now)) is not None:
            journal.done(one, now)

    journal.append(bytes(SEGMENT // 2), now)
    work()
    work()
    assert len(journal.segments.free) == 1
    journal.space.disk_bytes = 1_000
    asked = journal.next_work(now + SECOND)
    assert asked is not None
    assert asked.purpose is WorkPurpose.ROOM
    journal.failed(asked, "No space left on device", now)
    assert journal.is_full
    assert journal.refusal_reason.startswith(
        "no more room can be made on the disk (No space left on device); the journal has "
    )
    journal.space.disk_bytes = 1 << 40
    journal.append(b"the clock", now)
    work()
    assert journal.is_full, "what was made in part is removed: that says nothing"
    work()
    assert not journal.is_refusing


def test_what_is_retained_may_be_cleared_although_it_fills_the_disk() -> None:
    flooded = Flooded()
    taken = 0
    while flooded.publish(topic=f"r/{taken}", retain=True) == 0:
        taken += 1
    assert taken > 100
    assert flooded.publish(0, "other", True) == 0x97, "nothing is retained there"
    assert {flooded.publish(0, f"r/{number}", True) for number in range(taken)} == {0}
    flooded.simulation.run_until(flooded.simulation.now + 2 * SECOND)
    assert flooded.publish() == 0
    assert not flooded.journal.failures
