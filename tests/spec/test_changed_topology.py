"""Another topology while gateways run: a new site joins, clients stay, and nothing that was acknowledged is lost."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration
from edgebroker.log_schema import Cause
from edgebroker.names import Address
from edgebroker.overlay.topology.diff import difference
from edgebroker.overlay.topology.draft import DraftGateway, Site, TopologyDraft
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import disordered, doubled, missed, unaccounted, unwanted
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

TOPIC = "t/x"
GAP = 20 * MILLISECOND


def sites(count: int) -> Topology:
    """So many, each a row of two gateways; the numbers of a new site's come after those of all others."""
    places = [(position, site) for site in range(count) for position in ("a", "b")]
    gateways = tuple(
        DraftGateway(f"{position}.{site}", number, str(site), (position,), (Address("host", 1 + number),))
        for number, (position, site) in enumerate(places)
    )
    return Topology(TopologyDraft("plant", ("a-b",), tuple(Site(str(site), site) for site in range(count)), gateways))


class Growing:
    """Two sites, with readers of everything at each gateway, and publishers at two."""

    def __init__(self, seed: int, is_stored: bool, is_logged: bool = False) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(self.simulation, sites(2), is_stored=is_stored, is_logged=is_logged)
        self.gateways.wait_for_links()
        self.participants: list[Participant] = []
        self.readers = {name: self.reader(name) for name in self.gateways.by_name}
        self.publishers = [self.joined(f"publisher-{name}", name) for name in ("a.0", "b.1")]
        self.sent = 0
        self.restless = range(0)
        """While links are down, events go around them and may be overtaken."""

    def joined(self, name: str, gateway: str) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, True, 20, FAIR)
        one.connect()
        self.wait(SECOND)
        self.participants.append(one)
        return one

    def reader(self, gateway: str) -> Participant:
        reader = self.joined(f"reader-{gateway}", gateway)
        reader.subscribe("t/#", 2)
        self.wait(SECOND)
        return reader

    def wait(self, length: Duration) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish_for(self, length: Duration) -> None:
        """Let the publishers say something every GAP."""
        end = self.simulation.now + length
        while self.simulation.now < end:
            for publisher in self.publishers:
                self.sent += publisher.publish(f"{TOPIC}/{publisher.name}", b"%d" % self.sent, 1 + self.sent % 2)
            self.wait(GAP)

    def change(self, names: list[str]) -> None:
        """Let the gateways of *names* go over to three sites, one after the other, until all have met."""
        began = self.simulation.now
        for name in names:
            self.gateways[name].change_topology(sites(3))
            self.publish_for(self.simulation.random.randrange(SECOND))
        self.gateways.wait_for_links(MINUTE)  # who was refused dials again
        self.restless = range(began, self.simulation.now)

    def complaints(self) -> list[str]:
        """What does not hold."""
        everybody, steady = self.participants, [*self.readers.values()]
        return [
            *unwanted(everybody),
            *doubled(everybody),
            *disordered(everybody, steady, lambda _, said: said.at not in self.restless),
            *missed(everybody, steady, {"t/#": 2}),
            *(text for gateway in self.gateways for text in unaccounted(gateway, [])),
        ]


def test_a_new_site_is_something_that_running_gateways_can_take() -> None:
    changes = difference(sites(2), sites(3))
    assert [change.text for change in changes] == ["site 2 is new", "gateway a.2 is new", "gateway b.2 is new"]
    assert all(change.is_live for change in changes)


@pytest.mark.parametrize("is_logged", [False, True])
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_site_joins_while_everybody_publishes(is_stored: bool, is_logged: bool, seed: int) -> None:
    growing = Growing(seed, is_stored, is_logged)
    names = [*growing.gateways.by_name]
    growing.simulation.random.shuffle(names)
    growing.publish_for(SECOND)
    growing.gateways.grow(sites(3))
    growing.change(names)
    late = growing.reader("b.2")
    growing.publish_for(SECOND)
    growing.wait(10 * SECOND)
    assert growing.complaints() == []
    for reader in growing.readers.values():
        assert len(reader.received) == growing.sent, reader.name
    assert 80 < len(late.received) < growing.sent, "what was said since it came"
    assert all(one.sessions_lost == 1 and one.is_ready for one in growing.participants), "their first is no loss"


