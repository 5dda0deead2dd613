"""While a gateway is dead, another one of its cluster announces its interests, so that no needless copies cross."""

from __future__ import annotations

import pytest

from edgebroker.federation.options import FederationOptions
from edgebroker.instants import MINUTE, SECOND
from edgebroker.interest import Interest
from edgebroker.overlay.messages import Announce, ClusterBits, ClusterBitsAck, Digest, Forward, Relay, StateKind
from edgebroker.topics import TopicFilter
from edgelab.simworld.federation import Federation

from ..support.routers import came, federation

FOUND = 3 * SECOND


def with_a_dead_member(clusters: int = 3) -> Federation:
    """b.1 is dead; at a.1 somebody asks for `t/#`, and b.0 publishes under `t` and `n`."""
    made = federation(clusters=clusters)
    made.subscribe("a.1", 1, "t/#")
    made.publish("b.0", "P", "t/x")
    publish(made, "P", "n/x")
    made.kill("b.1")
    made.settle()
    made.advance(FOUND)
    made.sent.clear()
    made.local_deliveries.clear()
    return made


def events(made: Federation) -> list[tuple[str, str]]:
    """Where events went since this was asked last."""
    found = [
        (one, other)
        for one, other, message in made.sent
        if isinstance(message, Forward) or (isinstance(message, Relay) and isinstance(message.message, Forward))
    ]
    made.sent.clear()
    return found


def publish(made: Federation, client: str, topic: str) -> None:
    """Somebody publishes at b.0."""
    made.publish("b.0", client, topic)
    made.settle()


def crossings(made: Federation) -> int:
    """How many of these were between clusters."""
    return sum(one[-1] != other[-1] for one, other in events(made))


def test_what_nobody_wants_goes_nowhere_although_the_member_is_dead() -> None:
    made = with_a_dead_member()
    made.publish("b.0", "P", "n/x")
    publish(made, "New", "n/new")
    events(made)
    made.publish("b.0", "New", "n/new")
    publish(made, "P", "n/x")
    assert events(made) == []


def test_what_somebody_wants_crosses_once() -> None:
    made = with_a_dead_member()
    publish(made, "P", "t/x")
    assert crossings(made) == 1
    assert "a.1" in came(made)


def test_what_is_asked_for_meanwhile_comes() -> None:
    made = with_a_dead_member()
    made.subscribe("c.1", 2, "n/#")
    made.settle()
    publish(made, "P", "n/x")
    assert "c.1" in came(made)
    made.unsubscribe("c.1", 2)
    made.settle()
    made.advance(2 * SECOND)
    events(made)
    publish(made, "P", "n/x")
    assert events(made) == []


def test_when_it_is_back_the_mate_speaks_for_its_cluster_again() -> None:
    made = with_a_dead_member()
    made.subscribe("c.1", 2, "n/#")
    made.settle()
    made.advance(SECOND)
    made.revive("b.1", {})
    made.settle()
    made.advance(2 * MINUTE)
    region = made.peers["b.0"].region
    assert region.deputies == {}
    made.sent.clear()
    made.unsubscribe("a.1", 1)
    made.settle()
    made.advance(2 * SECOND)
    assert {one for one, other, message in made.sent if isinstance(message, ClusterBits)} == {"b.1"}
    assert not any(isinstance(message, Relay) for _, _, message in made.sent), "the deputy says nothing"
    made.local_deliveries.clear()
    made.publish("b.0", "P", "t/x")
    publish(made, "P", "n/x")
    assert set(came(made)) == {"b.1", "c.1"}, "b.1 is on the way"


def test_an_advertisement_that_is_lost_on_the_way_costs_copies_and_no_more() -> None:
    made = with_a_dead_member(2)
    deputy = made.peers["b.0"].region.deputies[1]
    ways = {("b.0", "a.0"), ("b.0", "c.0"), ("a.0", "a.1"), ("c.0", "c.1")}
    made.lossy_links |= ways
    publish(made, "Q", "n/new")
    made.lossy_links -= ways
    assert crossings(made) == 0, "it waits for the deputy"
    made.advance(SECOND)
    assert crossings(made) == 1, "for a second"
    publish(made, "Q", "n/new")
    assert crossings(made) == 1, "until it is known there, it may be wanted"
    made.advance(5 * MINUTE)
    told = {each.topic_filter.text for each in made.peers[deputy].region.secondary.of("b.0")}
    assert told == {"t/x/#", "n/x/#", "n/new/#"}
    events(made)
    publish(made, "Q", "n/new")
    assert events(made) == []


def test_a_relay_that_dies_is_followed_by_another() -> None:
    made = with_a_dead_member()
    first = made.peers["b.0"].region.deputies[1]
    assert first in ("a.1", "c.1")
    other = {"a.1": "c.1", "c.1": "a.1"}[first]
    made.kill(first)
    made.settle()
    made.advance(FOUND)
    assert made.peers["b.0"].region.deputies[1] == other
    made.subscribe(other, 3, "n/#")
    made.settle()
    made.local_deliveries.clear()
    publish(made, "P", "n/x")
    assert other in came(made)


def test_a_gateway_elsewhere_says_nothing_of_interests() -> None:
    made = with_a_dead_member()
    peers = made.peers["a.1"]
    for said in (Digest(StateKind.INTERESTS, 0, 1, 1), Announce((Interest(TopicFilter.parse("x"), ()),), 0)):
        stranger = Relay(made.peers["b.0"].gateway.number, peers.gateway.number, 1, said)
        assert peers.received("a.0", stranger, made.now) == []


def test_who_is_met_is_not_forgotten_because_of_what_went_around() -> None:
    made = federation(options=FederationOptions(lease_s=60))
    made.publish("b.0", "P", "t/x")
    made.settle()
    host, mate = made.peers["b.0"].gateway, made.peers["b.1"]
    late = Relay(host.number, mate.gateway.number, 1, ClusterBitsAck(0, 0))
    made.perform("b.1", mate.received("a.1", late, made.now))
    made.advance(2 * MINUTE)
    assert len(mate.region.secondary.of("b.0")) == 1


@pytest.mark.parametrize("first", ["a.0", "b.0"])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_who_is_back_after_its_relay_was_lost_too_announces_all_anew(first: str, is_restarted: bool) -> None:
    made = federation("a-b", clusters=2)
    if is_restarted:  # then what the deputy says has greater numbers than what the mate said
        made.restart("b.1")
        made.settle()
    made.publish("a.0", "P", "n/x")
    made.settle()
    for one, other in (("a.0", "a.1"), ("b.0", "b.1")):
        made.cut(one, other)
        made.settle()
        made.advance(FOUND)
    for one, other in sorted((("a.0", "a.1"), ("b.0", "b.1")), key=lambda pair: pair[0] != first):
        made.connect(one, other)
        made.settle()
    made.advance(MINUTE)
    made.sent.clear()
    made.publish("a.0", "P", "n/x")
    made.settle()
    assert events(made) == [], "nobody wants it"
    made.subscribe("a.1", 1, "n/#")
    made.settle()
    made.local_deliveries.clear()
    made.publish("a.0", "P", "n/x")
    made.settle()
    assert came(made) == ["a.1"]
