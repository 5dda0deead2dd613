"""The rules of a bridge: which topics it forwards, under which prefixes, and which rule a message belongs to.

A rule has a pattern, and a prefix for each side: `LOCAL-PREFIX + topic` here is `REMOTE-PREFIX + topic` there, for
all topics that match the pattern. As one line of text it has the words of mosquitto.conf:

    sensors/# out 1                        messages published here under sensors/ are forwarded
    alarm/+ both 2 site/ berlin/           site/alarm/fire here is berlin/alarm/fire there
    "" in 1 clock world/time/utc           one topic, under another name
    sensors/# out 1 retain=false           the remote retains nothing
    sensors/# out 1 where temp > 30        only messages for which the condition is true
    sensors/# out 1 select=temp,pos.lat    only these fields of the payload (`edgebridge.bridge.payload_options`)

The first rule that matches decides, in the order of the settings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from edgebridge.bridge.payload_options import BATCH_TOPIC, PayloadOptions, read_payload_options
from edgebridge.session.subscription_text import encode_subscription
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Property, subscription_identifiers, text_property, user_properties
from edgebroker.dataclasses import dataclass
from edgebroker.errors import FilterInvalid, FilterTooComplex, RuleInvalid, TopicInvalid
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter, parse_topic_name

if TYPE_CHECKING:
    from edgebridge.bridge.transform import Transform
    from edgebroker.filters import Extractor, Filter
    from edgebroker.predicate import Attributes

WHERE: Final = "where"
NOT_RETAINED: Final = "retain=false"
_QUOTED_OR_WHERE: Final = re.compile(rf'"[^"]*(?:"|\Z)|(?:^|(?<=\s)){WHERE}\s+')
_WORD: Final = re.compile(r'(?:"[^"]*"|[^\s"]++|"(?=[^"]*$))+')
_OPTION: Final = re.compile(r"[a-z_]+=")
IDENTIFIER_MAX: Final = 268_435_455  # a variable byte integer (MQTT 5.0 section 3.8.2.1.2)


class BridgeDirection(StrEnum):
    """Seen from here."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


_DIRECTIONS: Final = {str(one): one for one in BridgeDirection}


@dataclass(frozen=True, slots=True)
class BridgeRule:
    """One rule. `where` is a content filter as written; empty: every message."""

    pattern: str
    direction: BridgeDirection = BridgeDirection.OUT
    qos: int = 1
    local_prefix: str = ""
    remote_prefix: str = ""
    where: str = ""
    retain: bool = True
    """Whether what is to be retained on one side is to be retained on the other."""
    shape: PayloadOptions | None = None
    """What becomes of payloads; None: they stay what they are."""

    def check(self) -> None:
        """Raise RuleInvalid if fields of the rule are invalid, or contradict each other."""
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
            from edgebroker.filters import Filter  # 1 MiB, for who has conditions

            try:
                Filter.parse(self.where)
            except (FilterInvalid, FilterTooComplex) as error:
                raise RuleInvalid(f"in the condition, {error}", "docs/filters.md has the language") from None
        if self.shape is not None:
            self._check_shape(self.shape)

    def __str__(self) -> str:
        """As `parse_rule` reads it."""
        words = [_quote_word(self.pattern), self.direction, str(self.qos)]
        if self.local_prefix or self.remote_prefix:
            words += [_quote_word(self.local_prefix), _quote_word(self.remote_prefix)]
        words += [] if self.retain else [NOT_RETAINED]
        words += [] if self.shape is None else self.shape.words()
        return " ".join(words) + (f" {WHERE} {self.where}" if self.where else "")

    @property
    def is_out(self) -> bool:
        """Whether it carries what is published here."""
        return self.direction is not BridgeDirection.IN

    @property
    def is_in(self) -> bool:
        """Whether it carries what is published there."""
        return self.direction is not BridgeDirection.OUT

    @property
    def local_filter(self) -> str:
        """The topics it is about, as they are called here."""
        return self.local_prefix + self.pattern

    @property
    def remote_filter(self) -> str:
        """The topics it is about, as they are called there."""
        return self.remote_prefix + self.pattern

    def _check_shape(self, shape: PayloadOptions) -> None:
        if self.direction is BridgeDirection.BOTH:
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
    def reads_batches(self) -> bool:
        """Whether what it brings in comes in batches."""
        return self.shape is not None and self.shape.unbatch

    @property
    def remote_subscription_filter(self) -> str:
        """The topics that the remote is asked for."""
        return self.batch_topic if self.reads_batches else self.remote_filter

    def to_remote_topic(self, topic: str) -> str:
        """What *topic* of ours is called there."""
        return self.remote_prefix + topic[len(self.local_prefix) :]

    def to_local_topic(self, topic: str) -> str:
        """What *topic* of theirs is called here."""
        return self.local_prefix + topic[len(self.remote_prefix) :]


