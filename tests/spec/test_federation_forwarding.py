"""Forwarding in the federation: where copies go, the order of delivery, and retained queries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.federation.options import DEFAULT_OPTIONS, PUBLISHED_OPTIONS, FederationOptions
from edgebroker.filters import Filter
from edgebroker.header import EventHeader
from edgebroker.instants import SECOND
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    ClusterBits,
    ClusterBitsAck,
    ConditionalRetainedQuery,
    Digest,
    Forward,
    RetainedQuery,
    RetainedReply,
    Unadvertise,
    Withdraw,
)
from edgebroker.overlay.routing import RoutingCase
from edgelab.simworld.federation import Federation

from ..support.routers import came, federation, kinds

DYNAMIC = FederationOptions(is_dynamic=True)


# -- events -----------------------------------------------------------------------------------------------------------


def test_a_marked_copy_does_not_walk_for_ever() -> None:
    made = federation("a-b", 3, replace(DYNAMIC, is_precise=False))
    for number, gateway in enumerate(("a.0", "b.1", "b.2")):
        made.subscribe(gateway, number, "t/#")
    made.settle()
    made.perform("a.2", made.peers["a.2"].advertise("P", "t/x", made.now))
    made.settle()
    crowded = {peer: QueueSample(0, 0, 12) for peer in ("a.0", "a.1")}
    for walked, case in ((0, RoutingCase.NEIGHBOUR), (1, RoutingCase.LAST_RESORT)):
        peers = made.peers["a.2"]
        peers.end_window(crowded)
        header = replace(made_header(made), sequence=walked + 1)
        effects = peers.forwarder.receive("a.0", Forward(header, "t/x", b"", 1, False, "P", walked=walked), made.now)
        assert peers.forwarder.cases[case] == 1, (case, effects)


def made_header(made: Federation):  # type: ignore[no-untyped-def]
    """A header that asks for both other clusters."""
    made.local_deliveries.clear()
    made.publish("b.2", "Q", "t/x")
    made.settle()
    made.advance(SECOND)
    header = next(handed.forward.header for handed in made.local_deliveries)
    return replace(header, publisher=header.publisher + 1_000, civ=0b011)


def test_events_wait_where_no_way_is_left() -> None:
    made = federation("a", 3)
    made.subscribe("a.0", 1, "t/#")
    made.publish("a.2", "P", "t/x")
    made.settle()
    made.cut("a.2", "a.0")
    made.cut("a.1", "a.0")
    came(made)
    made.publish("a.2", "P", "t/x")
    made.settle()
    assert came(made) == []
    assert [pair for pair, waiting in made.outboxes.items() if waiting] == [("a.1", "a.0")]
    made.connect("a.0", "a.1")
    made.settle()
    assert came(made) == ["a.0"]


def test_a_copy_that_comes_twice_is_dropped() -> None:
    made = federation("a-b", 2)
    made.subscribe("b.1", 1, "t/#")
    made.settle()
    made.publish("a.0", "P", "t/x")
    made.settle()
    forward = next(message for _, _, message in made.sent if isinstance(message, Forward))
    assert came(made) == ["a.1", "b.1"]
    assert made.peers["a.1"].received("a.0", forward, made.now) == []
    assert made.peers["a.1"].forwarder.duplicates == 1


def test_a_payload_that_no_other_gateway_can_be_asked_about_is_counted() -> None:
    """Nobody here reads it, and it does not leave: without a count nothing would tell of it."""
    made = federation("a-b", 2)
    made.subscribe("b.1", 1, "t/#", Filter.parse("tags[*] = 'x' OR temp > 1").predicates)
    made.settle()
    for payload in (b'{"temp":2', b'{"temp":2}\0', b'{"tags":["y","x"]}', b'{"tags":["y"]}', b""):
        made.publish("a.0", "P", "t/x", payload)
        made.settle()
    assert came(made).count("b.1") == 2
    assert made.peers["a.0"].forwarder.unreadable.by_topic == {"t/x": 1}


def test_choices_hold_for_a_window() -> None:
    made = federation("a-b", 3, replace(DYNAMIC, is_precise=False))
    for number, gateway in enumerate(("b.0", "b.1", "a.1")):
        made.subscribe(gateway, number, "t/#")
    made.publish("a.2", "P", "t/x")
    made.settle()
    peers = made.peers["a.2"]
    chosen = []
    for loads in ({"a.0": 12, "a.1": 15}, {"a.0": 15, "a.1": 12}):
        peers.end_window({peer: QueueSample(0, 0, load) for peer, load in loads.items()})
        for _ in range(3):
            made.sent.clear()
            made.publish("a.2", "P", "t/x")
            chosen.append(made.sent[0][1])
    assert chosen == ["a.0"] * 3 + ["a.1"] * 3


# -- retained messages ------------------------------------------------------------------------------------------------


QUERIES = (RetainedQuery, ConditionalRetainedQuery)


def retained_at(made: Federation, gateway: str, number: int) -> list[bytes]:
    made.retained_replies.clear()
    made.query_retained(gateway, number, "t/#")
    made.settle()
    assert all((name, asked) == (gateway, number) for name, asked, _ in made.retained_replies)
    return [forward.payload for _, _, forward in made.retained_replies]


def test_a_late_subscriber_anywhere_gets_retained_messages_once() -> None:
    made = federation("a-b-c", 3)
    made.subscribe("c.1", 1, "t/#")
    made.settle()
    made.publish("a.0", "P", "t/x", b"1", retain=True)
    made.publish("a.0", "P", "t/y", b"2", retain=True)
    made.settle()
    assert sorted(made.retained) == ["a.0", "a.1"], "where they are published and where they entered a cluster"
    for number, gateway in enumerate(("c.0", "a.1", "c.1", "b.2"), 2):
        assert sorted(retained_at(made, gateway, number)) == [b"1", b"2"], gateway


def test_a_cluster_that_wanted_nothing_can_still_ask() -> None:
    made = federation("a-b-c", 3)
    made.publish("a.0", "P", "t/x", b"1", retain=True)
    made.settle()
    assert sorted(made.retained) == ["a.0"]
    assert retained_at(made, "c.2", 1) == [b"1"]


def test_the_copy_of_the_entry_serves_when_the_host_cannot_be_asked() -> None:
    made = federation("a-b-c", 2)
    made.subscribe("c.1", 1, "t/#")
    made.settle()
    made.publish("a.0", "P", "t/x", b"1", retain=True)
    made.settle()
    made.retained["a.0"]["t/x"] = replace(made.retained["a.0"]["t/x"], payload=b"2")
    assert retained_at(made, "c.1", 2) == [b"2"], "the host has a newer one, though nobody told the entry"
    made.cut("a.0", "a.1")
    assert retained_at(made, "c.1", 3) == [b"1"]


def test_of_answers_no_more_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebroker.federation.retained_queries.RETAINED_REPLY_TOPICS_MAX", 40)
    made = federation("a-b", 1)
    peers = made.peers["a.0"]
    for number in range(1, 20):
        made.sent.clear()
        made.query_retained("a.0", number, "t/#")
        request = next(message for *_, message in made.sent if isinstance(message, QUERIES)).request
        for topic in range(15):
            header = EventHeader(1 << 22, topic + 1, 0, 0, published_ms=5)
            newer = Forward(header, f"t/{topic}", b"x", 0, True, "P")
            older = replace(newer, header=replace(header, published_ms=4))
            assert len(peers.received("b.0", RetainedReply(request, newer), made.now)) == 1
            assert peers.received("b.0", RetainedReply(request, older), made.now) == []
        assert peers.retained_queries.remembered <= 40


def test_a_question_that_comes_twice_is_asked_once() -> None:
    made = federation("a-b", 1)
    made.query_retained("a.0", 1, "t/#")
    query = next(message for _, _, message in made.sent if isinstance(message, RetainedQuery))
    made.settle()
    assert made.peers["b.0"].received("a.0", query, made.now) == []


def test_published_options_announce_what_others_cover() -> None:
    for options, announced in ((DEFAULT_OPTIONS, 1), (PUBLISHED_OPTIONS, 2)):
        made = federation("a-b", 1, options)
        made.subscribe("a.0", 1, "t/#")
        made.subscribe("a.0", 2, "t/x")
        made.subscribe("a.0", 3, "t/x")
        said = kinds(made)
        assert said["Announce"] == announced
        made.unsubscribe("a.0", 2)
        assert not [message for _, _, message in made.sent if isinstance(message, Withdraw)]
        made.unsubscribe("a.0", 3)
        assert kinds(made)["Withdraw"] == announced - 1


def test_kinds_of_messages_are_those_of_the_source() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x")
    made.settle()
    said = {type(message) for _, _, message in made.sent}
    assert said == {Advertise, ClusterBits, ClusterBitsAck}
    assert not {Announce, Digest, Unadvertise} & said
