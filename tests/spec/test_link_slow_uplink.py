"""A link over a slow uplink: long messages get through, and urgent ones do not wait for them."""

from __future__ import annotations

from random import Random

import pytest

from edgebroker.instants import MILLISECOND, MINUTE, SECOND
from edgebroker.limits import KIB
from edgebroker.overlay.link.events import LinkDown
from edgebroker.overlay.link.options import LAN_OPTIONS, METERED_OPTIONS, TLS_RECORD_BYTES, LinkOptions
from edgebroker.overlay.messages import Unadvertise
from edgebroker.overlay.traffic_class import TrafficClass
from edgelab.simworld.roads import RoadConditions

from ..support.link_pair import LinkPair

DELAY = (40 * MILLISECOND, 60 * MILLISECOND)
PER_S = 1_000


def slow(options: LinkOptions, buffer_bytes: int = 64 * KIB) -> LinkPair:
    pair = LinkPair(options, RoadConditions(DELAY, PER_S, buffer_bytes)).start()
    return pair.run(5 * SECOND)  # the round trip is known, and the patience is no longer that of the beginning


@pytest.mark.parametrize("buffer_bytes", [2 * KIB, 64 * KIB])
@pytest.mark.parametrize(
    "options", [LAN_OPTIONS, METERED_OPTIONS, LinkOptions(bytes_per_s=PER_S)], ids=["as it takes", "metered", "paced"]
)
def test_64_kib_take_a_minute_over_1000_bytes_a_second_and_one_connection(
    options: LinkOptions, buffer_bytes: int, chance: Random
) -> None:
    pair = slow(options, buffer_bytes)
    before = list(pair.road.bytes)
    pair.publish(1, chance.randbytes(64 * KIB))
    pair.run(70 * SECOND)
    assert not pair.events(LinkDown)
    assert len(pair.b.kept) == 1
    assert pair.road.bytes[0] - before[0] < 68 * KIB
    assert pair.road.bytes[1] - before[1] < 1 * KIB  # that it comes costs little to say


def test_beside_what_takes_a_minute_a_paced_link_lets_control_and_live_events_through(chance: Random) -> None:
    pair = slow(LinkOptions(bytes_per_s=PER_S))
    pair.publish(1, chance.randbytes(64 * KIB), TrafficClass.BACKLOG, "large")
    for number in range(1, 6):
        pair.run(7 * SECOND)
        pair.publish(1, b"now", topic="small")
        pair.a.publish("b", Unadvertise((number,)), TrafficClass.CONTROL)
        pair.a.turn()
        pair.run(4 * SECOND)  # three parts of 1 KiB were before it in the socket, or on their turn
        assert len(pair.b.kept) == number
        assert Unadvertise((number,)) in pair.b.reached
    pair.run(MINUTE)
    assert len(pair.b.kept) == 6
    assert not pair.events(LinkDown)


def test_a_peer_that_falls_silent_amid_a_long_message_is_given_up_as_soon_as_another(chance: Random) -> None:
    pair = slow(LAN_OPTIONS)
    pair.publish(1, chance.randbytes(64 * KIB))
    pair.run(20 * SECOND)
    pair.road.is_silent = True
    pair.run(3 * LAN_OPTIONS.patience + SECOND)
    assert [event.reason for event in pair.events(LinkDown) if isinstance(event, LinkDown)] == ["the peer is silent"]


def test_a_day_counts_what_tls_adds_only_where_there_is_tls() -> None:
    spent = []
    for certified in (None, "b"):
        pair = LinkPair(LinkOptions(bytes_per_day=1_000_000)).start()
        stream = pair.link.connection
        assert stream is not None
        stream.certified = certified
        before, road, records = pair.link.budget.spent, sum(pair.road.bytes), pair.a.records_sent
        pair.publish(0, bytes(100)), pair.run(SECOND)
        assert pair.a.records_sent == records + 1
        spent.append(pair.link.budget.spent - before - (sum(pair.road.bytes) - road))
    assert spent == [0, TLS_RECORD_BYTES]


def test_a_peer_that_dialled_with_a_certificate_is_charged_for_tls_too() -> None:
    pair = LinkPair(LinkOptions(dials=False), other_options=LinkOptions())
    accepted, pair.a.links.accept = pair.a.links.accept, lambda now: accepted(now, "b")  # type: ignore[method-assign]
    pair.start()
    assert pair.link.connection is not None
    assert pair.link.connection.certified == "b"
