"""A gateway with a damaged or outdated link journal: its peers accept what it sends from then on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgebridge.frontend.federation.link_setup import BootIdentity, create_links
from edgebridge.wire.dialect import V5
from edgebroker.instants import SECOND
from edgebroker.overlay.link.journal_entries import RepeatedEntries
from edgebroker.overlay.link.journal_records import LinkRecordKind, StoredLinks, reserved_record
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.storage.journal.recovery import recover
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateway, SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation


def damage(gateway: SimulatedGateway) -> None:
    """Flip a bit in the record of the last reservation, while the gateway is off."""
    assert gateway.store is not None
    disk, records = gateway.store.disk, list[bytes]()
    recover(disk, lambda lsn, record: records.append(record))
    *_, last = [record for record in records if record[0] == LinkRecordKind.RUN]
    [(name, at)] = [(name, at) for name in disk.names() if (at := disk.read(name).find(last)) >= 0]
    disk.flip(name, 8 * (at + len(last) - 1))


def conversation() -> tuple[SimulatedGateway, Participant, Participant, Callable[[], None]]:
    """A gateway with its publisher, a reader at another one who gets what that says, and a way to wait for it."""
    simulation = Simulation(1)
    gateways = SimulatedGateways(simulation, Topology.product(Scot(Factor.parse("a-b"), 1)), is_stored=True)
    gateways.wait_for_links()
    first, last = gateways

    def wait() -> None:
        simulation.run_until(simulation.now + 3 * SECOND)

    reader = Participant("reader", last, V5, True, 20, FAIR)
    publisher = Participant("publisher", first, V5, True, 20, FAIR)
    for one in (reader, publisher):
        one.connect()
    wait()
    reader.subscribe("t/#", 2)
    wait()
    return first, publisher, reader, wait


def test_what_is_said_after_damage_is_heard() -> None:
    """Numbers that were given once are not given again: peers would take what bears them for what they have."""
    first, publisher, reader, wait = conversation()
    said = [b"%d" % number for number in range(15)]
    for number, payload in enumerate(said):
        if number in (3, 10):
            first.power_off()
            if number == 10:
                damage(first)
            first.power_on()
            wait()
            publisher.connect()
            wait()
        assert publisher.publish("t/x", payload, 1 + number % 2)
        wait()
    assert [heard.payload for heard in reader.received] == said


def test_what_is_said_with_an_older_copy_of_the_disk_is_heard() -> None:
    """The copy does not know the numbers that were given since it was made; peers know them."""
    first, publisher, reader, wait = conversation()
    assert first.store is not None
    copy = first.store.disk
    for number in range(15):
        if number in (3, 8):
            first.power_off()
            if number == 3:
                copy = first.store.disk.killed()
            else:
                first.store.disk = copy
            first.power_on()
            wait()
            publisher.connect()
            wait()
        assert publisher.publish("t/x", b"%d" % number, 1 + number % 2)
        wait()
    assert [heard.payload for heard in reader.received] == [b"%d" % number for number in range(15)]


class Paper:
    """A journal that nobody reads."""

    def append(self, record: bytes, waits: bool) -> int:
        return 0


@pytest.mark.parametrize(
    ("paper", "is_damaged", "begins_after"),
    [(None, True, 1_800_001 * SECOND), (Paper(), False, 1_800_001 * SECOND), (None, False, 1 << 20)],
)
def test_messages_for_peers_are_numbered_by_the_clock(paper: Paper | None, is_damaged: bool, begins_after: int) -> None:
    """Of a microsecond there was never more than one: so none of the numbers was given, whatever is lost since."""
    topology = Topology.product(Scot(Factor.parse("a-b"), 1))
    stored = StoredLinks()
    stored.apply(reserved_record("b.0", 1 << 20))
    stored.is_damaged = is_damaged
    run = BootIdentity(bytes(8), bytes(8), lambda: 0.5)
    [link] = create_links(topology, "a.0", run, SECOND, paper, stored, 1_800_000 * SECOND)
    [given, *_] = link.outbox.records(RepeatedEntries())
    assert given == reserved_record("b.0", begins_after)
