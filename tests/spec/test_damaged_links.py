"""A gateway whose journal has lost what it says of its links: what it says from then on is new, and heard."""

from __future__ import annotations

from edgebridge.frontend.peerlinks import Run, links_of
from edgebridge.wire.dialect import V5
from edgebroker.instants import SECOND
from edgebroker.overlay.factor import Factor
from edgebroker.overlay.link.records import Kind, StoredLinks, reserved_record
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology import Topology
from edgebroker.simworld.gateways import Gateways, SimulatedGateway
from edgebroker.simworld.network import FAIR
from edgebroker.simworld.participant import Participant
from edgebroker.simworld.simulation import Simulation
from edgebroker.storage.journal.recovery import recover


def damage(gateway: SimulatedGateway) -> None:
    """Flip a bit in the record of the last reservation, while the gateway is off."""
    assert gateway.store is not None
    disk, records = gateway.store.disk, list[bytes]()
    recover(disk, lambda lsn, record: records.append(record))
    *_, last = [record for record in records if record[0] == Kind.RUN]
    [(name, at)] = [(name, at) for name in disk.names() if (at := disk.read(name).find(last)) >= 0]
    disk.flip(name, 8 * (at + len(last) - 1))


def test_what_is_said_after_damage_is_heard() -> None:
    """Numbers that were given once are not given again: peers would take what bears them for what they have."""
    simulation = Simulation(1)
    gateways = Gateways(simulation, Topology.product(Scot(Factor.parse("a-b"), 1)), is_stored=True)
    gateways.meet()
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
    said = [b"%d" % number for number in range(15)]
    for number, payload in enumerate(said):
        if number in (3, 10):
            first.fall()
            if number == 10:
                damage(first)
            first.rise()
            wait()
            publisher.connect()
            wait()
        assert publisher.publish("t/x", payload, 1 + number % 2)
        wait()
    assert [heard.payload for heard in reader.heard] == said


def test_after_damage_messages_for_peers_are_numbered_by_the_clock() -> None:
    """Of a microsecond there was never more than one: so none of the numbers was given, whatever is lost."""
    topology = Topology.product(Scot(Factor.parse("a-b"), 1))
    for is_damaged in (True, False):
        stored = StoredLinks()
        stored.apply(reserved_record("b.0", 1 << 20))
        stored.is_damaged = is_damaged
        [link] = links_of(
            topology, "a.0", Run(bytes(8), bytes(8), lambda: 0.5), SECOND, None, stored, 1_800_000 * SECOND
        )
        [given, *_] = link.outbox.records()
        assert given == reserved_record("b.0", 1_800_001 * SECOND if is_damaged else 1 << 20)
