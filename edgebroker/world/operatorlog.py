"""The operator's log: what somebody who looks after the gateway should know, as text or JSON lines on standard error.

    log = OperatorLog(Outlet().write, Level.WARNING)
    log.tell(Level.WARNING, "dropped", "messages are given up", client="slow", cause="queue_full", count=3)

    2026-02-03T04:05:06.789Z warning dropped: messages are given up client=slow cause=queue_full count=3

It is not the delivery log, which has every message. What repeats is told a few times a minute for each code and client,
and then counted; so a broken device costs lines by the minute and not by the message. Nothing here waits, and nothing
has a payload or a password in it.
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

from edgebroker.dataclasses import dataclass

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

    def tell(self, level: Level, code: str, text: str, about: str = "", **fields: Value) -> None:
        """One thing to know. *about*, else the field `client` if there is one, has a limit of its own."""
        self.counts[level] += 1
        if level > self.level:
            return
        if self._clock() >= self._window_ends:
            self.turn()
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

    def line(self, text: str) -> None:
        """A warning of a part that knows only text, of which what stands before a colon may be anything: a file of the
        user's, a client. The code is that of the part, or `gateway`.
        """
        for beginning, code in PARTS.items():
            if text.startswith(beginning):
                self.tell(Level.WARNING, code, text.removeprefix(beginning) if beginning.endswith(": ") else text)
                return
        self.tell(Level.WARNING, "gateway", text, about=text)

    def unexpected(self, context: Mapping[str, Any]) -> None:
        """What a loop hands to its exception handler: an error that nobody caught. Told with the place it came from."""
        error = context.get("exception")
        fields: dict[str, Value] = {}
        if isinstance(error, BaseException):
            fields["error"] = f"{type(error).__name__}: {error}"
            frames = traceback.extract_tb(error.__traceback__)
            fields["at"] = " < ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in frames[:-6:-1])
        self.tell(Level.ERROR, "unexpected", str(context.get("message", "an error nobody expected")), "", **fields)

    def turn(self) -> None:
        """End the window: say what was not said in it. To be called now and then, and at the end."""
        if self._clock() < self._window_ends:
            return
        self.finish()
        self._window_ends = self._clock() + WINDOW_S

    def finish(self) -> None:
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
