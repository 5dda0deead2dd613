"""The operator's log: notices with a level, a code and fields, as text or JSON lines on standard error.

    log = OperatorLog(NonblockingWriter().write, Level.WARNING)
    log.log(Level.WARNING, "dropped", "messages are given up", client="slow", cause="queue_full", count=3)

    2026-02-03T04:05:06.789Z warning dropped: messages are given up client=slow cause=queue_full count=3

The delivery log has a row for every message; the operator's log has not. A notice that repeats is written a few times
a minute for each code and client, and then counted, so a broken device costs lines by the minute and not by the
message. No call waits, and no line contains a payload or a password. `LogPump` writes the events of the front end and
the drops of the ledger into the log, ten times a second.
"""

from __future__ import annotations

import json
import re
import time
import traceback
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from edgebridge.frontend.event_buffer import (
    CONNECTED,
    DISCONNECTED,
    NOT_PUBLISHED,
    NOT_SUBSCRIBED,
    REFUSED,
    TRACED,
    ClientEvent,
)
from edgebridge.frontend.frontend import Frontend
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.instants import MINUTE, Instant
from edgebroker.log_schema import Cause
from edgebroker.storage.journal.journal import Journal

REPEATS: Final = 5
"""Lines of one code and client in one window: enough to see what happens, and that it goes on."""
WINDOW_S: Final = 60.0
SUBJECTS_MAX: Final = 1_000
"""Codes and clients told apart in one window, about 200 KiB; the lines of more share one limit for each code."""
LINES_MAX: Final = 1_000
"""Lines of all in one window: 17 a second, 5 MiB an hour at most on a card that wears out. More are counted."""
FIELD_CHARS_MAX: Final = 200
"""Of a value that a client chose, such as its identifier (1 KiB)."""

Value = str | int | float | bool
_PLAIN = re.compile(r"[^\s\"=\\]+")


class Level(IntEnum):
    """How bad it is, with the numbers of syslog. A log tells its own level and what is worse (smaller)."""

    ERROR = 3
    """Something does not work."""
    WARNING = 4
    """Something is refused, lost or wrong; the gateway goes on."""
    INFO = 6
    """Clients come and go; parts start and stop."""
    DEBUG = 7
    """What only a developer asks for."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to know. `code` is one word for programs and never changes; `text` is for people, and may."""

    level: Level
    code: str
    text: str
    fields: Mapping[str, Value]


Form = Callable[[Notice, float], str]
"""A notice and the wall clock (seconds since 1970) -> one line."""


def as_text(notice: Notice, unix_s: float) -> str:
    """For people: time, level, code, text, then the fields as `name=value`."""
    return f"{timestamp(unix_s)} {as_journal(notice, unix_s, '')}"


def as_journal(notice: Notice, unix_s: float, prefix: str = "<{}>") -> str:
    """For journald, which has a clock of its own and reads the level from a prefix (sd-daemon(3))."""
    fields = "".join(f" {name}={_shown(value)}" for name, value in notice.fields.items())
    line = f"{notice.level.name.lower()} {notice.code}: {_one_line(notice.text)}{fields}"
    return prefix.format(int(notice.level)) + line


def as_json(notice: Notice, unix_s: float) -> str:
    """For programs: one object."""
    fields = {name: _cut(value) for name, value in notice.fields.items()}
    said = {"time": timestamp(unix_s), "level": notice.level.name.lower(), "code": notice.code, "text": notice.text}
    return json.dumps({**fields, **said})


PARTS: Final = {"delivery log: ": "delivery-log", "the journal ": "journal"}
"""How lines of parts that know only text begin, and their codes."""


def timestamp(unix_s: float) -> str:
    """UTC with milliseconds, as in RFC 3339."""
    whole = int(unix_s)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((unix_s - whole) * 1_000):03}Z"


