"""Which messages a bridge carries, and what they are called on either side.

A rule has a pattern, and a prefix for each side: what is `LOCAL-PREFIX + topic` here is `REMOTE-PREFIX + topic` there,
for all topics that match the pattern. As one line of text it has the words of mosquitto.conf:

    sensors/# out 1                        what is published here under sensors/ goes there
    alarm/+ both 2 site/ berlin/           site/alarm/fire here is berlin/alarm/fire there
    "" in 1 clock world/time/utc           one topic, under another name
    sensors/# out 1 retain=false           nothing is to be retained there
    sensors/# out 1 where temp > 30        only messages of which the condition is true
    sensors/# out 1 select=temp,pos.lat    of the payload these fields alone (`edgebridge.upstream.shape` has the rest)
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import chain, islice
from typing import Final
from zlib import crc32

from edgebridge.upstream.effort import CHARS_PER_STEP, RULE, Effort
from edgebridge.upstream.ruleinvalid import RuleInvalid
from edgebridge.upstream.shape import BATCH_TOPIC, Shape, read_words
from edgebroker.dataclasses import dataclass
from edgebroker.errors import TopicInvalid
from edgebroker.limits import KIB
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter, parse_topic_name

WHERE: Final = "where"
NOT_RETAINED: Final = "retain=false"
TEXT_CHARS_MAX: Final = 8 * KIB
"""Of a rule in one line: a condition has 2 KiB at most, and 128 fields of 40 characters have 5."""
WORDS_MAX: Final = 16
"""Five, and each option once."""
_QUOTED_OR_WHERE: Final = re.compile(rf'"[^"]*(?:"|\Z)|(?:^|(?<=\s)){WHERE}\s+')
_WORD: Final = re.compile(r'(?:"[^"]*"|[^\s"]++|"(?=[^"]*$))+')
_OPTION: Final = re.compile(r"[a-z_]+=")
IDENTIFIER_MAX: Final = 268_435_455  # a variable byte integer (MQTT 5.0 section 3.8.2.1.2)


class Direction(StrEnum):
    """Seen from here."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


