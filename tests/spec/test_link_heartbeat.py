"""How soon a peer is noticed that lost power while messages to it are unacknowledged; and what an idle link costs."""

from __future__ import annotations

from edgebroker.instants import HOUR, MILLISECOND, SECOND
from edgebroker.overlay.link.events import LinkDown
from edgebroker.overlay.link.heartbeat import PATIENCE_NEAR
from edgebroker.overlay.link.options import LAN_OPTIONS, METERED_OPTIONS, LinkOptions
from edgelab.simworld.storms.shape import FederationShape
from edgelab.simworld.storms.world import StormWorld

from ..support.link_pair import FAR, NEAR, LinkPair


def test_what_nobody_acknowledges_does_not_go_to_a_dead_peer_for_long() -> None:
    pair = LinkPair(LinkOptions(patience=PATIENCE_NEAR), NEAR).start()
    pair.road.is_silent = True
    said = 0
    while not pair.events(LinkDown):
        said += 1
        pair.publish(qos=0)
        pair.run(100 * MILLISECOND)
    assert said <= 41  # two seconds, and two pings of a second each: not a heartbeat of ten


def test_where_bytes_cost_money_what_nobody_acknowledges_is_not_asked_about() -> None:
    pair = LinkPair(METERED_OPTIONS, FAR).start()
    before = pair.b.records_sent
    for _ in range(50):
        pair.publish(qos=0)
        pair.run(SECOND)
    assert pair.b.records_sent == before


def test_an_idle_link_is_asked_no_sooner_because_something_was_said() -> None:
    pair = LinkPair(LAN_OPTIONS, NEAR).start()
    pair.publish(qos=0)
    pair.run(5 * SECOND)  # that it came
    before = pair.a.records_sent + pair.b.records_sent
    pair.run(60 * SECOND)
    assert pair.a.records_sent + pair.b.records_sent - before <= 12


def test_an_end_of_an_idle_link_sends_3_kb_an_hour_at_most() -> None:
    sites = (("a", "b"), ("ab",), ("a", "b"))
    world = StormWorld(7, FederationShape(("a-b",), sites, ("wan", "lan", "metered")), ())
    world.run_for(HOUR // 2)
    assert world.is_connected
    before = {name: list(road.bytes) for name, road in world.roads.items()}
    world.run_for(HOUR)
    sent = {name: [road.bytes[end] - before[name][end] for end in (0, 1)] for name, road in world.roads.items()}
    assert len(sent) == 8
    assert all(500 < count <= 3_000 for ends in sent.values() for count in ends), sent
