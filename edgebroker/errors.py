"""The errors a user may meet. Each says what is wrong, where, and how to mend it; the edge decides who may hear it."""

from __future__ import annotations


class EdgebrokerError(Exception):
    """Base of every error this product raises on purpose."""


class TopicInvalid(EdgebrokerError):
    """A text is no topic name or no topic filter (MQTT 5.0 section 4.7)."""


class FilterInvalid(EdgebrokerError):
    """A content filter cannot be understood. `column` counts characters from 1."""

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(f"column {column}: {reason}")
        self.reason = reason
        self.column = column


class FilterTooComplex(EdgebrokerError):
    """A content filter is understood but beyond a bound of `edgebroker.limits`."""


class SettingsInvalid(EdgebrokerError):
    """A settings file cannot be used; the message names file, line and key."""


class LogDamaged(EdgebrokerError):
    """A delivery log is damaged; the message names the block and the offset."""


class CannotListen(EdgebrokerError):
    """The machine does not let us listen there; the message names the address and why."""


class JournalDamaged(EdgebrokerError):
    """A journal cannot be used as it is; the message names the file and how to mend it."""


class StoreUnusable(EdgebrokerError):
    """The folder for what must outlive a run cannot be used; the message says why and what to do."""


class JournalInUse(EdgebrokerError):
    """Another process works with the journal; the message names it."""


class HeaderInvalid(EdgebrokerError):
    """The header of an event from another gateway cannot be read or written; the message says why."""