@pytest.mark.parametrize("is_power_cut", [True, False])
def test_a_gateway_that_is_killed_when_it_has_just_gone_over_loses_nothing(is_power_cut: bool, seed: int) -> None:
    growing = Growing(seed, True)
    growing.gateways.grow(sites(3))
    growing.publish_for(SECOND)
    for name in ("a.0", "b.0", "a.1", "b.1"):
        gateway = growing.gateways[name]
        gateway.change_topology(sites(3))
        growing.wait(growing.simulation.random.choice((0, 1, MILLISECOND, 100 * MILLISECOND)))
        gateway.crash(is_power_cut)
        for one in growing.participants:
            one.connect()
        growing.wait(SECOND)
        growing.publish_for(SECOND)
    growing.wait(2 * MINUTE)
    growing.gateways.wait_for_links()
    growing.wait(10 * SECOND)
    growing.restless = range(growing.simulation.now)
    assert growing.complaints() == []


def test_what_waits_for_a_peer_that_is_away_waits_on(seed: int) -> None:
    growing = Growing(seed, False)
    dead = growing.gateways["b.1"]
    dead.power_off()
    growing.wait(5 * SECOND)
    growing.publishers.pop()
    growing.publish_for(SECOND)
    growing.wait(SECOND)
    gateway = growing.gateways["a.0"]
    before = sum(one.waiting for one in growing.gateways)
    assert before >= 50
    growing.gateways.grow(sites(3))
    for name in ("a.0", "b.0", "a.1"):
        growing.gateways[name].change_topology(sites(3))
    growing.wait(MINUTE)
    assert sum(one.waiting for one in growing.gateways) == before
    assert gateway.ledger.published == growing.sent + 1, "the first one waited for answers, and left as another"


class Shrinking(Growing):
    """Three sites, one of which is to be taken out, or a gateway of one."""

    def __init__(self, seed: int, is_stored: bool, whole: Topology, is_logged: bool = False) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(self.simulation, whole, is_stored=is_stored, is_logged=is_logged)
        self.gateways.wait_for_links()
        self.participants = []
        self.readers = {name: self.reader(name) for name in self.gateways.by_name}
        self.publishers = []
        self.sent = 0
        self.restless = range(0)

    def take_out(self, names: list[str], rest: Topology) -> None:
        """Let *names* be off for ever, and the others go over to *rest*, one after the other."""
        began = self.simulation.now
        for name in names:
            self.gateways[name].power_off()
            del self.gateways.by_name[name], self.readers[name]
        self.participants = [one for one in self.participants if one.name.removeprefix("reader-") not in names]
        self.gateways.grow(rest)  # nobody is new, but some meet who did not before
        for name in self.gateways.by_name:
            self.gateways[name].change_topology(rest)
            self.publish_for(self.simulation.random.randrange(SECOND))
        self.gateways.wait_for_links(MINUTE)
        self.restless = range(began, self.simulation.now)


def without_site(gone: int) -> Topology:
    """Three sites but one; the others have the indices that they had."""
    whole = sites(3).draft
    return Topology(
        TopologyDraft(
            whole.federation,
            whole.tree,
            tuple(site for site in whole.sites if site.index != gone),
            tuple(one for one in whole.gateways if one.site != str(gone)),
        )
    )


def row(middle: bool) -> Topology:
    """Two sites with three gateways in a row each; or without the middle one of the first, whose place its neighbour
    takes.
    """
    gateways = [
        DraftGateway(f"{position}.{site}", 3 * site + at, str(site), (position,), (Address("host", 1 + 3 * site + at),))
        for site in (0, 1)
        for at, position in enumerate(("a", "b", "c"))
    ]
    if not middle:
        first, _, *others = gateways
        gateways = [DraftGateway(first.name, first.number, "0", ("a", "b"), first.address), *others]
    return Topology(TopologyDraft("plant", ("a-b-c",), (Site("0", 0), Site("1", 1)), tuple(gateways)))


