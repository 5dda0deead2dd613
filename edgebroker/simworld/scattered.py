"""A random workload over a whole federation: devices at all sites, roads that break, gateways that lose their power."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgebridge.wire.dialect import V5
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.overlay.factor import Factor
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology import Topology

from .checkers import disordered, doubled, missed, unaccounted, unwanted
from .gateways import Gateways
from .participant import Participant
from .simulation import Simulation
from .weather import FAIR

TOPICS: Final = ("hall/climate", "hall/door", "yard/climate", "quiet")
GRANTED: Final[dict[str, int]] = {"hall/#": 2, "+/climate": 1, "$filter/n%3E50/#": 2, "hall/door": 0}
"""What devices ask for, and the QoS at which they do."""
CRASHES: Final = 0.03
CUTS: Final = 0.05
QUIET: Final = 600


class Scattered:
    """One federation: *path* is its factor; each gateway has a reader that keeps its session, and a publisher."""

    def __init__(self, seed: int, path: str = "a-b", clusters: int = 2) -> None:
        self.simulation = Simulation(seed)
        self.gateways = Gateways(self.simulation, Topology.product(Scot(Factor.parse(path), clusters)), is_stored=True)
        self.gateways.meet()
        self.crashes = 0
        self.cuts = 0
        self.readers = [Participant(f"reader-{one.name}", one, V5, True, 20, FAIR) for one in self.gateways]
        self.publishers = [Participant(f"publisher-{one.name}", one, V5, True, 20, FAIR) for one in self.gateways]
        self._numbers = 0

    @property
    def everybody(self) -> list[Participant]:
        """All devices."""
        return [*self.readers, *self.publishers]

    def run(self, actions: int) -> list[str]:
        """Live through so many *actions*, let everything settle; what is broken."""
        chance = self.simulation.random
        for one in self.everybody:
            one.connect()
        self._pass(SECOND)
        for reader in self.readers:
            for text in chance.sample(list(GRANTED), 2):
                reader.subscribe(text, GRANTED[text])
        self._pass(2 * SECOND)
        for _ in range(actions):
            self._pass(round(chance.expovariate(1 / (20 * MILLISECOND))))
            self._act()
        return [*self._settle(), *self._broken()]

    def _act(self) -> None:
        chance = self.simulation.random
        lot = chance.random()
        if lot < CRASHES:
            self.crashes += 1
            name = chance.choice(list(self.gateways.by_name))
            self.gateways[name].crash(is_power_cut=chance.random() < 0.7)
            self.simulation.after(chance.randrange(SECOND), self._come_back)
        elif lot < CRASHES + CUTS:
            self.cuts += 1
            road = chance.choice(list(self.gateways.roads.values()))
            road.cut()
            self.simulation.after(chance.randrange(3 * SECOND), road.mend)
        else:
            one = chance.choice(self.publishers)
            for _ in range(chance.randrange(1, 4)):
                self._numbers += 1
                payload = b'{"n":%d,"of":%d}' % (chance.randrange(100), self._numbers)
                one.publish(chance.choice(TOPICS), payload, chance.randrange(3))

    def _come_back(self) -> None:
        for one in self.everybody:
            if not one.client.is_connected:
                one.connect()

    def _settle(self) -> Iterator[str]:
        self._pass(4 * SECOND)
        for road in self.gateways.roads.values():
            road.mend()
        for _ in range(QUIET):
            self._come_back()
            self._pass(SECOND)
            if all(one.is_settled for one in self.everybody) and not any(one.ledger.queued for one in self.gateways):
                return
        for gateway in self.gateways:
            yield f"{gateway.name}: {gateway.ledger.queued} copies open after {QUIET} s"

    def _broken(self) -> Iterator[str]:
        yield from unwanted(self.everybody)
        yield from doubled(self.everybody)
        if len(self.gateways.roads) == 1:  # else events may have gone around what was down, and be overtaken
            yield from disordered(self.everybody, self.readers)
        yield from missed(self.everybody, self.readers, GRANTED)
        for gateway in self.gateways:
            yield from unaccounted(gateway, [])

    def _pass(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)
