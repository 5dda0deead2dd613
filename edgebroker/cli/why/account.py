"""Describes a trail: a line for each event of a message, and a sentence for each cause (docs/fates.md)."""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from edgebridge.session.journal.transfer_records import DEPARTING_PREFIX, client_of
from edgebroker.cli.display import harmless, plain
from edgebroker.cli.log import name_of
from edgebroker.cli.why.trail import NO_EVENT, MessageTrail, TrailCopy, TrailStop
from edgebroker.log_schema import Cause, Fate

SENTENCES: Final[dict[Cause, str]] = {
    Cause.NO_SUBSCRIBER: "no subscription has a matching topic filter",
    Cause.CONTENT: "topic filters matched, but every content filter said no or unknown",
    Cause.OUT_BUFFER_FULL: "it had QoS 0, and its reader reads too slowly: the out-buffer was full",
    Cause.QUEUE_FULL: "as many messages or bytes waited for its reader as may",
    Cause.OFFLINE: "it had QoS 0, and its reader was not connected",
    Cause.CONNECTION_LOST: "it had QoS 0, and the connection ended before it was written",
    Cause.SESSION_ENDED: "it waited, and the session of its reader ended",
    Cause.PACKET_TOO_LARGE: "it is larger than the packets that its reader takes",
    Cause.OWN_MESSAGE: 'only its own publisher asked for it, with "no local"',
    Cause.REFUSED: "its reader answered with an error",
    Cause.HANDED_OVER: "who it waited for left the group or went to another gateway, or the link there broke: another "
    "copy took its place",
    Cause.NOT_ALLOWED: "who asked for it may not read it",
    Cause.SUPERSEDED: "a later message of its topic came while it waited, and only the last one is to wait",
    Cause.MEMORY_FULL: "all clients together held too much, and this queue was the largest",
    Cause.BUDGET_SPENT: "it had QoS 0, and the bytes of the day for this link were spent",
    Cause.TOO_OLD: "it waited longer than messages for its reader may",
    Cause.THINNED: "its reader's queue was full, and of each topic every second message that waited had to go",
    Cause.DAMAGED: "it waited in a part of its reader's queue that is on the disk, and that file could not be read",
    Cause.LEASE_ENDED: "it waited for a gateway that was away for longer than sessions last",
    Cause.DISCARDED: "it waited for a gateway, and an operator discarded it",
    Cause.PEER_REMOVED: "it waited for a gateway that was taken out of the topology",
}


def sentence(cause: int) -> str:
    """Returns the meaning of *cause*, a number in the log; also of one that a newer gateway wrote."""
    try:
        return SENTENCES[Cause(cause)]
    except (ValueError, KeyError):
        return f"cause {cause}, which this program does not know"


LOG_DELAY = "a gateway writes its log when a minute is over, or a block is full"


def lines(trail: MessageTrail, nodes: Set[str]) -> Iterator[str]:
    """Yields the trail for people. *nodes*: the gateways whose logs were read."""
    first = trail.stops[0]
    name = f"message {first.boot}/{first.number}" if trail.event == NO_EVENT else f"event {_event(trail)}"
    trace = f", trace {first.trace_id}" if first.trace_id else ""
    day = _day(first.at_us)
    text = f"published {first.payload_bytes} bytes to {harmless(first.topic)}, QoS {first.qos}{trace}"
    yield f"{name}: {harmless(first.publisher)} {text}, on {day} (UTC)"
    width = max(len(stop.node) for stop in trail.stops)
    for stop in trail.stops:
        for at_us, text in recorded_events(stop, is_first=stop is first):
            date_note = "" if _day(at_us) == day else f"on {_day(at_us)}: "
            yield f"  {_clock(at_us)}  {stop.node:{width}}  {date_note}{text}"
        for text in open_copies(stop):
            yield f"  {'':15}  {stop.node:{width}}  {text}"
    for peer in trail.unlogged_gateways():
        incomplete = f"its log says nothing of it: {LOG_DELAY}"
        reason = incomplete if peer in nodes else "its log is not here: add it with --log DIR"
        yield f"  {'':15}  {peer:{width}}  has it; {reason}"


def recorded_events(stop: TrailStop, *, is_first: bool) -> Iterator[tuple[int, str]]:
    """Yields the events in the log of one gateway, each with its time."""
    origin = "accepted" if is_first else "came from another gateway"
    if stop.copies:
        yield stop.at_us, f"{origin}, as message {stop.boot}/{stop.number}; {_copies(stop.copies)}"
    else:
        no_receiver = "for nobody" if stop.event == NO_EVENT else "no other gateway wants it, and for nobody here"
        yield stop.at_us, f"{origin}, as message {stop.boot}/{stop.number}; {no_receiver}: {sentence(stop.filtered)}"
    for copy in sorted(stop.ends, key=lambda copy: copy.at_us):
        yield copy.at_us, copy_line(copy)


