"""Each topic's retained message has one gateway of a site that keeps it: the last one where it was published or
cleared.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from edgebridge.frontend.admin import clear_retained
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Publish
from edgebroker.federation.retained_claims import LEAD_MS_MAX, GatewayPublisher, RetainedClaims
from edgebroker.header import EventHeader
from edgebroker.instants import CLOCK_IS_SET_AFTER, MILLISECOND, MINUTE, SECOND
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.pages import HttpPages
from edgebroker.runtime.settings import Settings
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation
from tests.support.gateway_in_process import come, say

from ..support.topologies import ONE_SITE

SITE = ("a.0", "b.0", "c.0")
EVERYWHERE = (*SITE, "a.1", "b.1")


class Site:
    """A site of three gateways in a row, and another one of as many. Clients are named by their gateway and number."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation, Topology.product(Scot(Factor.parse("a-b-c"), 2)), is_stored=True
        )
        self.gateways.wait_for_links()
        self._clients = 0

    def wait(self, length: int = 2 * SECOND) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def client(self, gateway: str) -> Participant:
        self._clients += 1
        one = Participant(f"client-{self._clients}", self.gateways[gateway], V5, True, 20, FAIR)
        one.connect()
        self.wait(SECOND)
        return one

    def retain(self, gateway: str, payload: bytes, qos: int = 1) -> None:
        assert self.client(gateway).publish("t", payload, qos, retain=True)
        self.wait()

    def late(self, gateway: str) -> list[bytes]:
        """What a new subscriber gets."""
        reader = self.client(gateway)
        reader.subscribe("t", 1)
        self.wait()
        return [heard.payload for heard in reader.received]

    def keepers(self) -> list[str]:
        """The gateways of the first site that keep a message."""
        return [name for name in SITE if self.gateways[name].frontend.retained.find("t")]


@pytest.fixture
def site(seed: int) -> Site:
    return Site(seed)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("where", ["b.0", "c.0"])
def test_what_another_gateway_of_the_site_published_is_replaced_and_cleared(site: Site, where: str, qos: int) -> None:
    site.retain("a.0", b"first")
    site.retain(where, b"second", qos)
    assert site.keepers() == [where]
    assert {name: site.late(name) for name in EVERYWHERE} == {name: [b"second"] for name in EVERYWHERE}
    site.retain("a.0", b"", qos)
    assert site.keepers() == []
    assert site.late("c.0") == site.late("b.0") == []


def test_an_operator_clears_it_at_any_gateway(site: Site) -> None:
    site.retain("a.0", b"kept")
    site.gateways["c.0"].operate(lambda frontend: clear_retained(frontend, "t", site.simulation.now))
    site.wait()
    assert site.keepers() == []


def test_a_gateway_that_was_off_hears_of_it_when_it_is_back(site: Site) -> None:
    """The claim waits for it, over restarts of the gateway that has to tell it."""
    site.retain("a.0", b"kept")
    site.gateways["a.0"].power_off()
    site.wait(MINUTE)
    site.retain("c.0", b"")
    site.gateways["b.0"].crash()
    site.wait(MINUTE)
    site.gateways["a.0"].power_on()
    site.wait(2 * MINUTE)
    assert site.keepers() == []
    assert site.late("b.0") == []


def test_a_claim_that_waited_drops_nothing_that_was_published_later(site: Site) -> None:
    for one, other in (("a.0", "b.0"), ("b.0", "c.0")):
        site.gateways.road(one, other).cut()
    site.retain("a.0", b"earlier")
    site.retain("c.0", b"", 1)
    site.retain("a.0", b"later")
    for one, other in (("a.0", "b.0"), ("b.0", "c.0")):
        site.gateways.road(one, other).mend()
    site.wait(2 * MINUTE)
    assert site.late("c.0") == [b"later"]


def test_who_owns_a_topic_claims_it_once(site: Site) -> None:
    publisher = site.client("a.0")
    for number in range(10):
        assert publisher.publish("t", b"%d" % number, 1, retain=True)
        site.wait(SECOND)
    assert site.gateways["a.0"].overlay.peers.claims.made == 1


SET_MS = CLOCK_IS_SET_AFTER // MILLISECOND


def test_a_clock_that_is_behind_makes_nothing_older() -> None:
    claims = RetainedClaims(GatewayPublisher(None, lambda: 1, 0, 0))  # type: ignore[arg-type]
    now_ms = SET_MS + 1_000
    ahead = EventHeader(7, 1, 0, 0, published_ms=now_ms + 4_000)
    assert claims.read(ahead.pack() + b"t", now_ms) == ("t", ahead)
    assert [claims.earliest_ms(now_ms + more) - now_ms for more in (0, 0, 3_999, 9_000)] == [4_001, 4_002, 4_003, 9_000]
    wrong = EventHeader(7, 1, 0, 0, published_ms=now_ms + 9_001 + LEAD_MS_MAX)
    assert claims.read(wrong.pack() + b"t", now_ms + 9_000) == ("t", wrong)
    assert claims.earliest_ms(now_ms + 9_100) == now_ms + 9_100, "a clock that is more than an hour ahead is wrong"


def test_who_does_not_know_the_time_goes_by_claims() -> None:
    claims = RetainedClaims(GatewayPublisher(None, lambda: 1, 0, 0))  # type: ignore[arg-type]
    stamp = EventHeader(7, 1, 0, 0, published_ms=SET_MS + LEAD_MS_MAX + 5)
    claims.read(stamp.pack() + b"t", 1_000)
    assert claims.earliest_ms(1_000) == stamp.published_ms + 1


@pytest.mark.parametrize("payload", [b"", b"short", EventHeader(1, 1, 0, 0).pack() + b"\xff"])
def test_a_claim_that_cannot_be_read_is_none(payload: bytes) -> None:
    assert RetainedClaims(GatewayPublisher(None, lambda: 1, 0, 0)).read(payload, 0) is None  # type: ignore[arg-type]


def test_an_order_clears_what_another_gateway_of_the_site_keeps(tmp_path: Path) -> None:
    """Two gateways of one site, over real sockets."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    path = tmp_path / "topology.toml"
    ports = [one.getsockname()[1] for one in sockets]
    path.write_text(ONE_SITE.format(*ports))
    for one in sockets:
        one.close()

    async def until(is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.01)

    async def story() -> None:
        here, there = gateways = [
            Gateway(Settings.defaults().overridden(port=0, topology=path, name=name), tell=lambda line: None)
            for name in ("gw-here", "gw-there")
        ]
        for gateway in gateways:
            await gateway.start()
        try:
            assert here.peer_manager is not None
            links = here.peer_manager.overlay.links
            await until(lambda: all(link.connection is not None for link in links))
            say(here, come(here, "writer"), Publish("t", b"kept", 1, retain=True, packet_id=1))
            clear = HttpPages(there.view).order_routes["/retained"]
            answers = [
                json.loads(bytes((await clear(f"/retained?do=clear&topic={one}")).body)) for one in ("t/%23", "t")
            ]  # type: ignore[arg-type]
            assert [(one["cleared"], one["is_site_told"]) for one in answers] == [(0, False), (0, True)]
            await until(lambda: here.frontend.retained.find("t") is None)
        finally:
            for gateway in gateways:
                await gateway.stop()

    asyncio.run(story())
