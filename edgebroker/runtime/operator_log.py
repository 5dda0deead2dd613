"""The operator's log: notices with a level, a code and fields, as text or JSON lines on standard error.

    log = OperatorLog(NonblockingWriter().write, Level.WARNING)
    log.log(Level.WARNING, "dropped", "messages are given up", client="slow", cause="queue_full", count=3)

    2026-02-03T04:05:06.789Z warning dropped: messages are given up client=slow cause=queue_full count=3

The delivery log has a row for every message; the operator's log has not. A notice that repeats is written a few times a
minute for each code and client, and then counted, so a broken device costs lines by the minute and not by the message.
No call blocks, and no line contains a payload or a password. `LogPump` writes the events of the front end and the drops
of the ledger into the log, ten times a second.
"""

from __future__ import annotations

import json
import re
import time
import traceback
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgebridge.frontend.event_buffer import (
    CONNECTED,
    DISCONNECTED,
    NOT_PUBLISHED,
    NOT_SUBSCRIBED,
    REFUSED,
    SESSION_ENDED,
    SESSION_STRANDED,
    TRACED,
    ClientEvent,
)
from edgebridge.frontend.frontend import Frontend
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.instants import MINUTE, Instant
from edgebroker.log_schema import Cause
from edgebroker.storage.journal.journal import Journal

if TYPE_CHECKING:
    from edgebroker.federation.forwarding import Forwarder

REPEATS_MAX: Final = 5
"""Lines of one code and client in one window: enough to see what happens, and that it continues."""
WINDOW_S: Final = 60.0
SUBJECTS_MAX: Final = 1_000
"""Codes and clients counted separately in one window, about 200 KiB; beyond that there is one limit for each code."""
LINES_MAX: Final = 1_000
"""Lines in one window: 17 a second, 5 MiB an hour at most on a card that wears out. Further ones are counted."""
FIELD_CHARS_MAX: Final = 200
"""Length of a value that a client chose, such as its identifier (1 KiB)."""

Value = str | int | float | bool
_PLAIN = re.compile(r"[^\s\"=\\]+")


class Level(IntEnum):
    """Severity, with the numbers of syslog. A log writes its own level and more severe (smaller) ones."""

    ERROR = 3
    """Something does not work."""
    WARNING = 4
    """Something is refused, lost or wrong; the gateway continues."""
    INFO = 6
    """Clients connect and disconnect; parts start and stop."""
    DEBUG = 7
    """For developers."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One event for the operator. `code` is one word for programs and never changes; `text` is for people, and may
    change.
    """

    level: Level
    code: str
    text: str
    fields: Mapping[str, Value]


LineFormat = Callable[[Notice, float], str]
"""Formats a notice, with the wall clock (seconds since 1970), as one line."""


def as_text(notice: Notice, unix_s: float) -> str:
    """Returns a line for people: time, level, code, text, then the fields as `name=value`."""
    return f"{timestamp(unix_s)} {as_journal(notice, unix_s, '')}"


def as_journal(notice: Notice, unix_s: float, prefix: str = "<{}>") -> str:
    """Returns a line for journald, which adds the time and reads the level from a prefix (sd-daemon(3))."""
    fields = "".join(f" {name}={quoted(value)}" for name, value in notice.fields.items())
    line = f"{notice.level.name.lower()} {notice.code}: {_one_line(notice.text)}{fields}"
    return prefix.format(int(notice.level)) + line


def as_json(notice: Notice, unix_s: float) -> str:
    """Returns a line for programs: one JSON object."""
    fields = {name: _cut(value) for name, value in notice.fields.items()}
    head = {"time": timestamp(unix_s), "level": notice.level.name.lower(), "code": notice.code, "text": notice.text}
    return json.dumps({**fields, **head})


TEXT_PREFIXES: Final = {"delivery log: ": "delivery-log", "the journal ": "journal"}
"""Prefixes of lines from parts that provide only text, and their codes."""


def timestamp(unix_s: float) -> str:
    """Returns the time as in RFC 3339: UTC with milliseconds."""
    whole = int(unix_s)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((unix_s - whole) * 1_000):03}Z"