def copy_line(copy: TrailCopy) -> str:
    """Returns the fate of a copy."""
    receiver = copy.subscriber + (f" ({copy.filter})" if copy.filter else "")
    receiver = f"gateway {copy.peer}" if copy.peer else _subscriber(receiver)
    receiver = harmless(receiver)
    duration = f" after {copy.wait_us / 1_000:,.1f} ms"
    if copy.fate == Fate.DELIVERED:
        return f"{receiver} has it{duration}"
    if copy.fate == Fate.EXPIRED:
        return f"expired while it waited for {receiver}{duration}"
    if copy.fate == Fate.DROPPED:
        return f"dropped for {receiver}{duration}: {sentence(copy.cause)} ({name_of('cause', copy.cause)})"
    if copy.fate == Fate.QUEUED:
        return f"waited for {receiver} when the run ended: it is kept if the gateway keeps anything"
    return f"{name_of('fate', copy.fate)} for {receiver}{duration}"


def open_copies(stop: TrailStop) -> Iterator[str]:
    """Yields which copies have no fate in the log of one gateway."""
    if not stop.open:
        return
    if stop.waiting:
        receivers = ", ".join(
            f"{_receiver(name)} (one of {count:,})" if count > 1 else _receiver(name)
            for name, count in sorted(stop.waiting.items())
        )
        yield f"waits, or has no end in the log: {_copies(stop.open)}, for {harmless(receivers)}"
    else:
        yield f"{_copies(stop.open)} without an end in the log"
    if not stop.is_over:
        yield f"the run goes on or was cut short; {LOG_DELAY}"


def _receiver(name: str) -> str:
    return _subscriber(name) if name.startswith(DEPARTING_PREFIX) else name.replace(":", " ")


def _subscriber(name: str) -> str:
    """Returns *name*, and of a session on its way to another gateway the client, and that it is."""
    if not name.startswith(DEPARTING_PREFIX):
        return name
    return f"{client_of(name)}, whose session is on its way to another gateway"


def as_object(trail: MessageTrail) -> dict[str, Any]:
    """Returns the trail for programs."""
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
        "beyond": trail.unlogged_gateways(),
    }


def _stop_object(stop: TrailStop) -> dict[str, Any]:
    return {
        "gateway": stop.node,
        "message": f"{stop.boot}/{stop.number}",
        "unix_us": stop.at_us,
        "copies": stop.copies,
        "filtered": name_of("cause", stop.filtered) if not stop.copies else None,
        "ends": [
            {
                "unix_us": copy.at_us,
                "subscriber": copy.subscriber,
                "filter": copy.filter,
                "fate": name_of("fate", copy.fate),
                "cause": name_of("cause", copy.cause) if copy.cause else None,
                "why": sentence(copy.cause) if copy.cause else None,
                "wait_us": copy.wait_us,
            }
            for copy in stop.ends
        ],
        "open": stop.open,
        "waiting_for": stop.waiting,
        "is_over": stop.is_over,
    }


def _event(trail: MessageTrail) -> str:
    return f"{trail.event[0]}-{trail.event[1]}"


def _copies(count: int) -> str:
    return f"{count:,} {'copy' if count == 1 else 'copies'}"


def _moment(unix_us: int) -> datetime | None:
    """Returns the time; None if no calendar has it: a gateway's clock may have any value."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=unix_us)
    except OverflowError:
        return None


def _clock(unix_us: int) -> str:
    """Returns the time of day, in UTC: 08:19:53.123456."""
    moment = _moment(unix_us)
    return f"{'?':15}" if moment is None else f"{moment:%H:%M:%S.%f}"


def _day(unix_us: int) -> str:
    """Returns the date: 2026-11-23."""
    moment = _moment(unix_us)
    return "an unknown day" if moment is None else moment.date().isoformat()


def move_line(row: dict[str, Any]) -> str:
    """Returns a move of a publisher to another gateway, a row of `LogSet.moves`, as a line."""
    pause = "" if row["pause_us"] < 0 else f", without a connection for {row['pause_us'] / 1_000:,.0f} ms"
    way = f"from {row['node']} to {row['target']}, plan {plain(row['plan'])}"
    return f"{plain(row['publisher'])} was moved {way}: {row['outcome']}{pause}"
