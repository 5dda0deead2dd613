"""The shaper of a bridge: rate, daily budget and schedule. Time is a number here."""

from __future__ import annotations

from collections.abc import Sequence

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.budget import LocalTime, parse_span
from edgebridge.bridge.endpoints import BridgeCommand
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.shaper import ShaperOptions
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import PING_REQ
from edgebridge.wire.packets import Disconnect, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.properties import Property
from edgebroker.instants import HOUR, SECOND

from ..support.open_bridge import NOON, RULES, ForgetfulSession, OpenBridge, decoded


def messages(count: int, qos: int, size: int = 100) -> list[Packet]:
    """Numbered, *size* bytes each on the line to the remote."""
    head = 2 + 2 + len("out/a") + 1 + (2 if qos else 0)
    return [
        Publish("out/a", b"%0*d" % (size - head, number), qos, packet_id=number if qos else 0)
        for number in range(1, count + 1)
    ]


def numbers(packets: Sequence[Packet]) -> list[int]:
    return [int(packet.payload) for packet in packets if isinstance(packet, Publish)]


def test_a_backlog_drains_at_the_rate_and_nothing_is_lost() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=1_000))
    trip.ours(*messages(100, 1))
    assert 10 <= len(trip.said) <= 11, "a second's worth is free, the greeting had its part of it"
    trip.until(5 * SECOND)
    assert 59 <= len(trip.said) <= 62
    trip.until(20 * SECOND)
    last = trip.said[-1][0]
    assert 8 * SECOND <= last <= 10 * SECOND
    assert all(later - now <= 200_000 for (now, _), (later, _) in zip(trip.said, trip.said[1:], strict=False)), "evenly"
    assert numbers(trip.sent()) == list(range(1, 101)), "in order, each once"
    assert not trip.bridge.outbound_counters.dropped


def test_answers_count_and_leave_half_of_the_rate() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=100))
    trip.ours(*messages(60, 1))
    for step in range(1, 201):  # 20 s with 400 bytes of answers in each
        trip.until(step * 100_000)
        trip.theirs(*(Publish("in/a", b"", 1, packet_id=number) for number in range(1, 11)))
        trip.ours(*(PubAck(number) for number in range(1, 11)))
    assert 9 <= len(numbers(trip.sent())) <= 13


def test_messages_a_second() -> None:
    trip = OpenBridge(ShaperOptions(rate_messages_s=5))
    trip.ours(*messages(30, 1))
    trip.until(2 * SECOND)
    assert 14 <= len(trip.said) <= 17
    trip.until(6 * SECOND)
    assert numbers(trip.sent()) == list(range(1, 31))


def test_what_waits_is_in_nobodys_way() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=100), keep_alive_s=10)
    trip.ours(Publish("out/q", b"", 2, packet_id=9), *messages(20, 2))
    trip.theirs(PubRec(9), Publish("in/a", b"", 2, packet_id=1), PubRec(1))
    assert [type(packet) for packet in trip.answered()] == [PubRec, Publish, PubRec]
    trip.sent()
    trip.ours(PubRel(9), PubRec(1))
    assert trip.sent() == [PubRel(9), PubRec(1)], "ahead of all messages that wait"
    trip.theirs(PubRel(1))
    trip.ours(PubComp(1))
    assert trip.sent() == [PubComp(1)]
    trip.until(6 * SECOND)
    assert PING_REQ in [data for _, data in trip.said], "who says nothing is asked, whatever waits"


def test_qos_0_waits_for_ten_seconds_of_the_rate_and_no_more() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=1_000))
    trip.ours(*messages(500, 0))
    dropped = trip.bridge.outbound_counters.dropped["rate"]
    assert 380 <= dropped <= 395, "11 went at once, and a little more than 100 wait"
    trip.until(30 * SECOND)
    assert numbers(trip.sent()) == list(range(1, 501 - dropped))
    trip.ours(*messages(40, 0))
    waiting = 40 - len(trip.said)
    trip.bridge.on_connection_lost("cut", trip.now)
    assert trip.bridge.outbound_counters.dropped["absent"] == waiting > 0, "with the connection it is over"


def test_time_to_live_goes_by_while_a_message_waits() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=100))
    trip.ours(*messages(4, 1, 200))
    for number, seconds in ((5, 3), (6, 60)):
        properties = {Property.MESSAGE_EXPIRY_INTERVAL: seconds}
        trip.ours(Publish("out/b", b"%d" % number, 1, packet_id=number, properties=properties))
    trip.until(20 * SECOND)
    *_, last = trip.sent()
    assert isinstance(last, Publish)
    assert last.payload == b"6"
    assert 50 <= int(str(last.properties[Property.MESSAGE_EXPIRY_INTERVAL])) <= 54
    assert trip.bridge.outbound_counters.dropped["expired"] == 1
    assert trip.answered() == [PubAck(5)], "our front end need not send it again"


def test_what_the_remote_may_have_is_finished_whatever_its_time_to_live() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=100))
    trip.ours(*messages(4, 1, 200))
    trip.ours(Publish("out/b", b"5", 2, False, True, 5, {Property.MESSAGE_EXPIRY_INTERVAL: 3}))
    trip.until(20 * SECOND)
    *_, last = trip.sent()
    assert isinstance(last, Publish)
    assert (last.payload, last.dup) == (b"5", True)


