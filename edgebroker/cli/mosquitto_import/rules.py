"""The rules in the tables of options: each translates one line into settings and returns its verdict."""

from __future__ import annotations

import re
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
NUMBER_DIGITS_MAX: Final = 18
"""As many as `memory_limit` may have."""


def needless(why: str) -> Rule:
    """Return a rule for an option that is not needed here; *why* is the note."""
    return lambda draft, context, line: line.needless(why)


def missing(instead: str) -> Rule:
    """Return a rule for an option without equivalent; *instead* says what to do."""
    return lambda draft, context, line: line.missing(instead)


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
    """Return the number that is the first word of a line. Raises ValueUnusable."""
    if not re.fullmatch(rf"-?[0-9]{{1,{NUMBER_DIGITS_MAX}}}", line.word, re.ASCII):
        raise ValueUnusable(f"{line.name} takes a number")
    number = int(line.word)
    if number < least:
        raise ValueUnusable(f"{line.name} takes a number from {least} on")
    return number


def is_number(word: str) -> bool:
    """Return whether *word* has only ASCII digits, DIGITS_MAX at most."""
    return word.isascii() and word.isdigit() and len(word) <= DIGITS_MAX


def truth(line: ConfLine) -> bool:
    """Return the boolean that is the first word of a line. Raises ValueUnusable."""
    if line.word.lower() in ("true", "1"):
        return True
    if line.word.lower() in ("false", "0"):
        return False
    raise ValueUnusable(f"{line.name} takes true or false")


def text(line: ConfLine) -> str:
    """Return the whole value of a line, which must not be empty. Raises ValueUnusable."""
    if not line.value:
        raise ValueUnusable(f"{line.name} takes a value")
    return line.value


def one_of(line: ConfLine, *words: str) -> str:
    """Return the first word of a line, which must be one of *words*. Raises ValueUnusable."""
    if line.word not in words:
        raise ValueUnusable(f"{line.name} takes one of {', '.join(words)}")
    return line.word


def first_word(line: ConfLine) -> str:
    """Return the first word of a line's value, which must not be empty. Raises ValueUnusable."""
    if not line.word:
        raise ValueUnusable(f"{line.name} takes a value")
    return line.word
