"""Two gateways, one link, virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from edgebroker.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from edgebroker.limits import KIB
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.budget import OutboxFull
from edgebroker.overlay.link.events import DropEvent, LinkDown, LinkRefusal, LinkUp
from edgebroker.overlay.link.handshake import RefusalCode
from edgebroker.overlay.link.link import STOPPING
from edgebroker.overlay.link.options import LAN_OPTIONS, METERED_OPTIONS, LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.messages import Forward, Unadvertise
from edgebroker.overlay.traffic_class import TrafficClass
from edgelab.simworld.linked import WALL, LinkedGateway
from edgelab.simworld.roads import RoadConditions

from ..support.link_pair import FAR, NEAR, LinkPair

# -- connections -------------------------------------------------------------------------------------------------------


def test_either_end_may_dial() -> None:
    for options, other in ((LAN_OPTIONS, LinkOptions(dials=False)), (LinkOptions(dials=False), LAN_OPTIONS)):
        pair = LinkPair(options, NEAR, other).start()
        assert pair.events(LinkUp) == [LinkUp("b", goes_on=False)]
        assert pair.road.dials == 1


def test_of_two_dials_at_once_that_of_the_lower_number_stays() -> None:
    pair = LinkPair().start()
    assert pair.road.dials == 2
    assert [event.code for event in pair.events(LinkRefusal) if isinstance(event, LinkRefusal)] == [RefusalCode.CROSSED]
    assert len(pair.events(LinkUp)) == 1
    pair.run(HOUR)
    assert pair.road.dials == 2
    assert not pair.events(LinkDown)


def test_dials_at_random_moments_always_end_in_one_connection(chance: Random) -> None:
    for _ in range(200):
        pair = LinkPair(LAN_OPTIONS, RoadConditions((MILLISECOND, 30 * MILLISECOND)))
        pair.a.start()
        pair.run(chance.randrange(60 * MILLISECOND))
        pair.b.start()
        pair.run(2 * SECOND)
        assert pair.link.connection is not None
        assert pair.b.links["a"].connection is not None
        assert len(pair.a.plugs) == len(pair.b.plugs) == 1


def test_a_peer_that_fell_silent_is_noticed_in_the_time_of_a_heartbeat() -> None:
    pair = LinkPair().start()
    pair.road.is_silent = True
    pair.run(LAN_OPTIONS.heartbeat * 3 // 2 + 4 * SECOND)
    assert [event.reason for event in pair.events(LinkDown) if isinstance(event, LinkDown)] == ["the peer is silent"]


def test_silence_is_noticed_sooner_when_an_acknowledgement_is_owed() -> None:
    pair = LinkPair(METERED_OPTIONS, FAR).start()
    pair.run(2 * SECOND)
    pair.road.is_silent = True
    pair.publish()
    pair.run(METERED_OPTIONS.batch + 7 * SECOND)
    assert pair.events(LinkDown)


def test_a_line_that_flaps_all_day_is_not_dialled_more_than_twice_a_minute() -> None:
    pair = LinkPair().start()
    for _ in range(600):
        pair.run(6 * SECOND)
        pair.road.shake()
    assert pair.road.dials < 2 * (10 + 2 * 60)


def test_a_network_that_is_down_all_night_is_dialled_less_than_twice_a_minute_and_used_within_one_after() -> None:
    pair = LinkPair()
    pair.road.cut()
    pair.start().run(8 * HOUR)
    assert 2 * 8 * 60 < pair.road.dials < 2 * (2 * 8 * 60 + 10)
    pair.road.mend()
    assert pair.link.connection is None
    pair.run(MINUTE)
    assert pair.link.connection is not None


@pytest.mark.parametrize("why", [STOPPING, "the gateway goes over to another topology"])
def test_a_gateway_that_goes_says_why(why: str) -> None:
    pair = LinkPair().start()
    pair.b.links["a"].stop(pair.simulation.now, why)
    pair.b.turn()
    pair.run(SECOND)
    assert [event.reason for event in pair.events(LinkDown) if isinstance(event, LinkDown)] == [f"the peer says: {why}"]


def test_the_clocks_of_peers_are_compared() -> None:
    pair = LinkPair(LAN_OPTIONS, FAR).start()
    pair.b.links["a"].set_clock(WALL + 90 * SECOND)
    pair.run(5 * MINUTE)
    offset = pair.link.heartbeat.offset
    assert offset is not None
    assert abs(offset - 90 * SECOND) <= 10 * MILLISECOND
    assert 80 * MILLISECOND <= pair.link.heartbeat.round_trip <= 120 * MILLISECOND


# -- what is lost, and what is not -------------------------------------------------------------------------------------


def test_without_a_connection_qos_0_is_dropped_and_the_rest_waits() -> None:
    pair = LinkPair()
    pair.road.cut()
    pair.start()
    assert pair.publish(0) is Cause.OFFLINE
    assert pair.publish(1) is Cause.NONE
    dropped = pair.events(DropEvent)
    assert [event.cause for event in dropped if isinstance(event, DropEvent)] == [Cause.OFFLINE]
    pair.road.mend()
    pair.run(MINUTE)
    assert pair.b.kept == [(1, 2)]
    assert pair.link.figures(TrafficClass.BACKLOG).waiting == 0


def test_what_is_in_the_queue_when_the_connection_ends_is_counted() -> None:
    pair = LinkPair(
        LAN_OPTIONS, RoadConditions((5 * MILLISECOND, 5 * MILLISECOND), bytes_per_s=1_000, buffer_bytes=2 * KIB)
    ).start()
    for _ in range(10):
        pair.publish(0, bytes(500))
    assert pair.link.figures(TrafficClass.LIVE).waiting == 6
    pair.road.shake()
    assert pair.link.outbox.dropped == {Cause.CONNECTION_LOST: 6}


@pytest.mark.parametrize(("policy", "room"), [(OutboxFull.REFUSE, 8), (OutboxFull.DROP_NEWEST, 3)])
def test_the_outbox_is_bounded_and_says_what_it_drops(policy: OutboxFull, room: int) -> None:
    """Whatever comes to an outbox that refuses was acknowledged elsewhere, so with a disk it is kept."""
    pair = LinkPair(LinkOptions(bounds=OutboxBounds(messages=3, policy=policy)))
    assert [pair.publish() for _ in range(8)] == [Cause.NONE] * room + [Cause.QUEUE_FULL] * (8 - room)
    assert pair.link.outbox.has_room(1) == (policy is OutboxFull.DROP_NEWEST)
    pair.start().run(MINUTE)
    assert pair.b.kept == [(1, number + 1) for number in range(room)]


def test_what_waited_too_long_expires() -> None:
    pair = LinkPair()
    pair.road.cut()
    pair.start()
    pair.publish(1, expires_in_ms=20_000)
    pair.publish(1, expires_in_ms=90_000)
    pair.run(30 * SECOND)
    pair.road.mend()
    pair.run(MINUTE)
    assert pair.b.kept == [(1, 2)]
    (message,) = pair.b.reached
    assert isinstance(message, Forward)
    assert message.expires_in_ms is not None
    assert 0 < message.expires_in_ms <= 60_000


def test_control_goes_on_after_a_cut_and_begins_anew_after_a_restart() -> None:
    pair = LinkPair().start()
    pair.road.cut()
    pair.a.publish("b", Unadvertise((1,)), TrafficClass.CONTROL)
    pair.run(SECOND)
    pair.road.mend()
    pair.run(MINUTE)
    assert pair.b.reached == [Unadvertise((1,))]
    assert pair.events(LinkUp)[-1] == LinkUp("b", goes_on=True)
    pair.b.crash(False)
    pair.run(SECOND)
    pair.a.publish("b", Unadvertise((2,)), TrafficClass.CONTROL)
    pair.b.boot()
    pair.b.start()
    pair.run(MINUTE)
    assert pair.events(LinkUp)[-1] == LinkUp("b", goes_on=False)
    assert pair.b.reached == [Unadvertise((1,))]


def test_too_much_control_for_a_link_ends_the_connection_and_the_conversation() -> None:
    pair = LinkPair(LinkOptions(bounds=OutboxBounds(control_messages=3))).start()
    for number in range(10):
        pair.a.publish("b", Unadvertise((number,)), TrafficClass.CONTROL)
    pair.a.turn()
    pair.run(MINUTE)
    assert pair.events(LinkUp)[-1] == LinkUp("b", goes_on=False)
    assert len(pair.events(LinkDown)) == 1


def test_a_large_message_lets_small_ones_pass() -> None:
    pair = LinkPair(
        LAN_OPTIONS, RoadConditions((5 * MILLISECOND, 5 * MILLISECOND), bytes_per_s=8_000, buffer_bytes=KIB)
    ).start()
    pair.publish(1, bytes(64 * KIB), TrafficClass.BULK, "image")
    pair.run(SECOND)
    pair.publish(1, b"small")
    pair.a.publish("b", Unadvertise((1,)), TrafficClass.CONTROL)
    pair.run(5 * SECOND)
    assert len(pair.b.reached) == 2
    pair.run(10 * SECOND)
    assert len(pair.b.reached) == 3
    assert not pair.events(LinkDown)


# -- bytes -------------------------------------------------------------------------------------------------------------


def readings(chance: Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Readings of ten sensors, 64 bytes of JSON each, of which the measured digits are noise."""
    for number in range(count):
        sensor = number % 10
        payload = b'{"id":"s-%02d","ts":%d,"temp":%.2f,"hum":%.1f,"bat":%.2f}' % (
            sensor,
            1_800_000_000 + number // 10,
            20 + 10 * chance.random(),
            40 + 20 * chance.random(),
            3 + chance.random(),
        )
        yield f"site/line{sensor % 3}/s-{sensor:02}", payload


