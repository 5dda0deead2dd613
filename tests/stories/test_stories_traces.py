"""The trace of a message (MQTT 5 user property `traceparent`) in the delivery log, from acceptance to every fate."""

from __future__ import annotations

from collections import Counter
from typing import Any

from edgebroker.log_schema import Fate
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog

PARENT = "00f067aa0ba902b7"
NOT_SAMPLED = "00"

SCENE = """
    away > CONNECT clean=0 session=3600       away < CONNACK
    away > SUBSCRIBE a qos=1                  away < SUBACK granted=1
    away cut
    here > CONNECT                            here < CONNACK
    here > SUBSCRIBE a qos=1                  here < SUBACK granted=1
    p > CONNECT                               p < CONNACK
"""


def traced(name: str, flags: str = "01") -> str:
    """The property of a message whose trace id is *name*, repeated."""
    return f"user.traceparent=00-{name * 32}-{PARENT}-{flags}"


def rows(log: DeliveryLog, play: Any) -> list[dict[str, Any]]:
    """What *log* says when the broker has stopped."""
    play.broker.stop()
    data = log.header(0, 0) + b"".join(log.take(play.broker.simulation.now, closing=True))
    columns = read_segment(data, growing=True).tables["delivery"]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_a_sampled_message_has_all_its_rows_whatever_its_qos(play_v5: Any) -> None:
    log = DeliveryLog("n", "b", sample_qos0=0)
    play_v5(SCENE, is_stored=True, log=log)
    play_v5(f"""
        p > PUBLISH a {traced("5")} "0"                here < PUBLISH a {traced("5")} "0"
        p > PUBLISH a qos=1 {traced("1")} "1"          p < PUBACK    here < PUBLISH a qos=1 {traced("1")} "1"
        here > PUBACK
        p > PUBLISH a {traced("2", NOT_SAMPLED)} "2"   here < PUBLISH a {traced("2", NOT_SAMPLED)} "2"
        p > PUBLISH a qos=1 "3"                        p < PUBACK    here < PUBLISH a qos=1 "3"
        here > PUBACK
        p > PUBLISH nobody {traced("4")} "4"
    """)
    found = rows(log, play_v5)
    by_trace = Counter((row["trace_id"][:1], row["subscriber"], Fate(row["fate"])) for row in found)
    assert by_trace == {
        ("5", "", Fate.PUBLISHED): 1,
        ("5", "here", Fate.DELIVERED): 1,
        ("5", "away", Fate.DROPPED): 1,
        ("1", "", Fate.PUBLISHED): 1,
        ("1", "here", Fate.DELIVERED): 1,
        ("1", "away", Fate.QUEUED): 1,
        ("4", "", Fate.PUBLISHED): 1,
        ("4", "", Fate.FILTERED): 1,
        ("", "", Fate.PUBLISHED): 1,
        ("", "here", Fate.DELIVERED): 1,
        ("", "away", Fate.QUEUED): 1,
    }, "QoS 0 that is not sampled has no rows here, QoS 1 has rows without a trace"
    assert {(len(row["trace_id"]), row["parent_id"]) for row in found} == {(32, PARENT), (0, "")}


def test_a_trace_outlives_a_crash_with_its_message(play_v5: Any) -> None:
    log = DeliveryLog("n", "b", sample_qos0=0)
    play_v5(SCENE, is_stored=True, log=log)
    play_v5(f"""
        p > PUBLISH a qos=1 {traced("1")} "1"    p < PUBACK    here < PUBLISH a qos=1 {traced("1")} "1"
    """)
    log.take(play_v5.broker.simulation.now, closing=True)  # what was written before the crash is of no interest here
    play_v5.broker.crash()
    found = [(row["subscriber"], Fate(row["fate"])) for row in rows(log, play_v5) if row["trace_id"] == "1" * 32]
    assert found == [("", Fate.PUBLISHED), ("away", Fate.QUEUED)]


def test_a_retained_message_bears_its_trace_when_it_is_asked_for(play_v5: Any) -> None:
    log = DeliveryLog("n", "b", sample_qos0=0)
    play_v5(
        f"""
        p > CONNECT                                  p < CONNACK
        p > PUBLISH kept retain=1 {traced("7")} "1"
        late > CONNECT                               late < CONNACK
        late > SUBSCRIBE kept                        late < SUBACK granted=0
        late < PUBLISH kept retain=1 {traced("7")} "1"
    """,
        log=log,
    )
    found = Counter(Fate(row["fate"]) for row in rows(log, play_v5) if row["trace_id"] == "7" * 32)
    assert found == {Fate.PUBLISHED: 2, Fate.FILTERED: 1, Fate.DELIVERED: 1}, (
        "once as it came, once as it was asked for"
    )