class OperatorLog:
    """Writes notices as lines: filtered by level, limited by code and client."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        level: Level = Level.WARNING,
        form: LineFormat = as_text,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.level = level
        self.counts: dict[Level, int] = dict.fromkeys(Level, 0)
        """Notices so far, whether written or not."""
        self._write = write
        self._form = form
        self._wall_clock = wall_clock
        self._clock = clock
        self._window_end = 0.0
        self._written: dict[tuple[str, Value], int] = {}
        self._suppressed: dict[tuple[str, Value], tuple[Level, int]] = {}
        self._lines = 0
        self._dropped_lines = 0

    def log(self, level: Level, code: str, text: str, about: str = "", **fields: Value) -> None:
        """Logs one event. Repeats are limited for each *about*, or by default for each value of the field `client`."""
        self.counts[level] += 1
        if level > self.level:
            return
        if self._clock() >= self._window_end:
            self.end_window()
        subject = (code, about or fields.get("client", ""))
        written = self._written.get(subject, 0)
        if not written and len(self._written) >= SUBJECTS_MAX:
            subject = (code, "")
            written = self._written.get(subject, 0)
        self._written[subject] = written + 1
        if written >= REPEATS_MAX:
            worst, count = self._suppressed.get(subject, (level, 0))
            self._suppressed[subject] = (min(worst, level), count + 1)
        elif self._lines >= LINES_MAX:
            self._dropped_lines += 1
        else:
            self._lines += 1
            self._write_notice(Notice(level, code, text, fields))

    def log_line(self, text: str) -> None:
        """Logs a warning of a part that provides only text. The code is that of the part, or `gateway`.

        The text before a colon is not used as a code: it may be a file name or a client identifier.
        """
        for prefix, code in TEXT_PREFIXES.items():
            if text.startswith(prefix):
                self.log(Level.WARNING, code, text.removeprefix(prefix) if prefix.endswith(": ") else text)
                return
        self.log(Level.WARNING, "gateway", text, about=text)

    def log_unexpected(self, context: Mapping[str, Any]) -> None:
        """Logs an uncaught error, as an event loop passes it to its exception handler, with its traceback."""
        error = context.get("exception")
        fields: dict[str, Value] = {}
        if isinstance(error, BaseException):
            fields["error"] = f"{type(error).__name__}: {error}"
            frames = traceback.extract_tb(error.__traceback__)
            fields["at"] = " < ".join(
                f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[:-6:-1]
            )
        self.log(Level.ERROR, "unexpected", str(context.get("message", "an error nobody expected")), "", **fields)

    def end_window(self) -> None:
        """Ends the window if its time is over: logs what was suppressed. To be called now and then."""
        if self._clock() < self._window_end:
            return
        self.flush()
        self._window_end = self._clock() + WINDOW_S

    def flush(self) -> None:
        """Logs at once what was suppressed."""
        suppressed, self._suppressed = self._suppressed, {}
        dropped_lines, self._dropped_lines = self._dropped_lines, 0
        self._written.clear()
        self._lines = 0
        for (code, client), (level, count) in suppressed.items():
            fields: dict[str, Value] = {"client": client} if client else {}
            self._write_notice(Notice(level, code, f"{count} more suppressed", {**fields, "suppressed": count}))
        if dropped_lines:
            self._write_notice(
                Notice(Level.WARNING, "log", f"{dropped_lines} lines were too many", {"suppressed": dropped_lines})
            )

    def _write_notice(self, notice: Notice) -> None:
        self._write(self._form(notice, self._wall_clock()).encode("utf-8", "replace") + b"\n")


def _cut(value: Value) -> Value:
    return value[:FIELD_CHARS_MAX] if isinstance(value, str) else value


def quoted(value: Value) -> str:
    """Returns the value, quoted if its end would not be clear, whatever a client put into it."""
    value = _cut(value)
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _PLAIN.fullmatch(value) and value.isprintable() else json.dumps(value)


def _one_line(text: str) -> str:
    """Returns the text with control characters escaped: it can harm neither a terminal nor the next line."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


LEVELS: Final = {
    CONNECTED: Level.INFO,
    DISCONNECTED: Level.INFO,
    REFUSED: Level.WARNING,
    NOT_PUBLISHED: Level.WARNING,
    NOT_SUBSCRIBED: Level.WARNING,
    SESSION_ENDED: Level.WARNING,
    SESSION_STRANDED: Level.WARNING,
    TRACED: Level.INFO,
}
EXPECTED_REASONS: Final = frozenset(
    {
        *(ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SESSION_TAKEN_OVER),
        *(ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED),
    }
)
"""Reason codes of 0x80 and above that occur in normal operation."""
USUAL_CAUSES: Final = frozenset(
    {
        *(Cause.OFFLINE, Cause.CONNECTION_LOST, Cause.SESSION_ENDED, Cause.HANDED_OVER, Cause.SUPERSEDED),
        Cause.PEER_REMOVED,
    }
)
"""Copies that the standard discards with a client's connection or session, that another member of the shared group
receives, that a later message of the topic replaces, or that were for a removed gateway, as the operator configured.
All other drops are losses.
"""
QUEUE_CAUSES: Final = frozenset(
    {Cause.QUEUE_FULL, Cause.MEMORY_FULL, Cause.TOO_OLD, Cause.THINNED, Cause.DAMAGED, Cause.LEASE_ENDED}
)
"""What a queue loses of what was acknowledged to a publisher."""
QUEUE_DROP_MEMORY: Final = 15 * MINUTE
"""A queue that has dropped something is a warning of `/health` so long, as alert rules look back as far."""
CLIENTS_MAX: Final = 1_000
"""Clients whose drops, and take-overs, are counted separately in one minute."""
TAKE_OVERS_MIN: Final = 5
"""Take-overs of one client identifier in a minute that are reported: a device on a bad line comes back less often."""


