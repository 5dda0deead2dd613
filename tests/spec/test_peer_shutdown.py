"""A gateway that shuts down first sends its peers what it accepted at QoS 0."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

from edgebridge.wire.packets import Publish
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.pages import HttpPages
from edgebroker.runtime.settings import Settings
from tests.support.gateway_in_process import come, say

from ..support.topologies import TWO_GATEWAYS

PATIENCE_S = 20.0


def test_what_waits_for_an_answer_when_a_gateway_stops_goes_out_first(tmp_path: Path) -> None:
    """Of a topic that nobody published before it is not known yet who wants it, so its first message waits."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    path = tmp_path / "topology.toml"
    path.write_text(TWO_GATEWAYS.format(*(one.getsockname()[1] for one in sockets)))
    for one in sockets:
        one.close()

    async def until(is_so: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # type: ignore[operator]
                await asyncio.sleep(0.01)

    async def story() -> None:
        here, there = (
            Gateway(Settings.defaults().overridden(port=0, topology=path, name=name), tell=lambda line: None)
            for name in ("gw-here", "gw-there")
        )
        for gateway in (here, there):
            await gateway.start()
        try:
            assert here.peer_manager is not None
            await until(lambda: all(link.connection is not None for link in here.peer_manager.overlay.links))
            retained = await HttpPages(here.view).routes["/retained"][0]({})
            assert isinstance(retained.body, bytes)
            assert json.loads(retained.body)["other_gateways"] == 1, "so nobody takes it for all there is"
            come(there, "reader", "t")
            writer = come(here, "writer")
            say(here, writer, Publish("t", b"last words", 0))
            assert here.peer_manager.overlay.peers.region.pending.next_due is not None
            await here.stop()
            await until(lambda: there.ledger.delivered)
            assert here.ledger.matched == here.ledger.delivered == 1
        finally:
            await there.stop()

    asyncio.run(story())


def test_links_that_a_new_topology_makes_anew_are_shown_as_such(tmp_path: Path) -> None:
    """Their queues count from zero: a window that had begun before has had less than nothing in it."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    path = tmp_path / "topology.toml"
    path.write_text(TWO_GATEWAYS.format(*(one.getsockname()[1] for one in sockets)))
    for one in sockets:
        one.close()
    settings = Settings.defaults().overridden(port=0, topology=path, name="gw-here")

    async def story() -> None:
        here = Gateway(settings, tell=lambda line: None)
        await here.start()
        try:
            peer_manager = here.peer_manager
            assert peer_manager is not None
            [link] = peer_manager.overlay.links
            lane = link.outbox.queues[TrafficClass.LIVE]
            lane.entered = lane.left = 1
            assert peer_manager.congestion.index(link) == 0
            path.write_text(path.read_text().replace('name = "there"\n', 'name = "there"\nuplink = "metered"\n', 1))
            prepared = await peer_manager.prepare(settings)
            assert [*prepared.commit()] == ["topology: site there has another uplink: metered, 1000 ms, had wan, 2 ms"]
            [link] = peer_manager.overlay.links
            assert peer_manager.congestion.index(link) == 0
        finally:
            await here.stop()

    asyncio.run(story())