@pytest.mark.parametrize("qos", [0, 1])
def test_a_reading_costs_35_bytes_at_most_on_a_metered_link(qos: int, chance: Random) -> None:
    pair = LinkPair(METERED_OPTIONS, FAR).start()
    before, count = pair.bytes_with_tls, 3_000
    for topic, payload in readings(chance, count):
        assert len(payload) == 64
        assert pair.publish(qos, payload, topic=topic) is Cause.NONE
        pair.run(100 * MILLISECOND)
    pair.run(5 * SECOND)
    assert len(pair.b.reached) == count
    each = (pair.bytes_with_tls - before) / count
    print(f"{each:.1f} bytes for each reading, acknowledgements and TLS included")
    assert each <= 35


def test_an_idle_metered_link_costs_250_kb_a_day_at_most() -> None:
    pair = LinkPair(METERED_OPTIONS, FAR).start()
    pair.run(DAY)
    print(f"{pair.bytes_with_tls} bytes a day, TLS included")
    assert 50_000 < pair.bytes_with_tls <= 250_000


def test_without_deflate_an_event_of_a_known_flow_takes_seven_bytes_and_its_payload() -> None:
    pair = LinkPair(LinkOptions(heartbeat=HOUR)).start()
    pair.publish(0, bytes(64)), pair.run(SECOND)
    before = pair.road.bytes[0]
    pair.publish(0, bytes(64)), pair.run(SECOND)
    frame, array, slot, step, delay, head = 4, 1, 1, 1, 3, 2
    assert pair.road.bytes[0] - before == frame + array + slot + step + delay + head + 64


