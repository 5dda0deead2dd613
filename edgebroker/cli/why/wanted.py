"""Which message is asked about: an event, a trace, a message of one run, or the last of a client or topic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import click

Event = tuple[int, int]
"""Publisher and sequence of the header: the same at every gateway."""
FORMS: Final = (
    "an event (PUBLISHER-SEQUENCE), a message of a run (BOOT/NUMBER), a trace id of 32 hexadecimal digits,"
    " or a traceparent"
)
_EVENT: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
_NUMBER: Final = re.compile(r"([0-9a-zA-Z_.-]+)/([0-9]{1,19})")
_TRACE: Final = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-.*)?")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is said of the message. Everything that is said must hold."""

    event: Event | None = None
    trace_id: str = ""
    boot: str = ""
    number: int = 0
    client: str = ""
    topic: str = ""

    @classmethod
    def parse(cls, text: str | None, client: str | None, topic: str | None) -> Wanted:
        """Raises click.BadParameter."""
        of = cls(client=client or "", topic=topic or "")
        if text is None:
            if not client and not topic:
                raise click.UsageError(f"which message? Give {FORMS}; or --client or --topic")
            return of
        if found := _EVENT.fullmatch(text):
            return replace(of, event=(int(found[1]), int(found[2])))
        if found := _TRACE.fullmatch(text.lower()):
            return replace(of, trace_id=found[1])
        if found := _NUMBER.fullmatch(text):
            return replace(of, boot=found[1], number=int(found[2]))
        raise click.BadParameter(f"{text!r} is neither {FORMS.replace(', or', ', nor')}", param_hint="MESSAGE")

    def may_be_in(self, boot: str, columns: Mapping[str, Sequence[Any]]) -> bool:
        """Whether a block of run *boot* with these *columns* may have it: most have not, and need no closer look."""
        return (
            (self.event is None or self.event[1] in columns["event_sequence"])
            and (not self.trace_id or self.trace_id in columns["trace_id"])
            and (not self.boot or (self.boot == boot and self.number in columns["message"]))
            and (not self.client or self.client in columns["publisher"])
            and (not self.topic or self.topic in columns["topic"])
        )

    def fits(self, boot: str, row: dict[str, Any]) -> bool:
        """Whether *row* of run *boot*, one of a message that was accepted, is asked about."""
        return (
            (self.event is None or self.event == (row["event_publisher"], row["event_sequence"]))
            and self.trace_id in ("", row["trace_id"])
            and (not self.boot or (self.boot, self.number) == (boot, row["message"]))
            and self.client in ("", row["publisher"])
            and self.topic in ("", row["topic"])
        )
