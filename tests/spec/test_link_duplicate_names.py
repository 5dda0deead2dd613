"""Two gateways configured with one name: they do not take the link from each other for ever, and both are reported."""

from __future__ import annotations

import pytest

from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration
from edgebroker.overlay.link.events import LinkDown, LinkRefusal, LinkUp
from edgebroker.overlay.link.handshake import RefusalCode
from edgebroker.overlay.link.options import LAN_OPTIONS, LinkOptions
from edgebroker.overlay.link.peer_boots import BOOTS_MAX, TWIN_TIMEOUT
from edgelab.simworld.linked import LinkedGateway
from edgelab.simworld.roads import Road, RoadConditions
from edgelab.simworld.simulation import Simulation

NUMBERS = {"a": 0, "b": 1}
NEAR = RoadConditions((5 * MILLISECOND, 5 * MILLISECOND))


class Twins:
    """Gateway b, and two called a that dial it."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.judge = LinkedGateway(self.simulation, "b", NUMBERS, LinkOptions(dials=False))
        self.elder, self.younger = (LinkedGateway(self.simulation, "a", NUMBERS, LAN_OPTIONS) for _ in range(2))
        for twin in (self.elder, self.younger):
            twin.roads["b"] = Road(self.simulation, NEAR)
            twin.others["b"] = self.judge
        self.judge.start()
        self.start(self.elder)

    @property
    def has_twin(self) -> bool:
        return self.judge.links["a"].boots.has_twin(self.simulation.now)

    def start(self, gateway: LinkedGateway, wait: Duration = SECOND) -> None:
        gateway.start()
        self.run(wait)

    def restart(self, gateway: LinkedGateway, wait: Duration = SECOND) -> None:
        gateway.crash(False)
        gateway.boot()
        self.start(gateway, wait)

    def run(self, length: Duration) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def ups(self) -> int:
        return sum(isinstance(event, LinkUp) for event in self.judge.events)


def is_linked(gateway: LinkedGateway) -> bool:
    return gateway.links["b"].connection is not None


def codes(gateway: LinkedGateway) -> set[RefusalCode]:
    return {event.code for event in gateway.events if isinstance(event, LinkRefusal)}


def test_the_first_of_two_has_its_link_back_and_the_other_is_refused_until_it_is_gone(seed: int) -> None:
    twins = Twins(seed)
    assert (is_linked(twins.elder), twins.ups()) == (True, 1)
    twins.start(twins.younger, 10 * MINUTE)
    assert (is_linked(twins.elder), is_linked(twins.younger)) == (True, False)
    assert twins.ups() == 3, "the younger came once, for it might have been the elder's next run"
    assert twins.has_twin
    [heard] = [event.reason for event in twins.elder.events if isinstance(event, LinkDown)]
    assert heard == "the peer says: a came anew"
    assert codes(twins.younger) == {RefusalCode.TWIN}
    assert "two gateways are called 'a'" in twins.judge.links["a"].boots.twin
    dials = twins.judge.links["a"].boots.twins_refused
    assert 10 < dials < 40, "it dials again, more and more seldom"

    twins.elder.crash(False)
    twins.run(MINUTE + SECOND)
    assert is_linked(twins.younger), "whoever is left has the link"
    twins.run(TWIN_TIMEOUT)
    assert not twins.has_twin


def test_while_there_are_two_the_one_that_is_linked_is_not_thrown_off_by_any_new_run(seed: int) -> None:
    twins = Twins(seed)
    twins.start(twins.younger, MINUTE)
    ups = twins.ups()
    for _ in range(2 * BOOTS_MAX):
        twins.restart(twins.younger, 2 * SECOND)
    assert (twins.ups(), is_linked(twins.elder)) == (ups, True)
    twins.restart(twins.elder, 2 * SECOND)
    assert twins.ups() == ups + 1, "the link is free when the one that had it has gone"


def test_the_first_of_two_is_known_however_often_the_other_one_starts(seed: int) -> None:
    """So seldom that it is not known any more that there are two."""
    twins = Twins(seed)
    for _ in range(2 * BOOTS_MAX):
        twins.start(twins.younger, MINUTE)
        assert (is_linked(twins.elder), codes(twins.elder)) == (True, set())
        twins.younger.crash(False)
        twins.run(TWIN_TIMEOUT + MINUTE)
        twins.younger.boot()


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_one_that_starts_again_and_again_is_not_taken_for_two(is_power_cut: bool, seed: int) -> None:
    twins = Twins(seed)
    for number in range(3 * BOOTS_MAX):
        twins.elder.crash(is_power_cut)
        twins.elder.boot()
        twins.start(twins.elder, SECOND)
        assert (twins.ups(), is_linked(twins.elder)) == (2 + number, True)
    assert not twins.has_twin
    assert codes(twins.elder) == set()
