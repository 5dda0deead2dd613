"""The local session of a bridge: what it holds for the remote broker, with its queue bounds and its age limit.

One timer for each session with an age limit drops messages that have waited too long (`Outbox.age_us`). The record of
the session also says how far the remote broker has synchronised with it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import chain, islice
from typing import Any, Final

from edgebridge.frontend.delivery import Delivery
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.journal.queue_pager import QueuePager
from edgebridge.frontend.queue_expiry import CHECKS_AT_ONCE
from edgebridge.frontend.retained_replay import ReplayQueue
from edgebridge.session.journal.session_records import gone_record
from edgebridge.session.queue.factory import outbox_for
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.session.queue.policy_queue import PolicyQueue
from edgebridge.session.retained import RetainedStore
from edgebridge.session.session import BridgeSyncState, Session
from edgebridge.session.subscription_text import parse_subscription
from edgebridge.wire.fields import U16_MAX
from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.timers import TimerQueue
from edgebroker.publication import Publication

CHECK_INTERVAL: Final = 100 * MILLISECOND
"""A session is looked at ten times a second at most. What is sent is looked at anyway, so nothing too old ever is."""


class QueueAgeLimit:
    """Drops what has waited for too long, also while the client is away."""

    def __init__(self, timers: TimerQueue, delivery: Delivery, retained: RetainedStore, pager: QueuePager) -> None:
        self._timers = timers
        self._delivery = delivery
        self._pager = pager
        self._retained = retained

    def watch(self, session: Session, now: Instant) -> None:
        """Look after *session* from now on."""
        self._timers.set(("age", session.client_id), now + 1)

    def fire(self, session: Session, now: Instant) -> None:
        """Look at what waits in *session*. What has become too old meanwhile may take several turns."""
        if not session.outbox.age_us:  # its messages may wait as long as they like by now
            return
        spool = session.outbox
        assert isinstance(spool, PolicyQueue)
        for entry in spool.dequeue_aged(now, self._retained.holds, CHECKS_AT_ONCE):
            self._delivery.discard(session, entry, Cause.TOO_OLD, now)
        due = spool.next_aged_at()
        if due is not None and due <= now and spool.pages and not spool.head_messages:
            self._pager.prepare(session)  # what is too old is in a page; the timer is set again when it was read
            return
        if due is not None and due <= now:
            self._timers.set(("age", session.client_id), now + 1)
            return
        self._delivery.release(session, now)
        due = spool.next_aged_at()
        self._timers.set(
            ("age", session.client_id), now + spool.age_us if due is None else max(due, now + CHECK_INTERVAL)
        )


@dataclass(frozen=True, slots=True)
class BridgeQueueBounds:
    """None: as for other clients."""

    messages_max: int | None = None
    bytes_max: int | None = None
    policy: str | None = None
    """What goes if there is no room: a `QueueFull`."""
    age_us: Duration = 0
    """How long a message may wait; 0: as long as the bridge exists."""
    is_live_first: bool = False
    """Whether what comes while the remote is there goes before what waited for it."""


def apply_bounds(frontend: Frontend, session: Session, bounds: BridgeQueueBounds, now: Instant) -> None:
    """Let *bounds* hold in *session*, also for what waits already."""
    terms, old = frontend.options, session.outbox
    policy = terms.queue_full if bounds.policy is None else OverflowPolicy(bounds.policy)
    if (old.policy, old.age_us, old.is_live_first) != (policy, bounds.age_us, bounds.is_live_first):
        queued = frontend.connect_handler.queued
        new = outbox_for(old.messages_max, old.bytes_max, policy, queued, bounds.age_us, bounds.is_live_first)
        new.dropped, new.dropped_by = old.dropped, old.dropped_by
        new.move_from(old)
        session.outbox = new
    outbox = session.outbox
    messages_max, bytes_max = terms.queue_bounds(session.number > 0)
    outbox.messages_max = messages_max if bounds.messages_max is None else bounds.messages_max
    outbox.bytes_max = bytes_max if bounds.bytes_max is None else bounds.bytes_max
    if outbox.dropped_by is None:
        outbox.dropped_by = {}
    if policy is OverflowPolicy.REFUSE:
        frontend.refuse_when_full()
    if bounds.age_us:
        ageing = QueueAgeLimit(frontend.node.timers, frontend.delivery, frontend.retained, frontend.pager)
        frontend.session_timers["age"] = ageing.fire
        ageing.watch(session, now)


def queue_report(session: Session | None, now: Instant) -> dict[str, Any]:
    """What waits in it, sent or not, for programs; `dropped` is counted since it was bounded first."""
    if session is None:
        return {"messages": 0, "bytes": 0, "paged": 0, "paged_bytes": 0, "oldest_s": None, "dropped": {}}
    outbox, inflight = session.outbox, session.inflight
    accepted = [entry.publication.accepted_at for entry in inflight]
    if (waiting := outbox.oldest_at()) is not None:
        accepted.append(waiting)
    return {
        "messages": session.outstanding,
        "bytes": outbox.held_bytes + inflight.held_bytes,
        "paged": outbox.paged_messages,
        "paged_bytes": outbox.paged_bytes,
        "oldest_s": round((now - min(accepted)) / SECOND, 3) if accepted else None,
        "dropped": {cause.name.lower(): count for cause, count in sorted((outbox.dropped_by or {}).items())},
    }


class BridgeSession:
    """The session of one bridge, looked up anew each time: it may begin and end."""

    def __init__(self, frontend: Frontend, client_id: str) -> None:
        self._frontend = frontend
        self._client_id = ClientId(client_id)
        self._doubt_lsn = 0  # the record that has to be on disk before the remote is asked for its session

    @property
    def session(self) -> Session | None:
        """It; None if there is none."""
        return self._frontend.connect_handler.sessions.get(self._client_id)

    def is_known(self) -> bool:
        """Whether it has a session."""
        return self.session is not None

    @property
    def sync_state(self) -> BridgeSyncState:
        """How far the remote is synchronised with it."""
        state = None if self.session is None else self.session.bridge_sync
        return state or BridgeSyncState.NOT_CONNECTED

    def part(self, now: Instant) -> None:
        """The bridge will connect under another client identifier: nothing at the remote belongs to this session."""
        if self.session is not None:
            self._set_state(self.session, BridgeSyncState.NOT_CONNECTED, now)

    def mark_in_doubt(self, now: Instant) -> None:
        """The remote is about to be asked for the session: if we are killed then, it may have begun another."""
        session, session_journal = self.session, self._frontend.journal
        if session is not None and session.bridge_sync is BridgeSyncState.SYNCHRONISED:
            session.bridge_sync, session.disconnected_at = BridgeSyncState.IN_DOUBT, now
            if session.number:
                self._doubt_lsn = session_journal.append(
                    gone_record(session, now + session_journal.clock_offset), True, now
                )

    def clear_doubt(self, now: Instant) -> None:
        """It has refused us, and begun nothing."""
        if self.session is not None and self.session.bridge_sync is BridgeSyncState.IN_DOUBT:
            self._set_state(self.session, BridgeSyncState.SYNCHRONISED, now)

    def is_noted(self) -> bool:
        """Whether the remote may be asked: the doubt is on disk; or the disk takes nothing, and an operator knows."""
        return self._doubt_lsn <= self._frontend.journal.synced or self._frontend.journal.is_refusing

    def is_sending_retained(self) -> bool:
        """Whether something of that still waits to be sent."""
        return self.session is not None and bool(self.session.replays)

    def watch_retained(self) -> None:
        """From now on note which retained messages are dropped, if the remote has all others."""
        session = self.session
        if session is not None and session.unsynced is None and self.sync_state.has_sent_retained:
            session.unsynced = set()

    def lost_retained(self) -> Set[str] | None:
        """Topics of retained messages that were dropped since the remote had all; None: it may lack any."""
        self.watch_retained()
        return None if self.session is None else self.session.unsynced

    def waiting_retained(self) -> Set[str]:
        """Topics of which what is retained waits for the remote, or is on its way to it."""
        session, is_state = self.session, self._frontend.retained.holds
        if session is None:
            return frozenset()
        publications = (entry.publication for entry in (*session.inflight, *session.outbox))
        return {one.topic for one in publications if is_state(one)}

    def has_outstanding(self) -> bool:
        """Whether something for the remote has not arrived."""
        return self.session is not None and self.session.outstanding > 0

    def begin_retained_sync(self, now: Instant, lost: Set[str] | None = None, only_lost: bool = False) -> None:
        """The remote is to be told all that is retained, once, but for what waits for it already.

        *lost*: the remote had all, but for these topics. Those of which nothing is retained any more are cleared there,
        and so are those whose clearing was dropped.
        *only_lost*: of the others only what went at QoS 0 is told, which may not have arrived.
        """
        session, is_state = self.session, self._frontend.retained.holds
        if session is None:
            return
        if lost is None or lost:
            self._set_state(session, BridgeSyncState.RETAINED_PENDING, now)
        session.unsynced = set()
        entries = [*session.inflight, *session.outbox]  # as it is now: 1 ms for 100,000
        publications = (entry.publication for entry in entries)
        waiting = (one.topic if is_state(one) else None for one in publications)
        cleared = {topic for topic in session.uncleared if self._frontend.retained.find(topic) is None}
        missing = (lost or set()) | cleared
        replays = ReplayQueue(waiting, missing if only_lost else None)
        replays.scan_queued()  # the rest, if there is more, in other turns
        self._send_lost(replays, missing, now)
        for replay in session.replays or ():
            if replay.remote_messages is None:
                replays.schedule(replay.subscription, replay.request, replay.skips_own)
            else:
                replays.append(replay)
        session.replays = replays

    def _send_lost(self, replays: ReplayQueue, lost: Set[str], now: Instant) -> None:
        retained = self._frontend.retained
        found = [
            retained.find(topic) or Publication(ClientId(""), topic, b"", 1, True, now)  # nothing is retained any more
            for topic in sorted(lost)
        ]
        for text, subscription in self._frontend.node.subscriptions.of(self._client_id).items():
            request = parse_subscription(text)
            messages = [one for one in found if request.topic_filter.matches(one.topic)]
            if messages:
                replays.send_first(subscription, request, messages)

    def complete_retained_sync(self, now: Instant) -> None:
        """It has been told."""
        session = self.session
        if session is not None:
            session.replays = session.replays or None  # with what it remembers of them
            session.uncleared &= session.unsynced or set()
            has_all = session.unsynced is not None and not session.unsynced  # None: too many were dropped meanwhile
            self._set_state(session, BridgeSyncState.SYNCHRONISED if has_all else BridgeSyncState.RETAINED_PENDING, now)

    def _set_state(self, session: Session, state: BridgeSyncState, now: Instant) -> None:
        session.bridge_sync, session.disconnected_at = state, now
        self._frontend.journal.disconnected(session, now)

    def subscribed(self) -> Sequence[str]:
        """The texts of its subscriptions."""
        return tuple(self._frontend.node.subscriptions.of(self._client_id))

    def received(self) -> Sequence[int]:
        """Packet identifiers of the QoS 2 messages that it published and did not release."""
        return () if self.session is None else sorted(self.session.received)

    def retransmit_released(self, now: Instant) -> int:
        """The remote forgot that it has messages whose PUBREC came: they are sent again. How many.

        It has a new session by now, so after a crash nothing would tell that it forgot: the journal has to.
        """
        session = self.session
        if session is None:
            return 0
        released = [entry for entry in session.inflight if entry.released]
        for entry in released:
            entry.released = False
            if entry.number:
                self._frontend.journal.sent(session, entry, now)
        return len(released)

    def oldest(self) -> tuple[int, str, int] | None:
        """Packet identifier, topic and bytes of the message that waits longest for its answer."""
        session = self.session
        entry = None if session is None else next(iter(session.inflight), None)
        if entry is None:
            return None
        return entry.packet_id, entry.publication.topic, len(entry.publication.payload)

    def can_retain(self, topic: str, size: int) -> bool:
        """Whether there is room for a message of *topic* with *size* bytes among those that are retained."""
        return self._frontend.retained.has_room(topic, size)

    def window(self) -> int:
        """How many messages it may have on their way at once."""
        return 0 if self.session is None else self.session.inflight.window

    def unix_us(self, now: Instant) -> int:
        """Microseconds since 1970, as far as the gateway knows."""
        return now + self._frontend.journal.clock_offset

    def is_too_old(self, packet_id: int, now: Instant) -> bool:
        """Whether the message that it sent us under this identifier has waited for longer than any may."""
        session = self.session
        if session is None or not session.outbox.age_us:
            return False
        publication = next((one.publication for one in session.inflight if one.packet_id == packet_id), None)
        return (
            publication is not None
            and now - publication.accepted_at > session.outbox.age_us
            and not self._frontend.retained.holds(publication)
        )

    def free_packet_ids(self, count: int) -> Sequence[int]:
        """Packet identifiers of which no message is on its way, nor will be soon: those that were given long ago."""
        session = self.session
        last = 0 if session is None else session.inflight.last_id
        taken = set() if session is None else {entry.packet_id for entry in session.inflight}
        backwards = ((last - step - 1) % U16_MAX + 1 for step in range(U16_MAX))
        free = (packet_id for packet_id in backwards if packet_id not in taken)
        return list(islice(chain(free, taken), count))  # a window of before may have been larger

    def bound(self, bounds: BridgeQueueBounds, now: Instant) -> None:
        """What may wait in it is said by *bounds* from now on."""
        if self.session is not None:
            apply_bounds(self._frontend, self.session, bounds, now)

    def described(self, now: Instant) -> dict[str, Any]:
        """What waits in it, and what was dropped of that."""
        return queue_report(self.session, now)
