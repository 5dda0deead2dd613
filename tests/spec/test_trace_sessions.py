"""Trace sessions and samples: which events are traced, what is kept of them, how long, and in how much memory."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from edgebroker.header import EventHeader, hosted
from edgebroker.instants import MINUTE, SECOND
from edgebroker.relocation import pop as pop_module
from edgebroker.relocation import trace_recorder as recorder_module
from edgebroker.relocation.delay_monitor import DelayMonitor
from edgebroker.relocation.messages import (
    RelocationRequest,
    SendRelocation,
    SessionEnd,
    TraceResult,
)
from edgebroker.relocation.migration import MoveLimiter
from edgebroker.relocation.placement import PlacementRefusal
from edgebroker.relocation.pop import PopOptions, PopTracer, PublisherProfile
from edgebroker.relocation.publisher_sessions import PUBLISHED_SESSIONS, PublisherSessions, SessionOptions
from edgebroker.relocation.trace_recorder import FORGOTTEN_AFTER, TraceRecorder
from edgebroker.trace_records import TraceInformationAnswer, TraceInformationRequest
from tests.support.relocation import PUBLISHER

MIB = 1 << 20


def sequences(sessions: PublisherSessions, first: int, count: int, now: int = 1) -> list[int]:
    """The sessions of *count* events from *first* on."""
    return [sessions.session_of(PUBLISHER, sequence, now) for sequence in range(first, first + count)]


# -- which events are traced -------------------------------------------------------------------------------------------


def test_a_session_has_a_hundred_consecutive_events_and_is_named_by_the_first() -> None:
    sessions = PublisherSessions(SessionOptions())
    assert sequences(sessions, 8, 103) == [8] * 100 + [0] * 3
    assert sessions.next_due == 1 + 2 * SECOND
    assert [*sessions.take_due(2 * SECOND)] == []
    assert [*sessions.take_due(1 + 2 * SECOND)] == [(PUBLISHER, 8)]
    assert sessions.next_due is None
    assert sequences(sessions, 111, 2) == [0, 0], "its records are still to come"


def test_published_sessions_follow_each_other() -> None:
    sessions = PublisherSessions(PUBLISHED_SESSIONS)
    sequences(sessions, 1, 100)
    assert [*sessions.take_due(MINUTE)] == [(PUBLISHER, 1)]
    assert sessions.end(PUBLISHER, 40, 490) == 100
    assert sequences(sessions, 101, 2) == [101, 101]


def test_the_next_session_waits_until_a_share_of_the_messages_has_paid_for_the_last() -> None:
    sessions = PublisherSessions(SessionOptions(share_max=0.02))
    sequences(sessions, 1, 100)
    assert [*sessions.take_due(MINUTE)] == [(PUBLISHER, 1)]
    sessions.end(PUBLISHER, asked=39, visits=490)
    found = sequences(sessions, 101, 1_000)
    assert (found.index(781), found.count(0)) == (680, 900), "78 messages are 2 % of all after 780 events of 4.9 each"
    moved = PublisherSessions(SessionOptions(share_max=0.02))
    moved.skip(PUBLISHER, sessions.unpaid(asked=39, visits=100, events=100))
    assert sequences(moved, 1, 5_000).count(0) == 3_822 - 100 + (5_000 - 3_822), "where an event enters one gateway"
    free = PublisherSessions(SessionOptions())
    sequences(free, 1, 100)
    assert [*free.take_due(MINUTE)] == [(PUBLISHER, 1)]
    free.end(PUBLISHER, asked=0, visits=100)
    assert sequences(free, 101, 1) == [101], "nobody has to be asked"


@pytest.mark.parametrize(("events", "found"), [(9, []), (10, [(PUBLISHER, 1)])])
def test_a_slow_publisher_is_looked_at_after_ten_minutes_if_it_has_ten_events(
    events: int, found: list[tuple[int, int]]
) -> None:
    sessions = PublisherSessions(SessionOptions())
    sequences(sessions, 1, events)
    assert [*sessions.take_due(10 * MINUTE)] == []
    assert [*sessions.take_due(10 * MINUTE + 1)] == found
    sessions.forget(PUBLISHER)
    assert sessions.end(PUBLISHER, 3, 3) == 0


# -- what is kept ------------------------------------------------------------------------------------------------------


def traced(recorder: TraceRecorder, sequence: int, session: int, *served: str, publisher: int = PUBLISHER) -> None:
    recorder.record(EventHeader(publisher, sequence, 0, 0, trace=session), served, 1, False, 1)


def test_events_that_are_not_of_the_session_are_refused() -> None:
    recorder = TraceRecorder("a", DelayMonitor("b"))
    traced(recorder, 4, 5)
    traced(recorder, 5 + recorder_module.OFFSET_MAX, 5)
    assert (len(recorder), recorder.refused) == (0, 2)


def test_the_peers_of_an_event_that_waited_are_asked_too() -> None:
    recorder = TraceRecorder("a", DelayMonitor("bc"))
    traced(recorder, 1, 1, "b")
    recorder.add_peers(EventHeader(PUBLISHER, 1, 0, 0, trace=1), ["c", "b"])
    recorder.add_peers(EventHeader(PUBLISHER, 9, 0, 0, trace=9), ["c"])
    assert len(recorder) == 1, "an unknown session is not begun"
    asked = [each.peer for each in recorder.collect(PUBLISHER, 1, 1) if isinstance(each, SendRelocation)]
    assert asked == ["b", "c"]


def test_only_so_many_sessions_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "SESSIONS_MAX", 2)
    recorder = TraceRecorder("a", DelayMonitor("b"))
    for publisher in range(4):
        traced(recorder, 1, 1, publisher=publisher)
    traced(recorder, 2, 1, publisher=0)
    assert (len(recorder), recorder.refused) == (2, 2)
    assert recorder.receive("b", TraceInformationRequest(3, 1, 9), 1) == [
        SendRelocation("b", TraceInformationAnswer(3, 1, (), True))
    ], "what is not known may be missing"


def test_a_session_that_nobody_asks_for_is_forgotten() -> None:
    recorder = TraceRecorder("a", DelayMonitor("b"))
    traced(recorder, 1, 1)
    assert recorder.next_due == 1 + FORGOTTEN_AFTER
    assert recorder.fire(FORGOTTEN_AFTER) == []
    assert len(recorder) == 1
    recorder.fire(1 + FORGOTTEN_AFTER)
    assert (len(recorder), recorder.forgotten, recorder.next_due) == (0, 1, None)


def test_a_session_that_is_being_asked_for_is_not_forgotten_meanwhile() -> None:
    recorder = TraceRecorder("a", DelayMonitor("b"))
    traced(recorder, 1, 1, "b")
    now = FORGOTTEN_AFTER
    recorder.collect(PUBLISHER, 1, now)
    due = recorder.next_due
    assert due is not None
    assert due > 1 + FORGOTTEN_AFTER
    assert recorder.fire(2 + FORGOTTEN_AFTER) == []
    assert (len(recorder), recorder.forgotten) == (1, 0)
    (end,) = recorder.fire(due)
    assert isinstance(end, SessionEnd)
    assert (end.is_partial, [record.broker for record in end.records], len(recorder)) == (True, ["a"], 0)


def test_events_on_two_ways_bring_one_record() -> None:
    """A detour leads events of one session to a gateway over two peers; both ask for it."""
    recorder = TraceRecorder("a", DelayMonitor("bcd"))
    traced(recorder, 1, 1, "d")
    request = TraceInformationRequest(PUBLISHER, 1, 5)
    (asked,) = recorder.receive("b", request, 1)
    assert asked == SendRelocation("d", TraceInformationRequest(PUBLISHER, 1, 4))
    assert recorder.receive("c", request, 1) == [SendRelocation("c", TraceInformationAnswer(PUBLISHER, 1, (), False))]
    answer = TraceInformationAnswer(PUBLISHER, 1, (), False)
    assert recorder.receive("c", answer, 1) == [], "it was not asked"
    (answered,) = recorder.receive("d", answer, 1)
    assert isinstance(answered, SendRelocation)
    assert isinstance(answered.message, TraceInformationAnswer)
    assert (answered.peer, [record.broker for record in answered.message.records]) == ("b", ["a"])
    assert recorder.receive("d", answer, 1) == [], "it comes too late"


def test_a_request_passes_so_many_links_only() -> None:
    recorder = TraceRecorder("a", DelayMonitor("bc"))
    traced(recorder, 1, 1, "c")
    (answered,) = recorder.receive("b", TraceInformationRequest(PUBLISHER, 1, 0), 1)
    assert isinstance(answered, SendRelocation)
    assert isinstance(answered.message, TraceInformationAnswer)
    assert answered.message.is_partial


def test_a_publisher_that_has_moved_is_forgotten_but_not_what_is_being_asked_for() -> None:
    recorder = TraceRecorder("a", DelayMonitor("bc"))
    traced(recorder, 1, 1, "c")
    traced(recorder, 101, 101, "c")
    recorder.collect(PUBLISHER, 1, 1)
    recorder.forget(PUBLISHER)
    assert len(recorder) == 1
    (end,) = recorder.receive("c", TraceInformationAnswer(PUBLISHER, 1, (), False), 1)
    assert isinstance(end, SessionEnd)


# -- POP ---------------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_missing_makes_the_sample_partial_and_is_not_averaged() -> None:
    tracer = PopTracer("a", PopOptions(traces=1))
    assert tracer.is_traced(PUBLISHER, 1, 0.0)
    tracer.record(PUBLISHER, 1, None, ("b", "c"), 2, 1)
    assert tracer.receive_result("b", TraceResult(PUBLISHER, 1, 4, True)) == []
    assert tracer.next_due == 1 + 2 * SECOND
    assert tracer.fire(1 + 2 * SECOND) == []
    assert tracer.receive_result("c", TraceResult(PUBLISHER, 1, 9, False)) == [], "too late"
    tracer.record(PUBLISHER, 2, None, ("b",), 2, 1)
    found = tracer.receive_result("b", TraceResult(PUBLISHER, 2, 5, False))
    assert found == [SendRelocation("b", RelocationRequest(PUBLISHER, 2.0, ("a",)))], (
        "5 behind b, 2 here, none behind c"
    )


@pytest.mark.parametrize(("counts_misses", "hop"), [(True, None), (False, "b")])
def test_a_peer_without_a_copy_counts_as_nobody(counts_misses: bool, hop: str | None) -> None:
    """Behind b are 10 clients, or 7.5 if the event that nobody there wanted counts; here are 2.25; behind c 6."""
    tracer = PopTracer("a", PopOptions(counts_misses=counts_misses))
    tracer.record(PUBLISHER, 1, None, ("b",), 0, 1)
    tracer.receive_result("b", TraceResult(PUBLISHER, 1, 10, False))
    tracer.record(PUBLISHER, 2, None, (), 9, 1)
    (found,) = tracer.receive_request(RelocationRequest(PUBLISHER, 6.0, ("c",)), "c")
    assert isinstance(found, SendRelocation)
    assert found.peer == (hop or "c")


def test_only_so_many_traced_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_module, "WAITING_MAX", 1)
    tracer = PopTracer("a", PopOptions())
    assert tracer.record(PUBLISHER, 1, "b", ("c",), 0, 1) == []
    assert tracer.record(PUBLISHER, 2, "b", ("c",), 0, 1) == [SendRelocation("b", TraceResult(PUBLISHER, 2, 0, True))]
    assert tracer.refused == 1
    tracer.forget(PUBLISHER)
    assert tracer.next_due is None


def test_a_request_never_comes_back() -> None:
    profile = PublisherProfile()
    profile.add("b", 9)
    assert profile.next_hop(RelocationRequest(PUBLISHER, 1.0, ("c",)), "c") == ("b", 1.0)
    assert profile.next_hop(RelocationRequest(PUBLISHER, 1.0, ("c", "b")), "c") == (None, 0.0)


# -- when a publisher may move -----------------------------------------------------------------------------------------


def test_a_publisher_moves_once_in_ten_minutes() -> None:
    limiter = MoveLimiter()
    limiter.arrived(PUBLISHER, 5)
    assert not limiter.examine(PUBLISHER, False, 0.0, 4 + 10 * MINUTE)
    assert limiter.examine(PUBLISHER, False, 0.0, 5 + 10 * MINUTE)
    limiter.arrived(PUBLISHER, 5)
    limiter.forget(PUBLISHER)
    assert limiter.examine(PUBLISHER, False, 0.0, 6)
    assert limiter.refusals[PlacementRefusal.RECENT] == 1


def test_a_session_with_detours_counts_only_after_another_one() -> None:
    limiter = MoveLimiter()
    assert [limiter.examine(PUBLISHER, False, share, 1) for share in (0.2, 0.21, 0.3, 0.1, 0.5)] == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert not limiter.examine(PUBLISHER, True, 0.0, 1), "a partial session never does"
    assert limiter.refusals[PlacementRefusal.DETOURS] == 2
    assert limiter.refusals[PlacementRefusal.PARTIAL] == 1


# -- memory ------------------------------------------------------------------------------------------------------------


def test_a_thousand_active_publishers_take_less_than_two_mebibytes() -> None:
    """Half of the budget is for the gateway of the publishers itself: all of them in the middle of a session."""
    peers = [f"gateway-{number}" for number in range(4)]
    names = [hosted(3, number) for number in range(1_000)]
    gc.collect()
    tracemalloc.start()
    try:
        monitor = DelayMonitor(peers)
        recorder = TraceRecorder("gateway", monitor)
        sessions, tracer, limiter = (
            PublisherSessions(SessionOptions()),
            PopTracer("gateway", PopOptions()),
            MoveLimiter(),
        )
        for publisher in names:
            limiter.arrived(publisher, 1)
            for sequence in (*range(1, 9), 100):
                session = sessions.session_of(publisher, sequence, 1)
                header = EventHeader(publisher, sequence, 0, 0, trace=session)
                recorder.record(header, peers[: sequence % 5], sequence % 3, False, 1)
        grape = tracemalloc.get_traced_memory()[0]
        for publisher in names:
            tracer.is_traced(publisher, 1, 0.0)
            tracer.record(publisher, 1, None, peers, 3, 1)
            for peer in peers:
                tracer.receive_result(peer, TraceResult(publisher, 1, 5, False))
        both = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(recorder) == 1_000
    assert grape < 2 * MIB, f"{grape / MIB:.2f} MiB"
    assert both < 2 * MIB, f"{both / MIB:.2f} MiB with POP"
