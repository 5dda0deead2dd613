"""A copy of a retained message is used only while its original cannot be queried, wherever the copy is."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.header import EventHeader
from edgebroker.instants import HOUR, MILLISECOND, MINUTE, SECOND
from edgebroker.overlay.id_allocator import SEQUENCES, IdAllocator, is_newer
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation


class Detour:
    """Two sites of two gateways. What b.0 publishes went over a.0 and a.1, which keeps a copy that has no original: b.1
    was off, at which it would have entered the site otherwise.
    """

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation, Topology.product(Scot(Factor.parse("a-b"), 2)), is_stored=True
        )
        self.gateways.wait_for_links()
        self.publisher = self.joined("publisher", "b.0")
        reader = self.joined("reader", "a.1")
        self.ask(reader)
        self.gateways["b.1"].power_off()
        self.wait(MINUTE)
        self.retain(b"here")
        assert [heard.payload for heard in reader.received] == [b"here"]
        assert self.gateways["a.1"].frontend.retained.find("t") is not None
        reader.unsubscribe("t")
        self.wait(SECOND)

    def mend(self) -> None:
        self.gateways["b.1"].power_on()
        self.wait(2 * MINUTE)

    def joined(self, name: str, gateway: str) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, True, 20, FAIR)
        one.connect()
        self.wait(SECOND)
        return one

    def ask(self, reader: Participant) -> list[bytes]:
        reader.subscribe("t", 1)
        self.wait(2 * SECOND)
        return [heard.payload for heard in reader.received]

    def retain(self, payload: bytes) -> None:
        assert self.publisher.publish("t", payload, 1, retain=True)
        self.wait(2 * SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_a_copy_where_no_original_is_asked_for_does_not_outlive_it(gateway: str, seed: int) -> None:
    detour = Detour(seed)
    detour.mend()
    detour.retain(b"")
    assert detour.ask(detour.joined("late", gateway)) == []


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_while_the_original_can_be_asked_for_that_is_what_a_late_subscriber_gets(gateway: str, seed: int) -> None:
    detour = Detour(seed)
    detour.mend()
    detour.retain(b"there")
    assert detour.ask(detour.joined("late", gateway)) == [b"there"]


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_while_it_cannot_be_asked_for_the_copy_has_to_do(gateway: str, seed: int) -> None:
    detour = Detour(seed)
    detour.mend()
    detour.gateways["b.0"].power_off()
    detour.wait(30 * SECOND)
    assert detour.ask(detour.joined("late", gateway)) == [b"here"]


class LostMessage:
    """Two sites of one gateway each. The power of a.0 was cut before the retained message that a.1 has of it was on its
    disk, and its clock has gone back since.
    """

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(self.simulation, Topology.product(Scot(Factor.parse("a"), 2)), is_stored=True)
        self.gateways.wait_for_links()
        self.joined("reader", "a.1").subscribe("t", 1)
        publisher = self.joined("publisher", "a.0")
        assert publisher.publish("t", b"first", 1, retain=True)
        self.wait(SECOND)
        store = self.gateways["a.0"].store
        assert store is not None
        disk = store.disk.killed()  # nothing that is written from now on has reached the disk
        self.wait(MINUTE)
        assert publisher.publish("t", b"lost", 0, retain=True)
        while self.kept("a.1") != b"lost":
            self.wait(MILLISECOND // 4)
        self.gateways["a.0"].power_off()
        store.disk = disk
        store.wall -= HOUR
        self.gateways["a.0"].power_on()
        self.gateways.wait_for_links(10 * SECOND)
        assert self.kept("a.0") == b"first"

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def kept(self, gateway: str) -> bytes | None:
        kept = self.gateways[gateway].frontend.retained.find("t")
        return None if kept is None else kept.payload

    def joined(self, name: str, gateway: str) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, True, 20, FAIR)
        one.connect()
        self.wait(SECOND)
        return one

    def late(self) -> list[bytes]:
        """What a new subscriber at a.1 gets."""
        reader = self.joined("late", "a.1")
        reader.subscribe("t", 1)
        self.wait(2 * SECOND)
        return [heard.payload for heard in reader.received]


def test_a_copy_of_what_its_gateway_lost_hides_nothing(seed: int) -> None:
    assert LostMessage(seed).late() == [b"first"]


def test_what_is_published_after_a_clock_went_back_replaces_what_was_lost(seed: int) -> None:
    lost = LostMessage(seed)
    assert lost.joined("other", "a.0").publish("t", b"second", 1, retain=True)
    lost.wait(SECOND)
    assert lost.kept("a.1") == lost.kept("a.0") == b"second"
    assert lost.late() == [b"second"]


def test_a_later_run_is_newer_whatever_its_clock_says() -> None:
    first, second = IdAllocator(1, 10, boot=7), IdAllocator(1, 2_000, boot=8)
    older = EventHeader(first.next(), first.before_first + 9, 0, 0, published_ms=2_000)
    newer = EventHeader(second.next(), second.before_first + 1, 0, 0, published_ms=1_000)
    assert is_newer(newer, older)
    assert not is_newer(older, newer)
    assert not is_newer(older, older)
    elsewhere = EventHeader(IdAllocator(2, 2_000, boot=8).next(), newer.sequence, 0, 0, published_ms=1_000)
    assert is_newer(older, elsewhere), "between gateways the clocks decide"
    same_run = EventHeader(first.next(), first.before_first + 1, 0, 0, published_ms=1_999)
    assert not is_newer(same_run, older)
    often = EventHeader(older.publisher, older.sequence + SEQUENCES, 0, 0, published_ms=1_998)
    assert not is_newer(often, same_run), "more than a million events do not make a later run"