def parse_rule(text: str) -> BridgeRule:
    """Read a rule from one line of text. Raises RuleInvalid."""
    before, where = _split_condition(text)
    found = [word[0] for word in _WORD.finditer(before)]
    options = [word for word in found[1:] if "=" in word and _OPTION.match(word)]
    words = [word.strip('"') for word in found if word not in options]
    if not 1 <= len(words) <= 5:
        mend = "write PATTERN [out|in|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]] [FIELD=VALUE ...] [where CONDITION]"
        raise RuleInvalid(f"{text[:80]!r} has {len(words)} words", mend)
    pattern, direction, qos, local_prefix, remote_prefix = [*words, *("out", "1", "", "")[len(words) - 1 :]]
    if direction not in _DIRECTIONS:
        raise RuleInvalid(f"{direction!r} is no direction", 'write "out", "in" or "both"')
    if qos not in ("0", "1", "2"):
        raise RuleInvalid(f"{qos!r} is no QoS", "write 0, 1 or 2")
    said = read_payload_options(options)
    is_kept = said.pop("retain", True)
    shape = PayloadOptions(**said) if any(said.values()) else None
    rule = BridgeRule(pattern, _DIRECTIONS[direction], int(qos), local_prefix, remote_prefix, where, is_kept, shape)
    rule.check()
    return rule


def _split_condition(text: str) -> tuple[str, str]:
    """What stands before `where`, and the condition behind it."""
    if WHERE in text:
        for found in _QUOTED_OR_WHERE.finditer(text):
            if not found[0].startswith('"'):
                return text[: found.start()], text[found.end() :].strip()
    return text, ""


def _quote_word(word: str) -> str:
    """A word of a rule: in quotes if it is empty, has blanks, or looks like something else."""
    is_plain = word and word != WHERE and not re.search(r"\s", word) and not _OPTION.match(word)
    return word if is_plain else f'"{word}"'


def identifier_of(text: str) -> int:
    """The subscription identifier of *text*: the same in every run, whatever stands before it in the settings.

    A message that waited over a change of the settings still tells which subscription it came by.
    """
    return crc32(text.encode()) % IDENTIFIER_MAX + 1


class ConditionCache:
    """Of the rules of one bridge: each is read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Filter, Extractor]] = {}

    def withholds(self, where: str, publish: Publish) -> bool:
        """Whether *where*, which the gateway's matcher found true of *publish*, asks for something in its payload, and
        that cannot be read. The payload is looked at only for conditions such as `danger IS NULL`, which would be true.
        """
        condition, extractor = self._read(where)
        if not condition.may_accept_unreadable:
            return False
        self._extract(extractor, publish)
        return extractor.is_unreadable

    def holds(self, where: str, publish: Publish) -> bool:
        """Whether *where* is true of *publish*, under the topic that it has there. What *where* asks of a payload that
        cannot be read is not.
        """
        condition, extractor = self._read(where)
        return condition.permits(self._extract(extractor, publish), extractor.is_unreadable)

    def _read(self, where: str) -> tuple[Filter, Extractor]:
        from edgebroker.filters import Extractor, Filter  # 1 MiB, for who has conditions

        known = self._known.get(where)
        if known is None:
            condition = Filter.parse(where)
            known = self._known[where] = condition, Extractor(condition.attributes)
        return known

    def _extract(self, extractor: Extractor, publish: Publish) -> Attributes:
        return extractor.extract(
            publish.payload,
            topic=publish.topic,
            qos=publish.qos,
            retain=publish.retain,
            client="",
            user=user_properties(publish.properties),
            content_type=text_property(publish.properties, Property.CONTENT_TYPE, "") or None,
        )


CACHED_TOPICS_MAX: Final = 4_096
"""Topics whose rule is remembered, of what comes in; 300 bytes each. Then the memory starts anew."""
CACHED_TOPIC_CHARS_MAX: Final = 256
"""Longer ones are looked up each time: MQTT allows 65,535, with which those that are remembered would hold 256 MiB."""


@dataclass(frozen=True, slots=True)
class BridgeSubscription:
    """One subscription: `identifier` comes back with every message of it."""

    rule: BridgeRule
    number: int
    """The rule's place in the settings."""
    text: str
    identifier: int


