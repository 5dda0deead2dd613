"""What may wait in the session of a bridge, and what does."""

from __future__ import annotations

from typing import Any

from edgebridge.frontend.ageing import Ageing
from edgebridge.frontend.frontend import Frontend
from edgebridge.session.outbox import QueueFull
from edgebridge.session.outboxes import outbox_for
from edgebridge.session.session import Session
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Duration, Instant


@dataclass(frozen=True, slots=True)
class Bounds:
    """None: as for other clients."""

    messages_max: int | None = None
    bytes_max: int | None = None
    policy: str | None = None
    """What goes if there is no room: a `QueueFull`."""
    age_us: Duration = 0
    """How long a message may wait; 0: as long as the bridge exists."""
    is_live_first: bool = False
    """Whether what comes while the remote is there goes before what waited for it."""


def bound(frontend: Frontend, session: Session, bounds: Bounds, now: Instant) -> None:
    """Let *bounds* hold in *session*, also for what waits already."""
    terms, old = frontend.terms, session.outbox
    policy = terms.queue_full if bounds.policy is None else QueueFull(bounds.policy)
    if (old.policy, old.age_us, old.is_live_first) != (policy, bounds.age_us, bounds.is_live_first):
        queued = frontend.connecting.queued
        new = outbox_for(old.messages_max, old.bytes_max, policy, queued, bounds.age_us, bounds.is_live_first)
        new.dropped, new.dropped_by = old.dropped, old.dropped_by
        new.succeed(old)
        session.outbox = new
    outbox = session.outbox
    outbox.messages_max = terms.queue_messages_max if bounds.messages_max is None else bounds.messages_max
    outbox.bytes_max = terms.queue_bytes_max if bounds.bytes_max is None else bounds.bytes_max
    if outbox.dropped_by is None:
        outbox.dropped_by = {}
    if policy is QueueFull.REFUSE:
        frontend.ask_for_room()
    if bounds.age_us:
        ageing = Ageing(frontend.node.timers, frontend.delivery)
        frontend.of_session["age"] = ageing.fire
        ageing.watch(session, now)


def described(session: Session | None, now: Instant) -> dict[str, Any]:
    """What waits in it, sent or not, for programs; `dropped` is counted since it was bounded first."""
    if session is None:
        return {"messages": 0, "bytes": 0, "oldest_s": None, "dropped": {}}
    outbox, inflight = session.outbox, session.inflight
    accepted = [entry.publication.accepted_at for entry in inflight]
    if (waiting := outbox.oldest_at()) is not None:
        accepted.append(waiting)
    return {
        "messages": session.outstanding,
        "bytes": outbox.held_bytes + inflight.held_bytes,
        "oldest_s": round((now - min(accepted)) / SECOND, 3) if accepted else None,
        "dropped": {cause.name.lower(): count for cause, count in sorted((outbox.dropped_by or {}).items())},
    }