def test_when_the_days_bytes_are_spent_what_goes_out_waits_for_the_next_day() -> None:
    trip = OpenBridge(ShaperOptions(bytes_per_day=10_000))
    daily_budget = trip.bridge.shaper.daily_budget
    begun = daily_budget.spent
    assert begun > 0, "greeting costs too"
    trip.ours(*messages(80, 1))
    trip.theirs(*(PubAck(number) for number in range(1, 81)))
    assert daily_budget.spent == begun + 8_000 + 80 * 4, "both directions"
    assert trip.bridge.shaper.warning == "80% of the 10,000 bytes of the day are spent"
    trip.sent()
    trip.ours(*messages(40, 1), *messages(5, 0))
    went = len(trip.sent())
    assert 10_000 <= daily_budget.spent < 10_100
    assert trip.bridge.shaper.warning == "the 10,000 bytes of the day are spent: what goes out waits until 00:00"
    assert trip.bridge.outbound_counters.dropped["budget"] == 5
    trip.theirs(*(PubAck(number) for number in range(1, went + 1)))
    trip.answered()
    trip.theirs(Publish("in/a", b"", 1, packet_id=1))
    assert [type(packet) for packet in trip.answered()] == [Publish], "what comes in goes on"
    trip.ours(PubAck(1))
    assert trip.sent() == [PubAck(1)]
    trip.until(12 * HOUR)
    trip.bridge.set_local_time(LocalTime(1, 24 * 60 - 1), trip.now)
    trip.ours()
    assert not trip.said
    trip.bridge.set_local_time(LocalTime(2, 0), trip.now)
    trip.ours()
    assert numbers(trip.sent()) == list(range(went + 1, 41))
    assert trip.bridge.shaper.warning == ""


def test_qos_0_does_not_wait_over_night() -> None:
    trip = OpenBridge(ShaperOptions(rate_bytes_s=1_000, bytes_per_day=2_000))
    trip.ours(*messages(50, 0))
    trip.until(20 * SECOND)
    assert trip.bridge.pacing_queue is not None
    assert trip.bridge.pacing_queue.waiting_messages == 0
    assert trip.bridge.outbound_counters.dropped["budget"] + len(trip.said) == 50


def test_what_is_gathered_counts_towards_the_days_bytes() -> None:
    trip = OpenBridge(
        ShaperOptions(bytes_per_day=3_000), rules=("out/# out 1 batch_messages=500 batch_s=60", "in/# in 2")
    )
    trip.ours(*messages(100, 1))
    assert not trip.said, "it is gathered"
    assert trip.bridge.shaper.is_budget_spent
    trip.until(HOUR)
    assert 2_500 < trip.bridge.shaper.daily_budget.spent < 3_200, (
        "not all 100: a message and an envelope too many at most"
    )


def test_a_batch_waits_over_night_if_other_bytes_took_its_place() -> None:
    trip = OpenBridge(
        ShaperOptions(bytes_per_day=3_000), rules=("out/# out 1 batch_messages=500 batch_s=60", "in/# in 2")
    )
    trip.ours(*messages(10, 1), *messages(1, 0))
    trip.theirs(Publish("in/a", bytes(3_000), 0))
    trip.until(HOUR)
    assert not trip.said
    trip.bridge.set_local_time(LocalTime(2, 0), trip.now)
    trip.ours()
    assert len(trip.said) == 1
    trip.ours(*messages(1, 0))
    trip.bridge.pause(trip.now)
    assert trip.bridge.outbound_counters.dropped == {"absent": 1}, "at QoS 0 nobody sends it again"


NIGHT = ShaperOptions(schedule=(parse_span("22:00-06:00 open"), parse_span("00:00-24:00 closed")))


def test_outside_its_hours_a_bridge_hangs_up_and_dials_nobody() -> None:
    trip = OpenBridge(ShaperOptions(), keep_alive_s=10)
    bridge = trip.bridge = Bridge(
        BridgeOptions("x", "up", [parse_rule(rule) for rule in RULES], sends_origin=False, shaper_options=NIGHT),
        ForgetfulSession(),
        lambda: 0,
    )
    bridge.set_local_time(NOON, 0)
    bridge.start(0)
    assert (bridge.state, bridge.reason) == ("closed", "closed until 22:00, as its schedule says")
    assert bridge.take_commands() == [BridgeCommand.OPEN], "what is for the remote is kept from now on"
    trip.until(9 * HOUR)
    bridge.set_local_time(LocalTime(1, 21 * 60 + 59), trip.now)
    assert bridge.state == "closed"
    trip.until(10 * HOUR)
    bridge.set_local_time(LocalTime(1, 22 * 60), trip.now)
    trip.connect()
    bridge.set_local_time(LocalTime(2, 5 * 60 + 59), trip.now)
    assert bridge.state == "open", "over midnight"
    bridge.set_local_time(LocalTime(2, 6 * 60), trip.now)
    assert bridge.state == "closed"
    assert bridge.take_commands() == [BridgeCommand.HANG_UP, BridgeCommand.CLOSE]
    assert decoded(bridge.take_remote_output(trip.now), V5) == [Disconnect()]
    bridge.pause(trip.now)
    bridge.set_local_time(LocalTime(2, 22 * 60), trip.now)
    assert bridge.state == "paused", "an operator counts before the clock"
    bridge.start(trip.now)
    assert bridge.state == "waiting"


def test_the_rate_follows_the_schedule() -> None:
    trip = OpenBridge(
        ShaperOptions(rate_bytes_s=100, schedule=(parse_span("13:00-14:00 1000"), parse_span("14:00-15:00 0")))
    )
    trip.ours(*messages(120, 1))
    trip.until(10 * SECOND)
    assert 10 <= len(trip.said) <= 12
    trip.bridge.set_local_time(LocalTime(1, 13 * 60), trip.now)
    trip.ours()
    trip.until(15 * SECOND)
    assert 68 <= len(trip.said) <= 73
    trip.bridge.set_local_time(LocalTime(1, 14 * 60), trip.now)
    trip.ours()
    assert len(trip.said) == 120, "as fast as they can"