class RuleMatch(NamedTuple):
    """A rule that may want a message of the remote, and the subscription that brings it."""

    rule: BridgeRule
    number: int
    identifier: int


class TopicScope(NamedTuple):
    """What a rule is about on one side. A filter `remote/#` matches the topic `remote` too (MQTT 5.0 section 4.7.1.2),
    which is nothing behind the prefix `remote/`: it has no name on the other side, and no rule.
    """

    prefix: str
    filter: TopicFilter

    def matches(self, topic: str) -> bool:
        """Whether the rule is about *topic*."""
        return topic.startswith(self.prefix) and self.filter.matches(topic)


def local_scope(rule: BridgeRule) -> TopicScope:
    """As topics are called here."""
    return TopicScope(rule.local_prefix, TopicFilter.parse(rule.local_filter))


def remote_scope(rule: BridgeRule) -> TopicScope:
    """As topics are called there."""
    return TopicScope(rule.remote_prefix, TopicFilter.parse(rule.remote_filter))


def inbound_scope(rule: BridgeRule) -> TopicScope:
    """The topics that messages of the remote have: of those that come together, the batch's."""
    return TopicScope(rule.remote_prefix, TopicFilter.parse(rule.remote_subscription_filter))


class RuleSet:
    """What is subscribed to on either side, and the rule of a message that comes."""

    def __init__(self, rules: Sequence[BridgeRule], subscribes: bool = True) -> None:
        """*subscribes*: False if the rules only say where what waits already goes."""
        self.all = tuple(rules)
        self._subscribes = subscribes
        numbered = tuple(enumerate(self.all))
        out = [(number, rule, _with_condition(rule, rule.local_filter)) for number, rule in numbered if rule.is_out]
        outbound = tuple(_distinct(out))
        self.local_subscriptions = outbound if subscribes else ()
        """What our front end is asked for; conditions are tested by it."""
        self._out_topics = [(wanted, local_scope(wanted.rule)) for wanted in outbound]
        self._out_of = {wanted.identifier: wanted for wanted in outbound}
        self.local_needs_identifiers = any(wanted.rule.where for wanted in outbound)
        """Whether the topic alone does not tell by which rule a message of ours goes."""
        topics = [TopicFilter.parse(rule.remote_subscription_filter) for rule in self.all if rule.is_in]
        self.remote_needs_identifiers = any(
            one.overlaps(other) for number, one in enumerate(topics) for other in topics[:number]
        )
        """Whether a broker might send a message once for each of two subscriptions."""
        self.transforms = _transforms(self.all)
        """What becomes of payloads, by the number of the rule."""
        self._conditions = ConditionCache()
        self._answers_out = [(rule, remote_scope(rule)) for rule in self.all if rule.is_out]
        self._answers_in = [(rule, local_scope(rule)) for rule in self.all if rule.is_in]
        self.remote_subscriptions: tuple[BridgeSubscription, ...] = ()
        """What the remote is asked for."""
        self.set_remote(understands_filters=False)

    def set_remote(self, understands_filters: bool) -> None:
        """A remote is there, which tests conditions itself or does not."""
        asked = [
            (
                number,
                rule,
                _with_condition(rule, rule.remote_subscription_filter)
                if understands_filters
                else rule.remote_subscription_filter,
            )
            for number, rule in enumerate(self.all)
            if rule.is_in
        ]
        inbound = tuple(_distinct(asked))
        self.remote_subscriptions = inbound if self._subscribes else ()
        self._granted = {wanted.identifier: wanted for wanted in inbound}
        self._into = [
            (RuleMatch(rule, number, identifier_of(text)), inbound_scope(rule)) for number, rule, text in asked
        ]
        self._inner = {number: remote_scope(rule) for number, rule, _ in asked if rule.reads_batches}
        self._cached_matches: dict[str, Sequence[RuleMatch]] = {}

    def reject(self, identifier: int) -> None:
        """The remote does not grant this subscription: its rule takes nothing away from others."""
        self._granted.pop(identifier, None)
        self._cached_matches.clear()

    def match_outbound(self, publish: Publish) -> tuple[BridgeRule, int] | None:
        """The rule, and its number, of a message of ours. None: no rule is left that wants it."""
        topic, identifiers = publish.topic, subscription_identifiers(publish.properties)
        found = [self._out_of[one] for one in identifiers if one in self._out_of]
        if found and self.local_needs_identifiers:
            found = [wanted for wanted in found if topic.startswith(wanted.rule.local_prefix)]
            found = [wanted for wanted in found if not self._withholds(wanted.rule, publish)]
            first = min(found, key=lambda wanted: wanted.number, default=None)
            return None if first is None else self._before(first, topic)
        # It may have waited since before the rules were changed. Then a rule whose condition is not true of it is
        # better than none: it was wanted when it came.
        untrue: BridgeSubscription | None = None
        for wanted, topics in self._out_topics:
            if topics.matches(topic):
                if not wanted.rule.where or self._conditions.holds(wanted.rule.where, publish):
                    return wanted.rule, wanted.number
                untrue = untrue or wanted
        return None if untrue is None else (untrue.rule, untrue.number)

    def withholds(self, publish: Publish) -> bool:
        """Whether *publish* of ours came by a rule whose condition asks for something in its payload, and that cannot
        be read.
        """
        identified = (self._out_of.get(one) for one in subscription_identifiers(publish.properties))
        return any(wanted is not None and self._withholds(wanted.rule, publish) for wanted in identified)

    def _withholds(self, rule: BridgeRule, publish: Publish) -> bool:
        return bool(rule.where) and self._conditions.withholds(rule.where, publish)

    def _before(self, found: BridgeSubscription, topic: str) -> tuple[BridgeRule, int]:
        """The rule *found*, or one before it that wants the topic whatever it says. What is retained comes by the
        subscription that is new, also if the other one has brought it long ago.
        """
        for wanted, topics in self._out_topics:
            if wanted.number >= found.number:
                break
            if not wanted.rule.where and topics.matches(topic):
                return wanted.rule, wanted.number
        return found.rule, found.number

    def match_inbound(self, topic: str) -> Sequence[RuleMatch]:
        """The rules that want what the remote calls *topic*, in their order, if their conditions are true."""
        met = self._cached_matches.get(topic)
        if met is None:
            met = [heard for heard, topics in self._into if heard.identifier in self._granted and topics.matches(topic)]
            if len(self._cached_matches) >= CACHED_TOPICS_MAX:
                self._cached_matches.clear()
            if len(topic) <= CACHED_TOPIC_CHARS_MAX:
                self._cached_matches[topic] = met
        return met

    def match_batched(self, batch_topic: str, topic: str) -> RuleMatch | None:
        """The rule of what the remote calls *topic*, that came in a batch of the other topic."""
        candidates = (one for one in self.match_inbound(batch_topic) if one.number in self._inner)
        return next((one for one in candidates if self._inner[one.number].matches(topic)), None)

    def remote_response_topic(self, topic: str) -> str:
        """What they are to call *topic* of ours, that an answer which is published there comes in by a rule."""
        return next((rule.to_remote_topic(topic) for rule, topics in self._answers_in if topics.matches(topic)), topic)

    def local_response_topic(self, topic: str) -> str:
        """What we are to call *topic* of theirs, that an answer which is published here goes out by a rule."""
        return next((rule.to_local_topic(topic) for rule, topics in self._answers_out if topics.matches(topic)), topic)

    def is_duplicate(self, first: RuleMatch, identifiers: Sequence[int]) -> bool:
        """Whether a message came by other subscriptions than that of *first*, by which it comes as well.

        A broker may send a copy for each of two subscriptions that overlap; identifiers tell which is which.
        """
        if not identifiers or first.identifier in identifiers:
            return False
        return all(one in self._granted for one in identifiers)


def _with_condition(rule: BridgeRule, topic_filter: str) -> str:
    return encode_subscription(rule.where, topic_filter) if rule.where else topic_filter


def _transforms(rules: Sequence[BridgeRule]) -> dict[int, Transform]:
    shapes = [(number, rule.shape) for number, rule in enumerate(rules) if rule.shape and rule.shape.transforms]
    if not shapes:
        return {}
    from edgebridge.bridge.transform import Transform  # 1.5 MiB, for who transforms payloads

    return {number: Transform(shape) for number, shape in shapes}


def _distinct(asked: Sequence[tuple[int, BridgeRule, str]]) -> list[BridgeSubscription]:
    """Each text once, for the first rule that has it."""
    seen: dict[str, BridgeSubscription] = {}
    for number, rule, text in asked:
        seen.setdefault(text, BridgeSubscription(rule, number, text, identifier_of(text)))
    return list(seen.values())
