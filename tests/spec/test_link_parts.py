"""The small parts of a link, each by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebridge.frontend.federation.link_setup import link_options
from edgebroker.instants import DAY, MINUTE, SECOND
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.budget import LinkBudget
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.handshake import (
    HELLO_BYTES_MAX,
    GatewayIdentity,
    Hello,
    HelloRefused,
    ReceiveState,
    RefusalCode,
    decode_hello,
    encode_hello,
    encode_refusal,
    hello_bytes,
)
from edgebroker.overlay.link.heartbeat import PATIENCE_FIRST, PATIENCE_MAX, PATIENCE_MIN, SAMPLES, LinkHeartbeat
from edgebroker.overlay.link.link import DELAY_MAX, DELAY_MIN, OFFLINE_DELAY, STEADY, BackOff
from edgebroker.overlay.link.outbox import LinkOutbox, OutboxBounds
from edgebroker.overlay.messages import Unadvertise
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import SHARED, WEIGHTS, FairQueue, TrafficClass

# -- back-off ----------------------------------------------------------------------------------------------------------


def test_delays_double_from_half_a_second_to_a_minute() -> None:
    backoff = BackOff()
    delays = [backoff.next_delay(1.0) for _ in range(10)]
    assert [delay / SECOND for delay in delays] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_delay_is_between_its_half_and_its_whole() -> None:
    assert BackOff().next_delay(0.0) == DELAY_MIN // 2
    assert BackOff().next_delay(0.5) == DELAY_MIN * 3 // 4


def test_only_a_steady_connection_makes_the_next_delay_short() -> None:
    backoff = BackOff()
    for _ in range(10):
        backoff.next_delay(1.0)
        backoff.ended(0, STEADY - 1)
    assert backoff.next_delay(1.0) == DELAY_MAX
    backoff.ended(0, STEADY)
    assert backoff.next_delay(1.0) == DELAY_MIN


def test_delays_begin_anew_with_a_sign_of_a_network() -> None:
    backoff = BackOff()
    for _ in range(10):
        backoff.next_delay(1.0)
    assert backoff.next_delay(1.0, is_offline=True) == OFFLINE_DELAY, "no packet leaves"
    assert backoff.next_delay(1.0, is_offline=True) == OFFLINE_DELAY
    assert backoff.next_delay(1.0) == DELAY_MIN, "somebody was asked"
    for _ in range(10):
        backoff.next_delay(1.0)
    backoff.network_seen()
    assert backoff.next_delay(1.0) == DELAY_MIN


# -- budget ------------------------------------------------------------------------------------------------------------


def test_a_rate_allows_a_burst_of_a_second_and_then_waits() -> None:
    budget = LinkBudget(1_000, 0, 0)
    budget.charge(1_000, 0)
    assert budget.allowed(0) == set(SHARED)
    budget.charge(500, 0)
    assert not budget.allowed(0)
    assert budget.owed_until == pytest.approx(SECOND // 2, abs=10)
    assert budget.allowed(budget.owed_until) == set(SHARED)


def test_the_less_urgent_classes_leave_the_last_of_the_days_bytes_to_the_others() -> None:
    budget = LinkBudget(0, 1_000_000, 0)
    seen = []
    for _ in range(11):
        seen.append("".join(service.name[:2] for service in SHARED if service in budget.allowed(0)))
        budget.charge(100_000, 0)
    everything, no_logs, no_bulk, live = "LIBABULO", "LIBABU", "LIBA", "LI"
    assert seen == [everything] * 5 + [no_logs] * 2 + [no_bulk] * 2 + [live, ""]
    assert budget.is_spent(TrafficClass.LIVE, 0)
    assert not budget.is_spent(TrafficClass.CONTROL, 0)


def test_a_day_is_one_of_the_calendar_and_is_remembered() -> None:
    noon = DAY * 20_000 + DAY // 2
    budget = LinkBudget(0, 1_000, 0, noon)
    budget.resume(20_000, 900)
    assert budget.spent == 900
    budget.charge(200, 0)
    assert not budget.allowed(0)
    assert budget.next_day(0) == DAY // 2
    assert budget.allowed(DAY // 2) == set(SHARED)
    other = LinkBudget(0, 1_000, 0, noon)
    other.resume(19_999, 900)
    assert other.spent == 0


# -- shares ------------------------------------------------------------------------------------------------------------


def test_classes_share_by_weight() -> None:
    shares, sent = FairQueue(), dict.fromkeys(SHARED, 0)
    for _ in range(23_000):
        service = shares.choose(SHARED)
        shares.charge(service, 100)
        sent[service] += 1
    assert {service: round(count / 1_000) for service, count in sent.items()} == WEIGHTS


def test_who_was_silent_does_not_save_up() -> None:
    shares = FairQueue()
    for _ in range(1_000):
        shares.choose([TrafficClass.LIVE])
        shares.charge(TrafficClass.LIVE, 100)
    order = []
    for _ in range(46):
        service = shares.choose([TrafficClass.LIVE, TrafficClass.LOGS])
        shares.charge(service, 100)
        order.append(service)
    assert 2 <= order.count(TrafficClass.LOGS) <= 4


# -- the outbox --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("service", "is_overrun"), [(TrafficClass.CONTROL, True), (TrafficClass.LIVE, False)])
def test_only_control_is_overrun_and_begins_anew(service: TrafficClass, is_overrun: bool) -> None:
    outbox = LinkOutbox("peer", OutboxBounds(control_messages=3), None)
    outbox.opened({}, False)
    causes = [outbox.enqueue(Unadvertise((number,)), service, 0) for number in range(4)]
    assert (causes, outbox.is_overrun) == ([Cause.NONE] * 3 + [Cause.QUEUE_FULL], is_overrun)


# -- heartbeat ---------------------------------------------------------------------------------------------------------


def test_silence_is_asked_about_twice_and_then_believed() -> None:
    heartbeat = LinkHeartbeat(10 * SECOND, 0, leads=False)
    heartbeat.ping_received()
    assert heartbeat.due() == 10 * SECOND
    assert not heartbeat.needs_ping(10 * SECOND - 1)
    assert heartbeat.needs_ping(10 * SECOND)
    heartbeat.ping(10 * SECOND, 0)
    assert heartbeat.due() == 10 * SECOND + PATIENCE_FIRST
    assert heartbeat.needs_ping(15 * SECOND)
    heartbeat.ping(15 * SECOND, 0)
    assert not heartbeat.is_dead(20 * SECOND - 1)
    assert heartbeat.is_dead(20 * SECOND)
    heartbeat.received(20 * SECOND)
    assert not heartbeat.is_dead(30 * SECOND)


def test_who_was_asked_last_asks_next_and_who_dialled_breaks_a_tie() -> None:
    dialler, other = LinkHeartbeat(10 * SECOND, 0, leads=True), LinkHeartbeat(10 * SECOND, 0, leads=False)
    assert (dialler.due(), other.due()) == (12.5 * SECOND, 15 * SECOND)
    other.ping_received()
    assert other.due() == 10 * SECOND


def test_an_overdue_acknowledgement_is_noticed_before_the_next_heartbeat() -> None:
    heartbeat = LinkHeartbeat(60 * SECOND, 0, leads=True)
    heartbeat.set_owed(True, 5 * SECOND)
    assert heartbeat.due() == 5 * SECOND + PATIENCE_FIRST
    heartbeat.received(6 * SECOND)
    assert heartbeat.due() == 6 * SECOND + PATIENCE_FIRST
    heartbeat.set_owed(False, 6 * SECOND)
    assert heartbeat.due() == 81 * SECOND


def test_on_a_lan_silence_is_believed_after_three_seconds() -> None:
    topology = Topology.product(Scot(Factor.parse("a-b"), 2))
    spans = {}
    for peer in ("b.0", "a.1"):
        options = link_options(topology, "a.0", peer)
        heartbeat = LinkHeartbeat(options.heartbeat, 0, True, options.patience)
        heartbeat.pong_received(heartbeat.ping(0, 0), 0, 0, 1_000)
        heartbeat.received(1_000)
        heartbeat.set_owed(True, 1_000)
        while not heartbeat.is_dead(now := heartbeat.due()):
            heartbeat.ping(now, 0)
        spans[peer] = now - 1_000
    assert spans == {"b.0": 3 * SECOND, "a.1": 6 * SECOND}


def test_the_offset_of_the_peers_clock() -> None:
    """The example of RFC 5905 section 8, in our terms: 40 ms there, 20 ms back, 5 ms in between, 1 s ahead."""
    heartbeat = LinkHeartbeat(SECOND, 0, leads=True)
    number = heartbeat.ping(100_000, 0)
    heartbeat.pong_received(number, 100_000 + 40_000 + SECOND, 5_000, 165_000)
    assert heartbeat.round_trip == 60_000
    assert heartbeat.offset == SECOND + 10_000  # wrong by half the difference of the two ways


def test_the_quickest_of_the_last_answers_tells_the_offset() -> None:
    heartbeat = LinkHeartbeat(SECOND, 0, leads=True)
    for trip in (60_000, 20_000, *[80_000] * SAMPLES):
        number = heartbeat.ping(0, 0)
        heartbeat.pong_received(number, trip * 3 // 4 + 7_000, 0, trip)
        if trip == 20_000:
            assert heartbeat.offset == 12_000
    assert heartbeat.offset == 27_000  # the good sample is forgotten
    assert 60_000 < heartbeat.round_trip < 80_000
    heartbeat.clock_changed()
    assert heartbeat.offset is None


def test_answers_that_make_no_sense_say_nothing() -> None:
    heartbeat = LinkHeartbeat(SECOND, 0, leads=True)
    number = heartbeat.ping(0, 0)
    heartbeat.pong_received(number - 1, 0, 0, 10)
    heartbeat.pong_received(number, 0, 20, 10)
    assert heartbeat.offset is None
    assert heartbeat.patience == PATIENCE_FIRST
    heartbeat.pong_received(number, 0, 0, 100_000)
    assert heartbeat.patience == PATIENCE_MIN
    number = heartbeat.ping(0, 0)
    heartbeat.pong_received(number, 0, 0, 600 * SECOND)
    assert heartbeat.patience == PATIENCE_MAX < MINUTE


# -- hello -------------------------------------------------------------------------------------------------------------

HELLO = Hello(
    "field",
    "gw-a1",
    3,
    {"topology": b"\1\2"},
    b"runrunru",
    b"storesto",
    7,
    "gw-b1",
    ReceiveState(b"otherrun", b"othersto", {TrafficClass.CONTROL: 4, TrafficClass.LIVE: 1 << 40}),
    frozenset(("deflate",)),
)
THERE = GatewayIdentity("field", "gw-b1", 4, {"topology": b"\1\2"}, {"gw-a1": 3}, b"r" * 8, b"s" * 8)


def test_a_hello_is_read_as_it_was_written() -> None:
    data = encode_hello(HELLO)
    assert len(data) < 200
    assert hello_bytes(data) == hello_bytes(data + b"frames") == len(data)
    assert all(hello_bytes(data[:size]) is None for size in range(6))
    assert decode_hello(data) == HELLO
    for size in range(6, len(data)):
        with pytest.raises(FrameBroken):
            decode_hello(data[:size])


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"\x10\x20", b"EBLX", b"EBLK\xff\xff"])
def test_who_says_something_else_is_told_from_the_first_bytes(data: bytes) -> None:
    with pytest.raises(FrameBroken):
        hello_bytes(data)


def test_a_hello_that_is_too_long_is_not_written() -> None:
    with pytest.raises(ValueError, match=str(HELLO_BYTES_MAX)):
        encode_hello(replace(HELLO, topology={str(number): bytes(64) for number in range(100)}))


def test_a_refusal_is_read_as_it_was_written() -> None:
    with pytest.raises(HelloRefused, match="the other one") as caught:
        decode_hello(encode_refusal(HelloRefused(RefusalCode.CROSSED, "the other one stays")))
    assert caught.value.code is RefusalCode.CROSSED


def test_the_hello_that_was_meant_is_taken() -> None:
    THERE.check(HELLO)
    THERE.check(HELLO, "gw-a1")


@pytest.mark.parametrize(
    ("hello", "certified", "code", "told"),
    [
        (replace(HELLO, federation="forest"), None, RefusalCode.FEDERATION, "'forest', not 'field'"),
        (replace(HELLO, to="gw-b2"), None, RefusalCode.MISDIRECTED, "wants 'gw-b2', and this is 'gw-b1'"),
        (replace(HELLO, name="gw-x"), None, RefusalCode.UNKNOWN, "gw-b1 has no link to a gateway 'gw-x'"),
        (replace(HELLO, number=9), None, RefusalCode.UNKNOWN, "number 9, and 3 in the topology of gw-b1"),
        (HELLO, "gw-c1", RefusalCode.UNPROVEN, "the certificate of 'gw-c1'"),
        (
            replace(HELLO, topology={"topology": b"\1\3", "sites": b""}),
            None,
            RefusalCode.TOPOLOGY,
            "the topologies of gw-b1 and gw-a1 differ in sites, topology",
        ),
    ],
)
def test_a_refusal_names_the_difference(hello: Hello, certified: str | None, code: RefusalCode, told: str) -> None:
    with pytest.raises(HelloRefused, match=told) as caught:
        THERE.check(hello, certified)
    assert caught.value.code is code


def test_another_version_is_refused_before_anything_else_is_read() -> None:
    data = encode_hello(replace(HELLO, version=2))
    with pytest.raises(HelloRefused, match="version 2 of the protocol, we speak 1") as caught:
        decode_hello(data)
    assert caught.value.code is RefusalCode.VERSION