def test_a_rate_is_kept_and_control_passes_it() -> None:
    pair = LinkPair(LinkOptions(bytes_per_s=4_000, heartbeat=HOUR)).start()
    before = pair.road.bytes[0]
    for _ in range(200):
        pair.publish(1, bytes(1_000))
    pair.run(10 * SECOND)
    assert 38_000 < pair.road.bytes[0] - before < 46_000
    pair.a.publish("b", Unadvertise((1,)), TrafficClass.CONTROL)
    pair.a.turn()
    pair.run(20 * MILLISECOND)
    assert pair.b.reached[-1] == Unadvertise((1,))
    pair.run(MINUTE)
    assert len(pair.b.kept) == 200


def test_when_the_days_bytes_are_gone_qos_0_is_dropped_and_the_rest_waits_for_midnight() -> None:
    pair = LinkPair(LinkOptions(bytes_per_day=20_000, heartbeat=HOUR)).start()
    for _ in range(30):
        pair.publish(1, bytes(1_000))
    pair.publish(0)
    pair.run(SECOND)
    assert 18 <= len(pair.b.kept) <= 20
    assert pair.link.outbox.dropped == {Cause.BUDGET_SPENT: 1}
    midnight = DAY - WALL % DAY
    pair.simulation.run_until(midnight - SECOND)
    assert len(pair.b.kept) <= 20
    pair.run(2 * SECOND)
    assert len(pair.b.kept) == 30