class LogPump:
    """Logs the events of the front end, in `pump`. The first drop of a client and cause in a minute is logged at once,
    the sum at the end of the minute.
    """

    def __init__(
        self,
        frontend: Frontend,
        operator_log: OperatorLog,
        clock: Callable[[], Instant],
        journal: Journal | None = None,
        misplaced: Callable[[], str] = lambda: "",
        forwarder: Callable[[], Forwarder | None] = lambda: None,
    ) -> None:
        """*misplaced* returns what of the journal was deleted or replaced, "" if nothing; it is called once a
        minute. *forwarder* returns what forwards events to other gateways, in a federation.
        """
        self._frontend = frontend
        self._operator_log = operator_log
        self._clock = clock
        self._journal = journal
        self._misplaced = misplaced
        self._forwarder = forwarder
        self._unreadable = 0
        self._next_unreadable_notice = clock()
        self._reported_misplacement = ""
        self._failures = 0
        self._is_refusing = False
        self._warning = ""
        self._minute_end = clock() + MINUTE
        self._drops: dict[tuple[str, Cause], int] = {}
        # Take-overs in this minute by client, and the last two addresses that lost the session.
        self._take_overs: dict[str, tuple[int, str, str]] = {}
        self.dropped: dict[str, dict[Cause, int]] = {}
        """Copies dropped so far, by client and cause, of clients that have a session."""
        self._queue_drops: dict[str, tuple[Instant, Cause]] = {}

    def pump(self) -> None:
        """Logs what happened since the last call."""
        events, missed = self._frontend.events.take()
        for event in events:
            self._log_event(event)
        if missed:
            self._operator_log.log(Level.WARNING, "log", "more happened than could be noted", missed=missed)
        self.collect_drops()
        if self._journal is not None:
            self._log_disk_state(self._journal)
        self._log_unreadable()
        if self._clock() >= self._minute_end:
            self.close_minute()
        self._operator_log.end_window()

    def _log_unreadable(self) -> None:
        """Logs at most once a minute that content filters asked for payloads that cannot be read. Publishers decide how
        many there are, and no client is refused: one line says how many, and one topic.
        """
        by_clients, forwarder = self._frontend.node.routes.unreadable, self._forwarder()
        counts = by_clients if forwarder is None or by_clients.total else forwarder.unreadable
        total = by_clients.total + (0 if forwarder is None else forwarder.unreadable.total)
        if total == self._unreadable or self._clock() < self._next_unreadable_notice:
            return
        self._operator_log.log(
            Level.WARNING,
            "unreadable",
            "content filters asked for payloads that cannot be read; edgebroker explain --event tells more",
            messages=total - self._unreadable,
            topic=counts.last_topic,
        )
        self._unreadable, self._next_unreadable_notice = total, self._clock() + MINUTE

    def _log_disk_state(self, journal: Journal) -> None:
        """Logs when the journal begins to fail, and when it works again."""
        if journal.is_refusing != self._is_refusing:
            self._is_refusing = journal.is_refusing
            if journal.is_refusing:
                text = "the disk takes nothing: what must be kept is refused"
                self._operator_log.log(Level.ERROR, "journal", text, trouble=journal.refusal_reason)
            else:
                text = "the disk takes everything again"
                self._operator_log.log(Level.WARNING, "journal", text, failures=journal.failures)
        elif journal.failures > self._failures:
            trouble = journal.refusal_reason or journal.warning
            text = "a write or a sync failed and is tried again elsewhere"
            self._operator_log.log(Level.WARNING, "journal", text, trouble=trouble, failures=journal.failures)
        elif journal.warning and journal.warning != self._warning:
            self._operator_log.log(Level.WARNING, "journal", journal.warning)
        self._failures, self._warning = journal.failures, journal.warning

    def collect_drops(self) -> None:
        """Updates `dropped`."""
        sessions = self._frontend.connect_handler.sessions
        for (client, cause), count in self._frontend.ledger.take_drops().items():
            if client in sessions:
                counts = self.dropped.setdefault(client, {})
                counts[cause] = counts.get(cause, 0) + count
            self._count_drop(client, cause, count)
            if cause in QUEUE_CAUSES:
                self._note_queue_drop(client, cause)

    def _note_queue_drop(self, client: str, cause: Cause) -> None:
        if client not in self._queue_drops and len(self._queue_drops) >= CLIENTS_MAX:
            client = ""
        self._queue_drops.pop(client, None)
        self._queue_drops[client] = (self._clock(), Cause(cause))

    def recent_queue_drops(self) -> dict[str, Cause]:
        """Returns the clients whose queues dropped something in the last 15 minutes, with the last cause, and the
        latest first. Those beyond CLIENTS_MAX are one, "".
        """
        self.collect_drops()
        since = self._clock() - QUEUE_DROP_MEMORY
        return {client: cause for client, (at, cause) in reversed(self._queue_drops.items()) if at >= since}

    def close_minute(self) -> None:
        """Logs what was dropped in the minute and is not logged yet."""
        self._minute_end = self._clock() + MINUTE
        sessions = self._frontend.connect_handler.sessions
        misplacement = self._misplaced()
        # no write has failed because of it yet
        if misplacement not in ("", self._reported_misplacement) and not self._is_refusing:
            self._operator_log.log(
                Level.ERROR, "journal", "the next start would find nothing of what is kept", trouble=misplacement
            )
        self._reported_misplacement = misplacement
        for client in [client for client in self.dropped if client not in sessions]:
            del self.dropped[client]
        since = self._clock() - QUEUE_DROP_MEMORY
        self._queue_drops = {client: drop for client, drop in self._queue_drops.items() if drop[0] >= since}
        take_overs, self._take_overs = self._take_overs, {}
        for client, (count, peer, other) in take_overs.items():
            if count >= TAKE_OVERS_MIN:
                text = "one client identifier connects again and again, as two devices with the same one do"
                self._operator_log.log(
                    Level.WARNING, "taken-over", text, client=client, count=count, peer=peer, other_peer=other
                )
        drops, self._drops = self._drops, {}
        for (client, cause), count in drops.items():
            if count:
                self._log_drop(client, cause, count, "messages were dropped since")

    def _log_event(self, event: ClientEvent) -> None:
        if event.code == TRACED:
            trace_id, number, topic = event.text.split(" ", 2)
            self._operator_log.log(
                LEVELS[TRACED],
                TRACED,
                "a sampled message was published",
                about=trace_id,
                trace_id=trace_id,
                message=int(number),
                topic=topic,
                publisher=event.client,
            )
            return
        if event.code == DISCONNECTED and event.reason == ReasonCode.SESSION_TAKEN_OVER:
            self._count_take_over(event)
        level = LEVELS[event.code]
        if event.code == DISCONNECTED and event.reason >= FAILURE and event.reason not in EXPECTED_REASONS:
            level = Level.WARNING
        fields: dict[str, str | int] = {"client": event.client} if event.client else {}
        if event.peer:
            fields["peer"] = event.peer
        if event.reason:
            fields["reason"] = _reason_name(event.reason)
        if event.user:
            fields["user"] = event.user
        if event.dropped:
            fields["dropped"] = event.dropped
        self._operator_log.log(level, event.code, event.text or event.code, "", **fields)

    def _count_take_over(self, event: ClientEvent) -> None:
        known = self._take_overs.get(event.client)
        if known is not None:
            self._take_overs[event.client] = (known[0] + 1, event.peer, known[1])
        elif len(self._take_overs) < CLIENTS_MAX:
            self._take_overs[event.client] = (1, event.peer, "")

    def _count_drop(self, client: str, cause: Cause, count: int) -> None:
        subject = (client, cause)
        if subject not in self._drops:
            if len(self._drops) >= CLIENTS_MAX:
                subject = ("", cause)
            if subject not in self._drops:
                self._drops[subject] = 0
                self._log_drop(client, cause, count, "messages are dropped")
                return
        self._drops[subject] += count

    def _log_drop(self, client: str, cause: Cause, count: int, text: str) -> None:
        level = Level.INFO if cause in USUAL_CAUSES else Level.WARNING
        self._operator_log.log(level, "dropped", text, client=client, cause=Cause(cause).name.lower(), count=count)


def _reason_name(reason: int) -> str:
    try:
        return ReasonCode(reason).name.lower()
    except ValueError:
        return f"0x{reason:02X}"
