"""The session directory: each gateway knows which other gateways may have a durable session of a client."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.options import FederationOptions
from edgebroker.federation.session_directory import SessionDirectory
from edgebroker.federation.session_summary import (
    BUCKETS,
    CHANGES_MAX,
    OwnSessions,
    SessionChanges,
    SessionSummary,
    SummaryQuestion,
    answer_to,
    client_fingerprint,
    read_statement,
)
from edgebroker.instants import MINUTE, SECOND
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import unaccounted
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b"), 2))
NAMES = tuple(one.name for one in TOPOLOGY.gateways)
NUMBERS = {one.name: one.number for one in TOPOLOGY.gateways}


class Sites:
    """Two sites of two gateways, each with a disk."""

    def __init__(self, seed: int, options: FederationOptions | None = None) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation, TOPOLOGY, is_stored=True, federation_options=options or FederationOptions()
        )
        self.gateways.wait_for_links()
        self.wait(5)

    def wait(self, seconds: int = 3) -> None:
        self.simulation.run_until(self.simulation.now + seconds * SECOND)

    def joined(self, name: str, gateway: str, kept: bool = True, clean: bool = False) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, kept, 100, FAIR)
        one.connect()
        self.wait()
        return one

    def directory(self, gateway: str) -> SessionDirectory:
        return self.gateways[gateway].overlay.directory

    def holders(self, client: str) -> dict[str, list[str]]:
        """Gateway -> where it believes a session of *client* to be."""
        names = {number: name for name, number in NUMBERS.items()}
        return {each: [names[one] for one in self.directory(each).holders(client)] for each in NAMES}


def seen_from_elsewhere(*gateways: str) -> dict[str, list[str]]:
    return {name: [one for one in gateways if one != name] for name in NAMES}


def test_all_learn_where_a_session_is_and_that_it_ended(seed: int) -> None:
    sites = Sites(seed)
    assert all(sites.directory(one).is_known(NUMBERS[other]) for one in NAMES for other in NAMES if other != one)
    sites.joined("short", "a.0", kept=False)
    truck = sites.joined("truck", "a.0")
    assert sites.holders("truck") == seen_from_elsewhere("a.0")
    assert sites.holders("short") == sites.holders("unknown") == seen_from_elsewhere()
    truck.cut()
    sites.wait()
    assert sites.holders("truck") == seen_from_elsewhere("a.0")
    truck.expiry_s = 0
    print(sites.directory("b.1").counts())
    assert [text for gateway in sites.gateways for text in unaccounted(gateway, [])] == []