def test_what_is_taken_out_is_something_that_running_gateways_can_take() -> None:
    for gone in (0, 1, 2):
        changes = difference(sites(3), without_site(gone))
        assert [change.text for change in changes] == [
            f"site {gone} is gone",
            f"gateway a.{gone} is gone",
            f"gateway b.{gone} is gone",
        ]
        assert all(change.is_live for change in changes)
    changes = difference(row(True), row(False))
    assert [(change.text, change.is_live) for change in changes] == [
        ("gateway b.0 is gone", True),
        ("gateway a.0 gains b", True),
    ]
    moved = difference(row(False), row(True))
    assert [change.text for change in moved] == ["gateway a.0 loses b", "gateway b.0 is new"]


def test_an_index_or_a_number_of_what_is_gone_is_not_given_again() -> None:
    again = sites(3).draft
    named = tuple(Site("west", 2) if site.index == 2 else site for site in again.sites)
    gateways = tuple(
        one if one.site != "2" else DraftGateway(f"w{one.number}", one.number, "west", one.positions, one.address)
        for one in again.gateways
    )
    changes = difference(sites(3), Topology(TopologyDraft(again.federation, again.tree, named, gateways)))
    assert [change.text for change in changes if not change.is_live] == [
        "site west is new, with the index 2 of 2",
        "gateway w4 is new, with the number 4 of a.2",
        "gateway w5 is new, with the number 5 of b.2",
    ]


@pytest.mark.parametrize("is_logged", [False, True])
@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_site_is_taken_out_while_everybody_publishes(gone: int, is_stored: bool, is_logged: bool, seed: int) -> None:
    shrinking = Shrinking(seed, is_stored, sites(3), is_logged)
    first, last = ("a.1", "b.2") if gone == 0 else ("a.0", "b.2" if gone == 1 else "b.1")
    shrinking.publishers = [shrinking.joined(f"publisher-{name}", name) for name in (first, last)]
    shrinking.publish_for(SECOND)
    shrinking.wait(5 * SECOND)
    shrinking.take_out([f"a.{gone}", f"b.{gone}"], without_site(gone))
    shrinking.publish_for(SECOND)
    shrinking.wait(10 * SECOND)
    assert shrinking.complaints() == []
    for reader in shrinking.readers.values():
        assert len(reader.received) == shrinking.sent, reader.name
    assert sum(gateway.waiting for gateway in shrinking.gateways) == 0, "nothing waits for who is gone"
    dropped = [gateway.ledger.dropped for gateway in shrinking.gateways]
    assert sum(each.get(Cause.PEER_REMOVED, 0) for each in dropped) > 0, "what was for the site alone"
    assert not any(Cause.SESSION_ENDED in each for each in dropped), "no session ended"


@pytest.mark.parametrize("is_logged", [False, True])
@pytest.mark.parametrize("is_stored", [True, False])
def test_what_waits_for_a_gateway_that_is_taken_out_reaches_who_was_behind_it(
    is_stored: bool, is_logged: bool, seed: int
) -> None:
    shrinking = Shrinking(seed, is_stored, row(True), is_logged)
    shrinking.publishers = [shrinking.joined(f"publisher-{name}", name) for name in ("a.0", "b.1")]
    shrinking.publish_for(SECOND)
    shrinking.wait(5 * SECOND)
    shrinking.gateways["b.0"].power_off()
    shrinking.publish_for(SECOND)  # some of it waits at a.0 for the gateway that is never back
    shrinking.take_out(["b.0"], row(False))
    shrinking.publish_for(SECOND)
    shrinking.wait(10 * SECOND)
    assert shrinking.complaints() == []
    for reader in shrinking.readers.values():
        assert len(reader.received) == shrinking.sent, reader.name
    assert sum(gateway.waiting for gateway in shrinking.gateways) == 0
