"""Watching a gateway: what a tap gets, what it never gets, and that nothing of it exists while nobody watches."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.topic_alias import OutboundTopicAliases
from edgebridge.session.inflight import Inflight
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    Publish,
    SubAck,
    Subscribe,
    Unsubscribe,
    Will,
)
from edgebridge.wire.packets import SubscriptionOption as Option
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebridge.wire.user_properties import TraceContext, sampled
from edgebroker.cli.trace import line_text
from edgebroker.log_schema import Cause, Fate
from edgebroker.names import ClientId
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.http.tracing import (
    IDS_MAX,
    LINES_MAX,
    PACKET_BYTES_MAX,
    PACKETS_PER_S,
    TAPS_MAX,
    TOO_LARGE,
    Tap,
    TooManyTaps,
    Tracer,
    describe_packet,
)
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.topics import TopicFilter

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

# -- traceparent (W3C Trace Context, section 3.2) -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"00-{TRACE}-{PARENT}-ff", True),
        (f"01-{TRACE}-{PARENT}-01-what-comes-later", True),
        (f"00-{TRACE}-{PARENT}-01-x", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}", None),
        (f"01-{TRACE}-{PARENT}-01-" + "x" * 1_000, None),
        ("", None),
    ],
)
def test_traceparent(text: str, is_sampled: bool | None) -> None:
    context = TraceContext.parse(text)
    assert (context and context.is_sampled) == is_sampled
    if context is not None:
        assert (context.trace_id, context.parent_id) == (TRACE, PARENT)
    assert (sampled([("a", "b"), ("traceparent", text)]) is not None) == bool(is_sampled)


def test_two_traceparents_are_none() -> None:
    assert sampled([("traceparent", f"00-{TRACE}-{PARENT}-01")] * 2) is None
    assert sampled([]) is None


@given(st.text())
def test_any_text_is_a_traceparent_or_not(text: str) -> None:
    TraceContext.parse(text)


# -- packets in words -------------------------------------------------------------------------------------------

SECRET = b"secret-secret"


@pytest.mark.parametrize(
    ("packet", "said"),
    [
        (PingReq(), {"packet": "PINGREQ"}),
        (
            Connect("c", username="secret-user", password=SECRET, will=Will("w", SECRET)),
            {
                "packet": "CONNECT",
                "version": "5",
                "clean": True,
                "keep_alive_s": 0,
                "has_user": True,
                "has_password": True,
                "will": {"topic": "w", "bytes": 13},
            },
        ),
        (
            Publish("t", SECRET, 1, True, True, 7),
            {"packet": "PUBLISH", "topic": "t", "qos": 1, "bytes": 13, "retain": True, "dup": True, "packet_id": 7},
        ),
        (
            Publish("", b"", properties={Property.TOPIC_ALIAS: 3, Property.USER_PROPERTY: [("traceparent", "x")]}),
            {"packet": "PUBLISH", "topic": "", "qos": 0, "bytes": 0, "alias": 3, "traceparent": "x"},
        ),
        (
            Subscribe(1, [Option("f", 2)] * 1_000),
            {"packet": "SUBSCRIBE", "filters": [{"filter": "f", "qos": 2}] * 20, "count": 1_000, "packet_id": 1},
        ),
        (Unsubscribe(1, ["f"]), {"packet": "UNSUBSCRIBE", "filters": ["f"], "count": 1, "packet_id": 1}),
        (SubAck(1, [0x87]), {"packet": "SUBACK", "reasons": [0x87], "packet_id": 1}),
        (Disconnect(), {"packet": "DISCONNECT"}),
        (Auth(properties={Property.AUTHENTICATION_DATA: SECRET}), {"packet": "AUTH"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_packets_in_words_without_what_is_secret(packet: Any, said: dict[str, Any]) -> None:
    assert describe_packet(packet) == said
    assert "secret" not in json.dumps(describe_packet(packet))


# -- taps -------------------------------------------------------------------------------------------------------


def test_a_client_is_a_name_or_a_pattern() -> None:
    assert Tap(None, None).wants_client("anybody")
    assert Tap("a*", None).wants_client("abc")
    assert not Tap("a*", None).wants_client("ba")
    assert not Tap("A", None).wants_client("a")


def test_of_a_topic_the_acknowledgements_are_shown_too() -> None:
    tap = Tap(None, TopicFilter.parse("a/#"))

    def packet(way: str, topic: str | None = None, packet_id: int = 0, connection: int = 1) -> bool:
        tap.add_packet({"way": way, "packet_id": packet_id}, connection, topic)
        return bool(tap.drain())

    assert packet("in", "a/b", 1)
    assert not packet("in", "b", 2)
    assert packet("out", None, 1), "PUBREC"
    assert packet("in", None, 1), "PUBREL"
    assert not packet("out", None, 2)
    assert not packet("out", None, 1, connection=2)
    assert not packet("in", None, 0), "PINGREQ"
    assert packet("in", "a", 0)
    for number in range(10, 10 + IDS_MAX):
        packet("in", "a", number)
    assert not packet("out", None, 1), "forgotten"


def test_what_is_too_much_is_counted_as_a_gap() -> None:
    tap = Tap(None, None)
    for number in range(LINES_MAX + 3):
        tap.add({"n": number})
    tap.count_missed(4)
    lines = tap.drain()
    assert [line["n"] for line in lines[:-1]] == list(range(LINES_MAX))
    assert lines[-1] == {"way": "gap", "missed": 7}
    assert tap.drain() == []
    assert line_text(lines[-1]) == "... 7 more were not looked at"


class Plain:
    """As much of a reactor as a tracing needs."""

    tracing: Any = None


@pytest.mark.parametrize("log", [None, DeliveryLog("n", "b")], ids=["no log", "log"])
def test_nothing_is_left_when_the_last_tap_closes(log: DeliveryLog | None) -> None:
    reactor: Any = Plain()
    ledger = Ledger(log)
    tracing = Tracer(reactor, ledger)
    taps = [Tap(None, None) for _ in range(TAPS_MAX)]
    for tap in taps:
        tracing.open(tap)
    assert reactor.observer is tracing
    with pytest.raises(TooManyTaps):
        tracing.open(Tap(None, None))
    for tap in taps:
        assert ledger.log is not None
        assert ledger.log is not log
        ledger.log.set_bridge("c", is_bridge=True)  # whatever a log is told, there may be none
        tracing.close(tap)
    assert reactor.observer is None
    assert ledger.log is log


def test_fates_go_to_the_log_and_to_whoever_watches() -> None:
    log = DeliveryLog("n", "b")
    ledger = Ledger(log)
    tracing = Tracer(Plain(), ledger)  # type: ignore[arg-type]
    by_reader, by_topic, other = Tap("reader", None), Tap(None, TopicFilter.parse("a/+")), Tap("x", None)
    for tap in (by_reader, by_topic, other):
        tracing.open(tap)
    ledger.accept(1, "writer", 1, "a/b", 1, 5, 1)
    ledger.accept(1, "writer", 1, "b", 1, 5, 0)
    assert ledger.log is not None
    ledger.log.fate(2, "writer", "reader", 1, 1, "a/b", "a/#", 1, Fate.DROPPED, Cause.QUEUE_FULL, 9, 5)
    ledger.log.selectivity(2, "reader", "a/#", 1, 1)
    fates = [(line["fate"], line.get("cause")) for line in by_topic.drain()]
    assert fates == [("published", None), ("dropped", "queue_full")]
    [line] = by_reader.drain()
    assert line_text({**line, "time": "2026-01-01T01:02:03.004Z"}) == (
        "01:02:03.004 == reader dropped a/b message=1 count=1 qos=1 wait_us=9 cause=queue_full publisher=writer"
    )
    assert other.drain() == []
    assert log.take(3, closing=True), "the log heard it as well"


def test_a_payload_that_no_filter_can_read_is_told() -> None:
    node = Node(Ledger())
    tracing = Tracer(Plain(), node.ledger, node.routes.unreadable)  # type: ignore[arg-type]
    tap = Tap(None, None)
    node.routes.unreadable.add("a/b")
    tracing.open(tap)
    node.ledger.accept(1, "writer", 1, "a/b", 1, 5, 1)
    node.routes.unreadable.add("a/b")
    node.ledger.accept(1, "writer", 1, "a/b", 1, 5, 0)
    node.ledger.accept(1, "writer", 1, "a/b", 1, 5, 0)
    told = "unreadable for content filters"
    lines = tap.drain()
    fates = [(line["fate"], line.get("payload")) for line in lines]
    assert fates[:3] == [("published", None), ("published", told), ("filtered", told)]
    assert fates[3:] == [("published", None), ("filtered", None)]
    assert f'payload="{told}"' in line_text({**lines[1], "time": "2026-01-01T01:02:03.004Z"})


def test_more_than_can_be_looked_at_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebroker.runtime.http.tracing.time.monotonic", lambda: 5.0)
    ledger = Ledger()
    tracing = Tracer(Plain(), ledger)  # type: ignore[arg-type]
    tap = Tap("nobody", None)
    tracing.open(tap)
    for _ in range(PACKETS_PER_S + 7):
        ledger.accept(1, "writer", 1, "a", 0, 5, 1)
    assert tap.drain() == [{"way": "gap", "missed": 7}]


def test_names_do_nothing_to_a_terminal() -> None:
    line = {"time": "T1Z", "way": "in", "client": "\x1b[31m", "packet": "PUBLISH", "topic": "a b", "peer": "1.2.3.4:5"}
    assert line_text(line) == '1 -> "\\u001b[31m" PUBLISH "a b"'


def test_a_topic_is_known_whoever_set_the_alias_that_stands_for_it() -> None:
    tracing = Tracer(Plain(), Ledger())  # type: ignore[arg-type]
    tap = Tap(None, TopicFilter.parse("long/topic/+"))
    tracing.open(tap)
    connection = Connection(1, "peer", [], 1_000, 0)
    connection.dialect = V5
    connection.out_aliases = OutboundTopicAliases(5)
    connection.out_aliases.sent("long/topic/out")
    connection.aliases[1] = "long/topic/in"
    packet = encode_packet(Publish("", b"x", properties={Property.TOPIC_ALIAS: 1}), V5)

    async def story() -> None:
        tracing.data_received(connection, packet[:3])
        tracing.data_received(connection, packet[3:])
        tracing.data_sent(connection, packet * 2)
        tracing.data_sent(connection, b"\xff\xff\xff\xff\xff")
        tracing.data_sent(connection, packet)
        tracing.connection_closed(connection)

    asyncio.run(story())
    assert [(line["way"], line["topic"]) for line in tap.drain()] == [
        ("in", "long/topic/in"),
        ("out", "long/topic/out"),
        ("out", "long/topic/out"),
    ], "what cannot be cut into packets ends the watching of this connection, and no more"


def test_an_alias_that_is_given_anew_stood_for_the_topic_of_before() -> None:
    tracing = Tracer(Plain(), Ledger())  # type: ignore[arg-type]
    tap = Tap(None, TopicFilter.parse("#"))
    tracing.open(tap)
    connection = Connection(1, "peer", [], 1_000, 0)
    connection.dialect = V5
    said = [Publish(topic, b"x", properties={Property.TOPIC_ALIAS: 1}) for topic in ("first", "", "second", "")]

    async def story() -> None:
        tracing.data_received(connection, b"".join(encode_packet(one, V5) for one in said))
        connection.aliases[1] = "second"  # the front end has read all of it before a line is shown
        await asyncio.sleep(0)

    asyncio.run(story())
    assert [line["topic"] for line in tap.drain()] == ["first", "first", "second", "second"]


def test_a_packet_that_is_too_large_to_watch_is_no_offence() -> None:
    tracing = Tracer(Plain(), Ledger())  # type: ignore[arg-type]
    tap = Tap(None, None)
    tracing.open(tap)
    connection = Connection(1, "peer", [], 1_000, 0)
    connection.dialect = V5
    tracing.data_sent(connection, encode_packet(Publish("a", bytes(PACKET_BYTES_MAX)), V5))
    tracing.data_sent(connection, encode_packet(Publish("a", b"x"), V5))
    [line] = tap.drain()
    assert (line["packet"], line["error"]) == ("?", TOO_LARGE)
    assert "MQTT" not in line["error"], "no clause is broken: the gateway takes and sends larger ones"


def test_whose_connect_is_refused_is_told_so_by_name() -> None:
    tracing = Tracer(Plain(), Ledger())  # type: ignore[arg-type]
    tap, other = Tap("pump-*", None), Tap("x", None)
    tracing.open(tap)
    tracing.open(other)
    connection = Connection(1, "peer", [], 1_000, 0)
    connection.dialect = V5

    async def story() -> None:
        tracing.data_received(connection, encode_packet(Connect("pump-3", dialect=V5), V5))
        tracing.data_sent(connection, encode_packet(ConnAck(reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD), V5))
        tracing.connection_closed(connection)

    asyncio.run(story())
    lines = [(line["way"], line["client"], line["packet"], line.get("reason")) for line in tap.drain()]
    assert lines == [
        ("in", "pump-3", "CONNECT", None),
        ("out", "pump-3", "CONNACK", "bad_user_name_or_password"),
    ]
    assert other.drain() == []


def test_who_is_not_watched_is_not_even_cut_into_packets() -> None:
    tracing = Tracer(Plain(), Ledger())  # type: ignore[arg-type]
    tap, other = Tap("one", None), Tap("other", None)
    tracing.open(tap)
    connection = Connection(1, "peer", [], 1_000, 0)
    connection.dialect = V5
    connection.session = Session(ClientId("other"), Inflight(1), SessionOutbox(1, 1))
    packet = encode_packet(Publish("a", b"x"), V5)

    async def story() -> None:
        tracing.data_received(connection, packet[:2])
        tracing.data_sent(connection, packet)
        connection.pending.append(packet[:2])  # what the front end did with it
        tracing.open(other)
        tracing.data_received(connection, packet[2:])
        await asyncio.sleep(0)

    asyncio.run(story())
    assert tap.drain() == []
    assert [(line["way"], line["topic"]) for line in other.drain()] == [("in", "a")], "from the middle of a packet"
