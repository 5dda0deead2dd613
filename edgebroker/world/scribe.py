"""Writes into the operator's log what the front end noted and the ledger counted, ten times a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.notes import (
    CONNECTED,
    DISCONNECTED,
    NOT_PUBLISHED,
    NOT_SUBSCRIBED,
    REFUSED,
    TRACED,
    Note,
)
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import MINUTE, Instant
from edgebroker.records import Cause
from edgebroker.storage.journal.journal import Journal
from edgebroker.world.operatorlog import Level, OperatorLog

LEVELS: Final = {
    CONNECTED: Level.INFO,
    DISCONNECTED: Level.INFO,
    REFUSED: Level.WARNING,
    NOT_PUBLISHED: Level.WARNING,
    NOT_SUBSCRIBED: Level.WARNING,
    TRACED: Level.INFO,
}
EXPECTED: Final = frozenset({ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SESSION_TAKEN_OVER})
"""Failures by number that are everyday life."""
USUAL: Final = frozenset(
    {Cause.OFFLINE, Cause.CONNECTION_LOST, Cause.SESSION_ENDED, Cause.HANDED_OVER, Cause.SUPERSEDED}
)
"""Copies that the standard lets go with a client that goes, that another member of the group has instead, or that a
later message of the topic replaces, as the operator wants it. The others are lost to somebody who is here and wants.
"""
CLIENTS_MAX: Final = 1_000
"""Clients whose drops are summed up apart in one minute."""


class Scribe:
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

    def write(self) -> None:
        """Tell what happened since the last call."""
        notes, missed = self._frontend.notes.take()
        for note in notes:
            self._note(note)
        if missed:
            self._log.tell(Level.WARNING, "log", "more happened than could be noted", missed=missed)
        self.take_drops()
        if self._journal is not None:
            self._look_at(self._journal)
        if self._clock() >= self._minute_ends:
            self.close_minute()
        self._log.turn()

    def _look_at(self, journal: Journal) -> None:
        """Tell when the disk begins to fail, and when it takes something again."""
        if journal.is_refusing != self._is_refusing:
            self._is_refusing = journal.is_refusing
            if journal.is_refusing:
                text = "the disk takes nothing: what must be kept is refused"
                self._log.tell(Level.ERROR, "journal", text, trouble=journal.trouble)
            else:
                text = "the disk takes everything again"
                self._log.tell(Level.WARNING, "journal", text, failures=journal.failures)
        elif journal.failures > self._failures:
            trouble = journal.trouble or journal.warning
            text = "a write or a sync failed and is tried again elsewhere"
            self._log.tell(Level.WARNING, "journal", text, trouble=trouble, failures=journal.failures)
        elif journal.warning and journal.warning != self._warning:
            self._log.tell(Level.WARNING, "journal", journal.warning)
        self._failures, self._warning = journal.failures, journal.warning

    def take_drops(self) -> None:
        """Bring `dropped` up to date."""
        sessions = self._frontend.connecting.sessions
        for (client, cause), count in self._frontend.ledger.take_drops().items():
            if client in sessions:
                own = self.dropped.setdefault(client, {})
                own[cause] = own.get(cause, 0) + count
            self._drop(client, cause, count)

    def close_minute(self) -> None:
        """Tell what was dropped in the minute, apart from what was told already."""
        self._minute_ends = self._clock() + MINUTE
        sessions = self._frontend.connecting.sessions
        trouble = self._misplaced()
        if trouble not in ("", self._told_trouble) and not self._is_refusing:  # nobody has needed it since
            self._log.tell(Level.ERROR, "journal", "the next start would find nothing of what is kept", trouble=trouble)
        self._told_trouble = trouble
        for gone in [client for client in self.dropped if client not in sessions]:
            del self.dropped[gone]
        drops, self._drops = self._drops, {}
        for (client, cause), count in drops.items():
            if count:
                self._tell_drop(client, cause, count, "messages were dropped since")

    def _note(self, note: Note) -> None:
        if note.code == TRACED:
            trace_id, number, topic = note.text.split(" ", 2)
            self._log.tell(
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
        if note.code == DISCONNECTED and note.reason >= FAILURE and note.reason not in EXPECTED:
            level = Level.WARNING
        fields: dict[str, str | int] = {"client": note.client} if note.client else {}
        if note.peer:
            fields["peer"] = note.peer
        if note.reason:
            fields["reason"] = _name_of(note.reason)
        self._log.tell(level, note.code, note.text or note.code, "", **fields)

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
        level = Level.INFO if cause in USUAL else Level.WARNING
        self._log.tell(level, "dropped", text, client=client, cause=Cause(cause).name.lower(), count=count)


def _name_of(reason: int) -> str:
    try:
        return ReasonCode(reason).name.lower()
    except ValueError:
        return f"0x{reason:02X}"
