"""A trail in words: one line for each thing that happened, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import UTC, datetime, timedelta
from typing import Any

from edgebroker.cli.log import named
from edgebroker.cli.plain import harmless
from edgebroker.cli.why.causes import sentence
from edgebroker.cli.why.trail import NO_EVENT, Copy, Stop, Trail
from edgebroker.records import Fate

WRITTEN = "a gateway writes its log when a minute is over, or a block is full"


def lines(trail: Trail, nodes: Set[str]) -> Iterator[str]:
    """The trail for people. *nodes*: the gateways whose logs were read."""
    first = trail.stops[0]
    name = f"message {first.boot}/{first.number}" if trail.event == NO_EVENT else f"event {_event(trail)}"
    traced = f", trace {first.trace_id}" if first.trace_id else ""
    day = _day(first.at_us)
    what = f"published {first.payload_bytes} bytes to {harmless(first.topic)}, QoS {first.qos}{traced}"
    yield f"{name}: {harmless(first.publisher)} {what}, on {day} (UTC)"
    width = max(len(stop.node) for stop in trail.stops)
    for stop in trail.stops:
        for at_us, what in happened(stop, is_first=stop is first):
            on = "" if _day(at_us) == day else f"on {_day(at_us)}: "
            yield f"  {_clock(at_us)}  {stop.node:{width}}  {on}{what}"
        for what in unknown(stop):
            yield f"  {'':15}  {stop.node:{width}}  {what}"
    for peer in trail.beyond():
        lacking = f"its log says nothing of it: {WRITTEN}"
        why = lacking if peer in nodes else "its log is not here: add it with --log DIR"
        yield f"  {'':15}  {peer:{width}}  has it; {why}"


def happened(stop: Stop, *, is_first: bool) -> Iterator[tuple[int, str]]:
    """What the log of one gateway says, each with its instant."""
    how = "accepted" if is_first else "came from another gateway"
    if stop.copies:
        yield stop.at_us, f"{how}, as message {stop.boot}/{stop.number}; {_copies(stop.copies)}"
    else:
        nobody = "for nobody" if stop.event == NO_EVENT else "no other gateway wants it, and for nobody here"
        yield stop.at_us, f"{how}, as message {stop.boot}/{stop.number}; {nobody}: {sentence(stop.filtered)}"
    for end in sorted(stop.ends, key=lambda one: one.at_us):
        yield end.at_us, ended(end)


def ended(end: Copy) -> str:
    """What became of a copy."""
    who = f"gateway {end.peer}" if end.peer else end.subscriber + (f" ({end.filter})" if end.filter else "")
    who = harmless(who)
    after = f" after {end.wait_us / 1_000:,.1f} ms"
    if end.fate == Fate.DELIVERED:
        return f"{who} has it{after}"
    if end.fate == Fate.EXPIRED:
        return f"expired while it waited for {who}{after}"
    if end.fate == Fate.DROPPED:
        return f"dropped for {who}{after}: {sentence(end.cause)} ({named('cause', end.cause)})"
    if end.fate == Fate.QUEUED:
        return f"waited for {who} when the run ended: it is kept if the gateway keeps anything"
    return f"{named('fate', end.fate)} for {who}{after}"


def unknown(stop: Stop) -> Iterator[str]:
    """What the log of one gateway does not say."""
    if not stop.open:
        return
    if stop.waiting:
        who = ", ".join(
            f"{name.replace(':', ' ')} (one of {count:,})" if count > 1 else name.replace(":", " ")
            for name, count in sorted(stop.waiting.items())
        )
        yield f"waits, or has no end in the log: {_copies(stop.open)}, for {harmless(who)}"
    else:
        yield f"{_copies(stop.open)} without an end in the log"
    if not stop.is_over:
        yield f"the run goes on or was cut short; {WRITTEN}"


def as_object(trail: Trail) -> dict[str, Any]:
    """The trail for programs."""
    first = trail.stops[0]
    return {
        "event": None if trail.event == NO_EVENT else _event(trail),
        "trace_id": first.trace_id or None,
        "publisher": first.publisher,
        "topic": first.topic,
        "qos": first.qos,
        "payload_bytes": first.payload_bytes,
        "has_arrived": trail.has_arrived,
        "stops": [_stop_object(stop) for stop in trail.stops],
        "beyond": trail.beyond(),
    }


def _stop_object(stop: Stop) -> dict[str, Any]:
    return {
        "gateway": stop.node,
        "message": f"{stop.boot}/{stop.number}",
        "unix_us": stop.at_us,
        "copies": stop.copies,
        "filtered": named("cause", stop.filtered) if not stop.copies else None,
        "ends": [
            {
                "unix_us": end.at_us,
                "subscriber": end.subscriber,
                "filter": end.filter,
                "fate": named("fate", end.fate),
                "cause": named("cause", end.cause) if end.cause else None,
                "why": sentence(end.cause) if end.cause else None,
                "wait_us": end.wait_us,
            }
            for end in stop.ends
        ],
        "open": stop.open,
        "waiting_for": stop.waiting,
        "is_over": stop.is_over,
    }


def _event(trail: Trail) -> str:
    return f"{trail.event[0]}-{trail.event[1]}"


def _copies(count: int) -> str:
    return f"{count:,} {'copy' if count == 1 else 'copies'}"


def _moment(unix_us: int) -> datetime | None:
    """None if no calendar has it: a gateway's clock may say anything."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=unix_us)
    except OverflowError:
        return None


def _clock(unix_us: int) -> str:
    """The time of day, in UTC: 08:19:53.123456."""
    moment = _moment(unix_us)
    return f"{'?':15}" if moment is None else f"{moment:%H:%M:%S.%f}"


def _day(unix_us: int) -> str:
    """2026-11-23"""
    moment = _moment(unix_us)
    return "an unknown day" if moment is None else moment.date().isoformat()
