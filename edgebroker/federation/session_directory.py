"""The session directory: which other gateways may have a durable session of a client.

Each gateway of the federation keeps a summary of the sessions of every other one (`session_summary`) in memory. So it
knows without a message that nobody has a session of a client. A summary may name a gateway that has no such session,
once in 43,000 clients if it has 100,000 sessions; that gateway is asked in vain then. A summary lacks a session for as
long as the news of it are on the way: NEWS_INTERVAL and the time of the path.

A gateway gathers the sessions that begin for NEWS_INTERVAL at most, because their clients may be at another gateway
soon, and those that end for CHANGES_INTERVAL; it publishes both as one event of QoS 1 for all others. The events wait
in outboxes; so a gateway that was cut off learns everything when it is back. Each has the digest of the summary behind
it. Where a copy has another digest, because an event was dropped with a lease or an outbox, or because one of the two
has started again, its gateway sends the sums of its buckets, and gets those that differ, in answers of 32 KiB: the next
one is asked for when the one before has arrived. A gateway that starts tells its digest and asks the others for theirs;
after DIGEST_INTERVAL without changes a gateway tells its digest again.

Questions and answers are events for one gateway alone, and may arrive before changes that were published earlier. So
both name the version of the summary. A gateway that waits for an answer remembers the changes that arrive meanwhile,
and applies those to it that it does not contain.

Gateways of an older version pass all of this on and take no notice. A federation may mix both; nobody knows what
sessions the older ones have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import islice
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import Effect, SessionElsewhere
from edgebroker.federation.retained_claims import SESSIONS_TOPIC, GatewayPublisher
from edgebroker.federation.session_summary import (
    BUCKET_SHIFT,
    BUCKETS,
    CHANGES_MAX,
    EMPTY,
    OwnSessions,
    SessionChanges,
    SessionSummary,
    Statement,
    SummaryAnswer,
    SummaryQuestion,
    answer_to,
    client_fingerprint,
    read_statement,
)
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration, Instant

CHANGES_INTERVAL: Final[Duration] = SECOND
"""Sessions that have ended are told at most so often..."""
NEWS_INTERVAL: Final[Duration] = 100 * MILLISECOND
"""...and those that have begun so often: a client takes longer to lose one gateway and to find another. An event has
about 100 bytes, so a gateway at which sessions begin all the time sends 1 KB/s to each other one at most, and 12 bytes
a session."""
DIGEST_INTERVAL: Final[Duration] = 60 * MINUTE
"""How long a gateway without changes says nothing: what was lost on the way is noticed then at the latest. A digest has
about 100 bytes.
"""
QUESTION_TIMEOUT: Final[Duration] = 30 * SECOND
"""A gateway that has not answered for so long is asked again when it says something."""


@dataclass(slots=True)
class _Copy:
    """The copy of another gateway's summary."""

    summary: SessionSummary = field(default_factory=SessionSummary)
    run: bytes = b""
    """The run to which the copy belongs; empty: nothing has arrived yet."""
    version: int = 0
    """The changes up to this one are in the copy."""
    is_known: bool = False
    asked_at: Instant | None = None
    """When the question was sent that is not answered yet."""
    is_whole: bool = False
    """Whether that asks for everything."""
    changes: list[SessionChanges] = field(default_factory=list)
    """Those that arrived since the question was sent."""

    def is_equal(self, statement: SessionChanges | SummaryAnswer) -> bool:
        """Return whether the copy is what *statement* says of the whole summary."""
        return self.summary.digest == statement.digest

    def apply(self, changes: SessionChanges, buckets: Iterable[int] | None = None) -> None:
        """Apply *changes*, those in *buckets* alone unless that is None."""
        for fingerprint in changes.removed:
            if buckets is None or fingerprint >> BUCKET_SHIFT in buckets:
                self.summary.remove(fingerprint)
        for fingerprint, _ in changes.added:
            if buckets is None or fingerprint >> BUCKET_SHIFT in buckets:
                self.summary.add(fingerprint)