class OperatorLog:
    """Notices in, lines out: filtered by level, limited by code and client."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        level: Level = Level.WARNING,
        form: Form = as_text,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.level = level
        self.counts: dict[Level, int] = dict.fromkeys(Level, 0)
        """Notices so far, told or not."""
        self._write = write
        self._form = form
        self._wall_clock = wall_clock
        self._clock = clock
        self._window_ends = 0.0
        self._told: dict[tuple[str, Value], int] = {}
        self._suppressed: dict[tuple[str, Value], tuple[Level, int]] = {}
        self._lines = 0
        self._unsaid = 0

    def log(self, level: Level, code: str, text: str, about: str = "", **fields: Value) -> None:
        """One thing to know. *about*, else the field `client` if there is one, has a limit of its own."""
        self.counts[level] += 1
        if level > self.level:
            return
        if self._clock() >= self._window_ends:
            self.end_window()
        subject = (code, about or fields.get("client", ""))
        told = self._told.get(subject, 0)
        if not told and len(self._told) >= SUBJECTS_MAX:
            subject = (code, "")
            told = self._told.get(subject, 0)
        self._told[subject] = told + 1
        if told >= REPEATS:
            worst, count = self._suppressed.get(subject, (level, 0))
            self._suppressed[subject] = (min(worst, level), count + 1)
        elif self._lines >= LINES_MAX:
            self._unsaid += 1
        else:
            self._lines += 1
            self._say(Notice(level, code, text, fields))

    def log_line(self, text: str) -> None:
        """A warning of a part that knows only text, of which what stands before a colon may be anything: a file of the
        user's, a client. The code is that of the part, or `gateway`.
        """
        for beginning, code in PARTS.items():
            if text.startswith(beginning):
                self.log(Level.WARNING, code, text.removeprefix(beginning) if beginning.endswith(": ") else text)
                return
        self.log(Level.WARNING, "gateway", text, about=text)

    def log_unexpected(self, context: Mapping[str, Any]) -> None:
        """What a loop hands to its exception handler: an error that nobody caught. Told with the place it came from."""
        error = context.get("exception")
        fields: dict[str, Value] = {}
        if isinstance(error, BaseException):
            fields["error"] = f"{type(error).__name__}: {error}"
            frames = traceback.extract_tb(error.__traceback__)
            fields["at"] = " < ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in frames[:-6:-1])
        self.log(Level.ERROR, "unexpected", str(context.get("message", "an error nobody expected")), "", **fields)

    def end_window(self) -> None:
        """End the window: say what was not said in it. To be called now and then, and at the end."""
        if self._clock() < self._window_ends:
            return
        self.flush()
        self._window_ends = self._clock() + WINDOW_S

    def flush(self) -> None:
        """Say what was suppressed, at once."""
        suppressed, self._suppressed = self._suppressed, {}
        unsaid, self._unsaid = self._unsaid, 0
        self._told.clear()
        self._lines = 0
        for (code, client), (level, count) in suppressed.items():
            fields: dict[str, Value] = {"client": client} if client else {}
            self._say(Notice(level, code, f"{count} more suppressed", {**fields, "suppressed": count}))
        if unsaid:
            self._say(Notice(Level.WARNING, "log", f"{unsaid} lines were too many", {"suppressed": unsaid}))

    def _say(self, notice: Notice) -> None:
        self._write(self._form(notice, self._wall_clock()).encode("utf-8", "replace") + b"\n")


def _cut(value: Value) -> Value:
    return value[:FIELD_CHARS_MAX] if isinstance(value, str) else value


def _shown(value: Value) -> str:
    """A value so that it ends where it ends, whatever a client put into it."""
    value = _cut(value)
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _PLAIN.fullmatch(value) and value.isprintable() else json.dumps(value)


def _one_line(text: str) -> str:
    """Text that can do nothing to a terminal or to the next line."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


LEVELS: Final = {
    CONNECTED: Level.INFO,
    DISCONNECTED: Level.INFO,
    REFUSED: Level.WARNING,
    NOT_PUBLISHED: Level.WARNING,
    NOT_SUBSCRIBED: Level.WARNING,
    TRACED: Level.INFO,
}
EXPECTED_REASONS: Final = frozenset({ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SESSION_TAKEN_OVER})
"""Failures by number that are everyday life."""
USUAL_CAUSES: Final = frozenset(
    {Cause.OFFLINE, Cause.CONNECTION_LOST, Cause.SESSION_ENDED, Cause.HANDED_OVER, Cause.SUPERSEDED}
)
"""Copies that the standard lets go with a client that goes, that another member of the group has instead, or that a
later message of the topic replaces, as the operator wants it. The others are lost to somebody who is here and wants.
"""
CLIENTS_MAX: Final = 1_000
"""Clients whose drops are summed up apart in one minute."""


