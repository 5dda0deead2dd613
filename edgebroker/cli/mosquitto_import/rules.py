"""The rules in the tables of options: each translates one line into settings and returns its verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import ConfContext, ImportDraft, ValueUnusable, within
from edgebroker.runtime.settings import KEYS

Rule = Callable[[ImportDraft, ConfContext, ConfLine], LineVerdict | None]
"""Applies a line to the draft and returns the verdict, or None if it is known only when all lines have been read.
Raises ValueUnusable."""

DAY_S: Final = 86_400
DIGITS_MAX: Final = 9


def needless(why: str) -> Rule:
    """Return a rule for an option that is not needed here; *why* is the note."""
    return lambda draft, context, line: line.needless(why)


def missing(instead: str) -> Rule:
    """Return a rule for an option without equivalent; *instead* says what to do."""
    return lambda draft, context, line: line.missing(instead)


def guard(instead: str) -> Rule:
    """Return a rule as `missing` does, for an option that restricts access."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
        draft.guards.append(line)
        return line.missing(instead)

    return rule


def switch(on: Rule, off: Rule) -> Rule:
    """Return a rule that applies *on* to true and *off* to false."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict | None:
        return (on if truth(line) else off)(draft, context, line)

    return rule


def bound(section: str, key: str, unlimited: int | None = None, note: str = "", least: int = 0) -> Rule:
    """Return a rule for a number that has a key here; 0 and -1, no limit in Mosquitto, become *unlimited*, if given."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
        given = max(whole(line, least), 0)
        wanted = given if given or unlimited is None else unlimited
        written = within(section, key, wanted)
        name = draft.put(section, key, written, line)
        if not given and unlimited is not None:
            return line.differs(f"nothing is without limit here: {written:,}", name)
        if written != given:
            return line.differs(f"{KEYS[section][key].metadata['kind']} here: {written:,}", name)
        return LineVerdict(line, VerdictKind.DIFFERS if note else VerdictKind.TRANSLATED, note, (name,))

    return rule


def whole(line: ConfLine, least: int = 0) -> int:
    """Return the number that is the value of a line. Raises ValueUnusable."""
    try:
        number = int(line.value)
    except ValueError:
        raise ValueUnusable(f"{line.name} takes a number") from None
    if number < least:
        raise ValueUnusable(f"{line.name} takes a number from {least} on")
    return number


def is_number(word: str) -> bool:
    """Return whether *word* has only ASCII digits, DIGITS_MAX at most."""
    return word.isascii() and word.isdigit() and len(word) <= DIGITS_MAX


def truth(line: ConfLine) -> bool:
    """Return the boolean that is the value of a line. Raises ValueUnusable."""
    if line.value.lower() in ("true", "1"):
        return True
    if line.value.lower() in ("false", "0"):
        return False
    raise ValueUnusable(f"{line.name} takes true or false")


def text(line: ConfLine) -> str:
    """Return the value of a line, which must not be empty. Raises ValueUnusable."""
    if not line.value:
        raise ValueUnusable(f"{line.name} takes a value")
    return line.value


def one_of(line: ConfLine, *words: str) -> str:
    """Return the value of a line, which must be one of *words*. Raises ValueUnusable."""
    if line.value not in words:
        raise ValueUnusable(f"{line.name} takes one of {', '.join(words)}")
    return line.value
