"""The access-control file: Mosquitto's acl_file, with `subscribe` and with conditions on content.

    topic read public/#                         before the first `user`: clients that proved to be nobody in particular
    user anna
    topic sensors/#                             reading and writing
    topic read sensors/# where temp > 30        only messages of which the condition is true
    topic deny sensors/secret/#
    pattern write devices/%c/#                  everybody: %c is the client identifier, %u the user

A file with a line that cannot be read is refused as a whole: what a lost line would have denied must not be allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntFlag
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import (
    EdgebrokerError,
    FilterInvalid,
    FilterTooComplex,
    LineError,
    TopicInvalid,
    clipped,
    numbered_lines,
)
from edgebroker.filters import Filter
from edgebroker.names import most_alike
from edgebroker.topics import TopicFilter

TOKEN_RULES_MAX: Final = 64  # a client brings them along; so many make a token of about 3,000 bytes
PROBLEMS_MAX: Final = 20  # reported at once; a file of another format has one in each line
WHERE: Final = " where "
ANONYMOUS_USER: Final = ""
"""The user of clients that proved to be nobody in particular."""


class AccessKind(IntFlag):
    """What a rule is about. Without any it denies them all."""

    DENY = 0
    READ = 1
    """To get messages of the topic."""
    WRITE = 2
    """To publish under the topic."""
    SUBSCRIBE = 4
    """To ask for a topic filter."""


WORDS: Final = {
    "read": AccessKind.READ,
    "write": AccessKind.WRITE,
    "readwrite": AccessKind.READ | AccessKind.WRITE,
    "subscribe": AccessKind.SUBSCRIBE,
    "deny": AccessKind.DENY,
}
_WORD_OF: Final = {access: word for word, access in WORDS.items()}


class AclInvalid(EdgebrokerError):
    """An access-control file that cannot be used; `problems` has what is wrong, the message one line for each."""

    def __init__(self, problems: Sequence[LineError]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class AclRule:
    """One line. `where` narrows it to publications of which the condition is true; `line` counts from 1."""

    access: AccessKind
    topic_filter: TopicFilter
    where: Filter | None = None
    line: int = 0

    def __str__(self) -> str:
        """As `read_rule` reads it."""
        condition = "" if self.where is None else WHERE + self.where.text
        return f"{_WORD_OF[self.access]} {self.topic_filter.text}{condition}"

    @property
    def names_client(self) -> bool:
        """Whether the client identifier is to be put in for `%c`."""
        return "%c" in self.topic_filter.text

    @property
    def names_user(self) -> bool:
        """Whether the user is to be put in for `%u`."""
        return "%u" in self.topic_filter.text


@dataclass(frozen=True, slots=True)
class Acl:
    """All rules: `users` by name, denials first, ANYBODY among them; `patterns` hold for everybody."""

    users: dict[str, tuple[AclRule, ...]]
    patterns: tuple[AclRule, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Acl:
        """Read the file. Raises AclInvalid."""
        users: dict[str, list[AclRule]] = {ANONYMOUS_USER: []}
        patterns: list[AclRule] = []
        problems: list[LineError] = []
        present = users[ANONYMOUS_USER]
        for number, line in numbered_lines(text):
            keyword, _, rest = line.replace("\t", " ").partition(" ")
            rest = rest.strip()
            try:
                match keyword:
                    case "user" if rest:
                        present = users.setdefault(rest, [])
                    case "topic" if rest:
                        present.append(_read_rule(rest, number))
                    case "pattern" if rest:
                        patterns.append(_read_rule(rest, number))
                    case "user" | "topic" | "pattern":
                        raise _AclLineInvalid(f"nothing follows {keyword!r}")
                    case _:
                        raise _AclLineInvalid(
                            f"{clipped(keyword, 30)} begins no rule", "they begin with user, topic or pattern"
                        )
            except _AclLineInvalid as wrong:
                problems.append(LineError(number, *wrong.args))
            if len(problems) >= PROBLEMS_MAX:
                break
        if problems:
            raise AclInvalid(problems)
        return cls({name: _denials_first(rules) for name, rules in users.items()}, _denials_first(patterns))

    def rules(self) -> Iterator[AclRule]:
        """Every rule, in no particular order."""
        for rules in self.users.values():
            yield from rules
        yield from self.patterns


class _AclLineInvalid(Exception):
    """(reason, how to mend it) of a line."""


def read_rule(text: str) -> AclRule:
    """One rule as it stands after `topic`. Raises AclInvalid."""
    try:
        return _read_rule(text.strip(), 1)
    except _AclLineInvalid as wrong:
        raise AclInvalid([LineError(1, *wrong.args)]) from None


def _read_rule(text: str, line: int) -> AclRule:
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    if rest and word in WORDS:
        access = WORDS[word]
    elif not rest or rest.startswith(WHERE.lstrip()):
        access, rest = AccessKind.READ | AccessKind.WRITE, text
    else:
        nearest = most_alike(word, WORDS)
        mend = f"did you mean '{nearest}'? A" if nearest else f"there are {', '.join(WORDS)}; a"
        raise _AclLineInvalid(f"{clipped(word, 30)} is no kind of access", f"{mend} topic with blanks needs one")
    topic, separator, condition = rest.partition(WHERE)
    where = None
    if separator:
        if access in (AccessKind.DENY, AccessKind.SUBSCRIBE):
            raise _AclLineInvalid(f"{word!r} takes no condition", "write what is allowed instead")
        where = _read_condition(condition)
    try:
        return AclRule(access, TopicFilter.parse(topic.strip()), where, line)
    except TopicInvalid as error:
        raise _AclLineInvalid(str(error)) from None


def _read_condition(text: str) -> Filter:
    try:
        return Filter.parse(text.strip())
    except (FilterInvalid, FilterTooComplex) as error:
        raise _AclLineInvalid(f"in the condition, {error}") from None


def _denials_first(rules: Sequence[AclRule]) -> tuple[AclRule, ...]:
    """As Mosquitto asks them. The sort keeps the order of the file otherwise."""
    return tuple(sorted(rules, key=lambda rule: rule.access != AccessKind.DENY))