_DIRECTIONS: Final = {str(one): one for one in Direction}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `where` is a content filter as written; empty: every message."""

    pattern: str
    direction: Direction = Direction.OUT
    qos: int = 1
    local_prefix: str = ""
    remote_prefix: str = ""
    where: str = ""
    retain: bool = True
    """Whether what is to be retained on one side is to be retained on the other."""
    shape: Shape | None = None
    """What becomes of payloads; None: they stay what they are."""

    def check(self, effort: Effort | None = None) -> None:
        """Raise RuleInvalid for what cannot be, or takes more than is left of *effort*."""
        effort = effort or Effort()
        effort.spend(RULE, self.pattern)
        for prefix in (self.local_prefix, self.remote_prefix):
            if SINGLE_LEVEL in prefix or MULTI_LEVEL in prefix:
                raise RuleInvalid(f"the prefix {prefix!r} has a wildcard", "put wildcards into the pattern")
        if '"' in self.pattern + self.local_prefix + self.remote_prefix:
            raise RuleInvalid("a topic with a double quote in it", "name a filter that covers it, with + or #")
        if not self.pattern and not (self.local_prefix and self.remote_prefix):
            raise RuleInvalid("an empty pattern without prefixes", "name the topic, or both prefixes")
        try:
            local = remote = TopicFilter.parse(self.local_filter)
            if self.local_prefix != self.remote_prefix:
                remote = TopicFilter.parse(self.remote_filter)
        except TopicInvalid as error:
            raise RuleInvalid(str(error), "write a topic filter like sensors/#") from None
        for found, whose in ((local, "here"), (remote, "there")):
            if found.levels[0] == "$share":
                raise RuleInvalid("a shared subscription", "a bridge wants every message, so leave $share/ away")
            if found.levels[0] == "$filter":
                raise RuleInvalid(f"a filter in the topic {whose}", "write the condition behind `where`")
        if not 0 <= self.qos <= 2:
            raise RuleInvalid(f"QoS {self.qos}", "write 0, 1 or 2")
        if self.where:
            effort.condition(self.where, self.pattern)
        if self.shape is not None:
            effort.fields([*self.shape.select, *chain.from_iterable(self.shape.rename)], self.pattern)
            self._check_shape(self.shape)

    def __str__(self) -> str:
        """As `parse_rule` reads it."""
        words = [_written(self.pattern), self.direction, str(self.qos)]
        if self.local_prefix or self.remote_prefix:
            words += [_written(self.local_prefix), _written(self.remote_prefix)]
        words += [] if self.retain else [NOT_RETAINED]
        words += [] if self.shape is None else self.shape.words()
        return " ".join(words) + (f" {WHERE} {self.where}" if self.where else "")

    @property
    def is_out(self) -> bool:
        """Whether it carries what is published here."""
        return self.direction is not Direction.IN

    @property
    def is_in(self) -> bool:
        """Whether it carries what is published there."""
        return self.direction is not Direction.OUT

    @property
    def local_filter(self) -> str:
        """The topics it is about, as they are called here."""
        return self.local_prefix + self.pattern

    @property
    def remote_filter(self) -> str:
        """The topics it is about, as they are called there."""
        return self.remote_prefix + self.pattern

    def _check_shape(self, shape: Shape) -> None:
        if self.direction is Direction.BOTH:
            mend = "write one rule with `out` and one with `in`, each with what it changes"
            raise RuleInvalid("payloads that change both ways", mend)
        shape.check()
        if shape.batch_messages or shape.unbatch:
            what = "`unbatch`" if shape.unbatch else "`batch_messages`"
            if shape.batch_messages and not self.is_out:
                raise RuleInvalid(f"{what} of what comes in", "batches go out; `unbatch` takes those of others apart")
            if shape.unbatch and not self.is_in:
                raise RuleInvalid(f"{what} of what goes out", "it is for rules with the direction `in`")
            if self.qos == 2:
                why = "after a crash, batches are others than before, so a message may come twice"
                raise RuleInvalid(f"{what} at QoS 2", f"write QoS 1: {why}")
            if shape.unbatch and self.where:
                raise RuleInvalid(f"{what} with a condition", "leave it out: it would be asked of the batch as a whole")
            try:
                parse_topic_name(self.batch_topic)
            except TopicInvalid as error:
                raise RuleInvalid(f"`batch_topic`: {error}", 'name one topic, as batch_topic = "batch"') from None

    @property
    def batch_topic(self) -> str:
        """What batches are called there."""
        return self.remote_prefix + ((self.shape.batch_topic if self.shape is not None else "") or BATCH_TOPIC)

    @property
    def is_unbatching(self) -> bool:
        """Whether what it brings in comes in batches."""
        return self.shape is not None and self.shape.unbatch

    @property
    def heard_filter(self) -> str:
        """The topics that the remote is asked for."""
        return self.batch_topic if self.is_unbatching else self.remote_filter

    def outward(self, topic: str) -> str:
        """What *topic* of ours is called there."""
        return self.remote_prefix + topic[len(self.local_prefix) :]

    def inward(self, topic: str) -> str:
        """What *topic* of theirs is called here."""
        return self.local_prefix + topic[len(self.remote_prefix) :]


def parse_rule(text: str, effort: Effort | None = None) -> Rule:
    """Read one line of text. Raises RuleInvalid, also if it takes more than is left of *effort*."""
    effort = effort or Effort()
    if len(text) > TEXT_CHARS_MAX:
        why = f"a rule of {len(text):,} characters, which begins with {text[:40]!r}"
        raise RuleInvalid(why, f"write at most {TEXT_CHARS_MAX:,}")
    effort.spend(len(text) // CHARS_PER_STEP, text)
    before, where = _parted(text)
    found = [word[0] for word in islice(_WORD.finditer(before), WORDS_MAX)]
    options = [word for word in found[1:] if "=" in word and _OPTION.match(word)]
    effort.spend(len(options), text)
    words = [word.strip('"') for word in found if word not in options]
    if not 1 <= len(words) <= 5:
        mend = "write PATTERN [out|in|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]] [FIELD=VALUE ...] [where CONDITION]"
        many = f"{WORDS_MAX} or more" if len(found) == WORDS_MAX else len(words)
        raise RuleInvalid(f"{text[:80]!r} has {many} words", mend)
    pattern, direction, qos, local_prefix, remote_prefix = [*words, *("out", "1", "", "")[len(words) - 1 :]]
    if direction not in _DIRECTIONS:
        raise RuleInvalid(f"{direction!r} is no direction", 'write "out", "in" or "both"')
    if qos not in ("0", "1", "2"):
        raise RuleInvalid(f"{qos!r} is no QoS", "write 0, 1 or 2")
    said = read_words(options)
    is_kept = said.pop("retain", True)
    shape = Shape(**said) if any(said.values()) else None
    rule = Rule(pattern, _DIRECTIONS[direction], int(qos), local_prefix, remote_prefix, where, is_kept, shape)
    rule.check(effort)
    return rule


def _parted(text: str) -> tuple[str, str]:
    """What stands before `where`, and the condition behind it."""
    if WHERE in text:
        for found in _QUOTED_OR_WHERE.finditer(text):
            if not found[0].startswith('"'):
                return text[: found.start()], text[found.end() :].strip()
    return text, ""


def _written(word: str) -> str:
    """A word of a rule: in quotes if it is empty, has blanks, or looks like something else."""
    is_plain = word and word != WHERE and not re.search(r"\s", word) and not _OPTION.match(word)
    return word if is_plain else f'"{word}"'


def identifier_of(text: str) -> int:
    """The subscription identifier of *text*: the same in every run, whatever stands before it in the settings.

    A message that waited over a change of the settings still tells which subscription it came by.
    """
    return crc32(text.encode()) % IDENTIFIER_MAX + 1