class LogPump:
    """Call `write` at each beat. The first drop of a client and cause in a minute is told at once, all at its end."""

    def __init__(
        self,
        frontend: Frontend,
        log: OperatorLog,
        clock: Callable[[], Instant],
        journal: Journal | None = None,
        misplaced: Callable[[], str] = lambda: "",
    ) -> None:
        """*misplaced* says where the journal has gone, "" if it is in its place; it is asked once a minute."""
        self._frontend = frontend
        self._log = log
        self._clock = clock
        self._journal = journal
        self._misplaced = misplaced
        self._told_trouble = ""
        self._failures = 0
        self._is_refusing = False
        self._warning = ""
        self._minute_ends = clock() + MINUTE
        self._drops: dict[tuple[str, Cause], int] = {}
        self.dropped: dict[str, dict[Cause, int]] = {}
        """Copies given up so far, by client and cause; of clients that have a session."""

    def pump(self) -> None:
        """Tell what happened since the last call."""
        notes, missed = self._frontend.events.take()
        for note in notes:
            self._note(note)
        if missed:
            self._log.log(Level.WARNING, "log", "more happened than could be noted", missed=missed)
        self.collect_drops()
        if self._journal is not None:
            self._look_at(self._journal)
        if self._clock() >= self._minute_ends:
            self.close_minute()
        self._log.end_window()

    def _look_at(self, journal: Journal) -> None:
        """Tell when the disk begins to fail, and when it takes something again."""
        if journal.is_refusing != self._is_refusing:
            self._is_refusing = journal.is_refusing
            if journal.is_refusing:
                text = "the disk takes nothing: what must be kept is refused"
                self._log.log(Level.ERROR, "journal", text, trouble=journal.refusal_reason)
            else:
                text = "the disk takes everything again"
                self._log.log(Level.WARNING, "journal", text, failures=journal.failures)
        elif journal.failures > self._failures:
            trouble = journal.refusal_reason or journal.warning
            text = "a write or a sync failed and is tried again elsewhere"
            self._log.log(Level.WARNING, "journal", text, trouble=trouble, failures=journal.failures)
        elif journal.warning and journal.warning != self._warning:
            self._log.log(Level.WARNING, "journal", journal.warning)
        self._failures, self._warning = journal.failures, journal.warning

    def collect_drops(self) -> None:
        """Bring `dropped` up to date."""
        sessions = self._frontend.connect_handler.sessions
        for (client, cause), count in self._frontend.ledger.take_drops().items():
            if client in sessions:
                own = self.dropped.setdefault(client, {})
                own[cause] = own.get(cause, 0) + count
            self._drop(client, cause, count)

    def close_minute(self) -> None:
        """Tell what was dropped in the minute, apart from what was told already."""
        self._minute_ends = self._clock() + MINUTE
        sessions = self._frontend.connect_handler.sessions
        trouble = self._misplaced()
        if trouble not in ("", self._told_trouble) and not self._is_refusing:  # nobody has needed it since
            self._log.log(Level.ERROR, "journal", "the next start would find nothing of what is kept", trouble=trouble)
        self._told_trouble = trouble
        for gone in [client for client in self.dropped if client not in sessions]:
            del self.dropped[gone]
        drops, self._drops = self._drops, {}
        for (client, cause), count in drops.items():
            if count:
                self._tell_drop(client, cause, count, "messages were dropped since")

    def _note(self, note: ClientEvent) -> None:
        if note.code == TRACED:
            trace_id, number, topic = note.text.split(" ", 2)
            self._log.log(
                LEVELS[TRACED],
                TRACED,
                "a sampled message was published",
                about=trace_id,
                trace_id=trace_id,
                message=int(number),
                topic=topic,
                publisher=note.client,
            )
            return
        level = LEVELS[note.code]
        if note.code == DISCONNECTED and note.reason >= FAILURE and note.reason not in EXPECTED_REASONS:
            level = Level.WARNING
        fields: dict[str, str | int] = {"client": note.client} if note.client else {}
        if note.peer:
            fields["peer"] = note.peer
        if note.reason:
            fields["reason"] = _name_of(note.reason)
        self._log.log(level, note.code, note.text or note.code, "", **fields)

    def _drop(self, client: str, cause: Cause, count: int) -> None:
        subject = (client, cause)
        if subject not in self._drops:
            if len(self._drops) >= CLIENTS_MAX:
                subject = ("", cause)
            if subject not in self._drops:
                self._drops[subject] = 0
                self._tell_drop(client, cause, count, "messages are dropped")
                return
        self._drops[subject] += count

    def _tell_drop(self, client: str, cause: Cause, count: int, text: str) -> None:
        level = Level.INFO if cause in USUAL_CAUSES else Level.WARNING
        self._log.log(level, "dropped", text, client=client, cause=Cause(cause).name.lower(), count=count)


def _name_of(reason: int) -> str:
    try:
        return ReasonCode(reason).name.lower()
    except ValueError:
        return f"0x{reason:02X}"