class SessionDirectory:
    """The directory of one gateway. Without `is_kept` it does nothing, and knows of no session."""

    def __init__(
        self, publisher: GatewayPublisher, others: Iterable[int], run: bytes, unix_offset_ms: int, is_kept: bool = True
    ) -> None:
        """others: the numbers of all other gateways. run: random bytes, which name this run of the gateway.
        unix_offset_ms: the difference between milliseconds since 1970 and the milliseconds of `now`.
        """
        self.is_kept = is_kept
        self.due: Instant | None = None
        """When to call `fire`; None: never."""
        self.own = OwnSessions()
        """The durable sessions of this gateway."""
        self.elsewhere = 0
        """Sessions of other gateways with the fingerprint of one of this gateway, when they were told."""
        self.questions = 0
        """Questions about summaries that were sent."""
        self.unreadable = 0
        """Events that could not be read."""
        self._publisher = publisher
        self._run = run
        self._unix_offset_ms = unix_offset_ms
        self._version = 0
        self._copies = {number: _Copy() for number in sorted(others)}
        self._added: dict[str, int] = {}  # clients whose sessions others do not know yet -> when they connected
        self._removed: dict[str, None] = {}  # clients of whose sessions others think that there are any
        self._told_at: Instant = -CHANGES_INTERVAL
        self._is_started = False
        self._overdue: set[str] = set()  # peers for which events were dropped since their links broke

    # -- questions ------------------------------------------------------------------------------------------------

    def holders(self, client_id: str) -> tuple[int, ...]:
        """Return the numbers of the other gateways that may have a durable session of *client_id*, the lowest first."""
        fingerprint = client_fingerprint(client_id)
        number, found = fingerprint >> BUCKET_SHIFT, []
        for gateway, copy in self._copies.items():  # as `in copy.summary`, which takes twice as long
            bucket = copy.summary.buckets.get(number)
            if bucket is not None:
                at = bisect_left(bucket, fingerprint)
                if at < len(bucket) and bucket[at] == fingerprint:
                    found.append(gateway)
        return tuple(found)

    def is_known(self, gateway: int) -> bool:
        """Return whether the summary of the gateway with the number *gateway* has arrived."""
        copy = self._copies.get(gateway)
        return copy is not None and copy.is_known

    def clients_of(self, fingerprint: int) -> tuple[str, ...]:
        """Return the clients with *fingerprint* of which this gateway has durable sessions: one, as a rule."""
        return self.own.clients_of(fingerprint)

    def summaries(self) -> Iterator[tuple[int, SessionSummary]]:
        """Iterate over the gateways whose summaries have arrived, each with the copy of its summary."""
        for number, copy in self._copies.items():
            if copy.is_known:
                yield number, copy.summary

    @property
    def memory_bytes(self) -> int:
        """The memory of the copies of other gateways' summaries."""
        return sum(copy.summary.memory_bytes for copy in self._copies.values())

    # -- own sessions ---------------------------------------------------------------------------------------------

    def restored(self, client_id: str) -> None:
        """Know a session that an earlier run left. To be called before `start`, which compares them all."""
        if self.is_kept:
            self.own.begin(client_id)

    def added(self, client_id: str, stamp_ms: int) -> None:
        """Record that *client_id* has a durable session here since it connected at *stamp_ms*, in milliseconds since
        1970. Others are told; of a session that is known nothing is said.
        """
        if self.is_kept and self.own.begin(client_id):
            self._added[client_id] = max(0, stamp_ms)
            self._plan_changes(NEWS_INTERVAL)

    def removed(self, client_id: str) -> None:
        """Record that *client_id* has no durable session here any more; one that is not known is ignored."""
        if self.is_kept and self.own.end(client_id):
            if self._added.pop(client_id, None) is None:
                self._removed[client_id] = None
            self._plan_changes(CHANGES_INTERVAL)

    def _plan_changes(self, interval: Duration) -> None:
        if self._is_started:
            due = self._told_at + interval
            self.due = due if self.due is None else min(due, self.due)

    # -- time -----------------------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        """Tell all others the digest of this gateway, whose sessions are restored, and ask them for theirs."""
        if not self.is_kept:
            return []
        self._is_started = True
        self._added, self._removed = {}, {}  # the digest has them
        return self._tell_digest(now, wants_answer=True)

    def resume(self, before: SessionDirectory) -> None:
        """Go on for *before*, in another topology. To be called before `start`. Gateways that left are forgotten."""
        if self.is_kept and before.is_kept:
            self.own = before.own
            self._copies |= {number: copy for number, copy in before._copies.items() if number in self._copies}

    def fire(self, now: Instant) -> list[Effect]:
        """Tell others what is due: the changes, or the digest."""
        if self.due is None or now < self.due:
            return []
        return self.flush(now) if self._added or self._removed else self._tell_digest(now)

    def flush(self, now: Instant) -> list[Effect]:
        """Tell others all changes now."""
        left = len(self._removed) + len(self._added)
        if not left or not self._is_started:
            return []
        effects: list[Effect] = []
        removed, added = map(client_fingerprint, self._removed), iter(self._added.items())
        while left:
            gone = tuple(islice(removed, CHANGES_MAX))
            new = tuple((client_fingerprint(client), at) for client, at in islice(added, CHANGES_MAX - len(gone)))
            left -= len(gone) + len(new)
            self._version += 1
            effects += self._publish(self._changes(has_more=left > 0, removed=gone, added=new), now)
        self._removed, self._added = {}, {}
        self._told(now)
        return effects

    def _tell_digest(self, now: Instant, wants_answer: bool = False) -> list[Effect]:
        changes = self.flush(now)
        self._told(now)
        return [*changes, *self._publish(self._changes(wants_answer=wants_answer), now)]

    def _told(self, now: Instant) -> None:
        self._told_at = now
        self.due = now + DIGEST_INTERVAL

    # -- links ----------------------------------------------------------------------------------------------------

    def lease_ended(self, peer: str) -> None:
        """Handle the end of the lease of *peer*: what waited for it has been dropped."""
        self._overdue.add(peer)

    def link_up(self, peer: str, now: Instant) -> list[Effect]:
        """Handle an open link to *peer*: if its lease had ended, digests are compared."""
        if not self.is_kept or peer not in self._overdue:
            return []
        self._overdue.discard(peer)
        return self._tell_digest(now, wants_answer=True)

    # -- statements of others -------------------------------------------------------------------------------------

    def receive(self, gateway: int, payload: bytes, now: Instant) -> list[Effect]:
        """Handle an event of the topic SESSIONS_TOPIC, which the gateway with the number *gateway* has published."""
        copy = self._copies.get(gateway)
        if not self.is_kept or copy is None:
            return []
        match read_statement(payload):
            case SessionChanges() as changes:
                return self._receive_changes(gateway, copy, changes, now)
            case SummaryQuestion() as question:
                changed = self.flush(now)  # the answer has these changes, under their version
                answer = answer_to(question, self.own, self._run, self._version)
                return [*changed, *self._publish_to(gateway, answer, now)]
            case SummaryAnswer() as answer:
                return self._receive_answer(gateway, copy, answer, now)
            case _:
                self.unreadable += 1
                return []

    def _receive_changes(self, gateway: int, copy: _Copy, changes: SessionChanges, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        is_new = changes.run != copy.run or changes.version > copy.version
        if is_new and (changes.added or changes.removed):
            effects += self._elsewhere(gateway, changes.added)
            if copy.asked_at is not None:
                copy.changes.append(changes)
            if changes.run == copy.run:
                copy.apply(changes)
                copy.version = changes.version
        if changes.wants_answer:
            effects += [*self.flush(now), *self._publish_to(gateway, self._changes(), now)]
        if changes.has_more or (changes.run == copy.run and changes.version < copy.version):
            return effects
        if copy.is_equal(changes):
            copy.run, copy.version, copy.is_known = changes.run, changes.version, True
            return effects
        return [*effects, *self._ask(gateway, copy, now)]

    def _ask(self, gateway: int, copy: _Copy, now: Instant, first: int = 0, wants_all: bool = False) -> list[Effect]:
        """Ask *gateway* for what is different in its summary, from bucket *first* on, unless it is asked already."""
        if not first and copy.asked_at is not None and now - copy.asked_at < QUESTION_TIMEOUT:
            return []
        copy.is_whole = wants_all or copy.summary.count < BUCKETS  # then the sums have more bytes
        copy.asked_at = now
        copy.changes.clear()
        self.questions += 1
        sums = () if copy.is_whole else copy.summary.sums(first)
        return self._publish_to(gateway, SummaryQuestion(first, sums), now)

    def _receive_answer(self, gateway: int, copy: _Copy, answer: SummaryAnswer, now: Instant) -> list[Effect]:
        if copy.asked_at is None:  # it was asked twice, or by an earlier run of this gateway
            return []
        told = range(answer.first, answer.until) if answer.is_whole else answer.buckets
        reported = {fingerprint for changes in copy.changes for fingerprint, _ in changes.added}
        effects: list[Effect] = []
        for number in told:
            before = copy.summary.replace(number, answer.buckets.get(number, EMPTY))
            new = set(copy.summary.buckets.get(number, ())).difference(before, reported)
            effects += self._elsewhere(gateway, ((fingerprint, 0) for fingerprint in sorted(new)))
        if answer.run != copy.run:
            copy.run, copy.version, told = answer.run, answer.version, range(BUCKETS)
        for changes in copy.changes:
            if changes.run == answer.run and changes.version > answer.version:
                copy.apply(changes, told)
                copy.version = max(copy.version, changes.version)
        copy.version = max(copy.version, answer.version)
        if answer.until < BUCKETS:
            return [*effects, *self._ask(gateway, copy, now, answer.until, copy.is_whole)]
        copy.asked_at, copy.is_known = None, True
        copy.changes.clear()
        if copy.version == answer.version and not copy.is_equal(answer) and not copy.is_whole:
            effects += self._ask(gateway, copy, now, wants_all=True)
        return effects

    def _elsewhere(self, gateway: int, told: Iterable[tuple[int, int]]) -> Iterator[Effect]:
        """Iterate over the sessions *told* of *gateway* whose fingerprints sessions of this gateway have too."""
        for fingerprint, stamp_ms in told:
            if fingerprint in self.own:
                self.elsewhere += 1
                yield SessionElsewhere(fingerprint, gateway, stamp_ms)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _changes(
        self,
        has_more: bool = False,
        wants_answer: bool = False,
        removed: tuple[int, ...] = (),
        added: tuple[tuple[int, int], ...] = (),
    ) -> SessionChanges:
        return SessionChanges(self._run, self._version, self.own.digest, has_more, wants_answer, removed, added)

    def _publish(self, changes: SessionChanges, now: Instant) -> Iterable[Effect]:
        now_ms = now // MILLISECOND + self._unix_offset_ms
        return self._publisher.publish(SESSIONS_TOPIC, changes.encode(), now_ms, now, is_for_all=True)

    def _publish_to(self, gateway: int, statement: Statement, now: Instant) -> list[Effect]:
        now_ms = now // MILLISECOND + self._unix_offset_ms
        return [*self._publisher.publish_to(gateway, SESSIONS_TOPIC, statement.encode(), now_ms)]
