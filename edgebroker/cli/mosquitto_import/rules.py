"""The kinds of rule that a table of options is made of: each turns one line into settings and a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import ConfContext, ImportDraft, ValueUnusable, within
from edgebroker.runtime.settings import KEYS

Rule = Callable[[ImportDraft, ConfContext, ConfLine], LineVerdict | None]
"""Reads a line in its context, changes the draft, and says what became of the line; None if that is seen at the end.
Raises ValueUnusable."""

DAY_S: Final = 86_400
DIGITS_MAX: Final = 9


def needless(why: str) -> Rule:
    """Nothing to do: it is so already, or the question does not arise."""
    return lambda draft, context, line: LineVerdict(line, VerdictKind.NEEDLESS, why)


def missing(instead: str) -> Rule:
    """There is no such thing here; *instead* says what to do."""
    return lambda draft, context, line: LineVerdict(line, VerdictKind.MISSING, instead)


def guard(instead: str) -> Rule:
    """As `missing`, for what kept somebody out."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
        draft.guards.append(line)
        return LineVerdict(line, VerdictKind.MISSING, instead)

    return rule


def switch(on: Rule, off: Rule) -> Rule:
    """One rule for true, another for false."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict | None:
        return (on if truth(line) else off)(draft, context, line)

    return rule


def bound(section: str, key: str, unlimited: int | None = None, note: str = "", least: int = 0) -> Rule:
    """A number that is a key of ours. Zero, and *least* if it is -1, means without limit in Mosquitto: then the largest
    we take is written.
    """

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
        given = max(whole(line, least), 0)
        wanted = given if given or unlimited is None else unlimited
        written = within(section, key, wanted)
        name = draft.put(section, key, written, line)
        if not given and unlimited is not None:
            return LineVerdict(line, VerdictKind.DIFFERS, f"nothing is without limit here: {written:,}", (name,))
        if written != given:
            return LineVerdict(
                line, VerdictKind.DIFFERS, f"{KEYS[section][key].metadata['kind']} here: {written:,}", (name,)
            )
        return LineVerdict(line, VerdictKind.DIFFERS if note else VerdictKind.TRANSLATED, note, (name,))

    return rule


def whole(line: ConfLine, least: int = 0) -> int:
    """The number of a line. Raises ValueUnusable."""
    try:
        number = int(line.value)
    except ValueError:
        raise ValueUnusable(f"{line.name} takes a number") from None
    if number < least:
        raise ValueUnusable(f"{line.name} takes a number from {least} on")
    return number


def is_number(word: str) -> bool:
    """Whether it is written in the digits of ASCII alone, as few as make sense."""
    return word.isascii() and word.isdigit() and len(word) <= DIGITS_MAX


def truth(line: ConfLine) -> bool:
    """Whether it says true. Raises ValueUnusable."""
    if line.value.lower() in ("true", "1"):
        return True
    if line.value.lower() in ("false", "0"):
        return False
    raise ValueUnusable(f"{line.name} takes true or false")


def text(line: ConfLine) -> str:
    """The value, which must be there. Raises ValueUnusable."""
    if not line.value:
        raise ValueUnusable(f"{line.name} takes a value")
    return line.value


def one_of(line: ConfLine, *words: str) -> str:
    """The value, one of *words*. Raises ValueUnusable."""
    if line.value not in words:
        raise ValueUnusable(f"{line.name} takes one of {', '.join(words)}")
    return line.value