def test_what_was_spent_today_is_remembered_over_a_restart() -> None:
    pair = LinkPair(LinkOptions(bytes_per_day=20_000, heartbeat=HOUR)).start()
    for _ in range(30):
        pair.publish(1, bytes(1_000))
    pair.run(SECOND)
    kept = len(pair.b.kept)
    pair.a.crash(False)
    pair.a.boot()
    pair.a.start()
    pair.run(MINUTE)
    assert len(pair.b.kept) <= kept + 1


def test_small_messages_wait_for_each_other_and_urgent_ones_do_not() -> None:
    pair = LinkPair(LinkOptions(batch=SECOND, heartbeat=HOUR), FAR).start()
    pair.run(SECOND)
    records = pair.a.records_sent
    for number in range(9):  # the first comes after a pause, and for it nobody would be waited for
        pair.publish(0)
        pair.run(100 * MILLISECOND)
        assert len(pair.b.reached) == 1, number
    assert pair.a.records_sent == records + 1
    pair.run(200 * MILLISECOND)
    assert len(pair.b.reached) == 9
    assert pair.a.records_sent == records + 2
    pair.publish(0)
    pair.a.publish("b", Unadvertise((1,)), TrafficClass.CONTROL)
    pair.a.turn()
    pair.run(60 * MILLISECOND)
    assert len(pair.b.reached) == 11


# -- queues ------------------------------------------------------------------------------------------------------------


def test_figures_for_the_congestion_measure() -> None:
    pair = LinkPair(
        LAN_OPTIONS, RoadConditions((5 * MILLISECOND, 5 * MILLISECOND), bytes_per_s=1_000, buffer_bytes=2 * KIB)
    ).start()
    for _ in range(10):
        pair.publish(0, bytes(500))
    figures = pair.link.figures(TrafficClass.LIVE)
    assert (figures.entered, figures.left, figures.waiting) == (10, 4, 6)
    assert figures.waiting_bytes > 6 * 500
    pair.run(MINUTE)
    figures = pair.link.figures(TrafficClass.LIVE)
    assert (figures.entered, figures.left, figures.waiting, figures.waiting_bytes) == (10, 10, 0, 0)


def test_strangers_are_refused_and_counted() -> None:
    pair = LinkPair().start()
    stranger = LinkedGateway(pair.simulation, "x", {"x": 9, "b": 1})
    stranger.roads["b"], stranger.others["b"] = pair.road, pair.b
    stranger.start()
    pair.run(SECOND)
    refusals = [event for event in stranger.events if isinstance(event, LinkRefusal)]
    assert refusals[0].code is RefusalCode.UNKNOWN
    assert "b has no link to a gateway 'x'" in refusals[0].reason
    assert pair.b.links.unidentified == len(refusals)
