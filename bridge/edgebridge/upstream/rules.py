"""The rules of one bridge together: the first that matches decides, in the order of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from edgebridge.session.carriers import filter_topic
from edgebridge.upstream.conditions import Conditions
from edgebridge.upstream.rule import Rule, identifier_of
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import subscription_identifiers
from edgebroker.dataclasses import dataclass
from edgebroker.topics import TopicFilter

if TYPE_CHECKING:
    from edgebridge.upstream.transform import Transform

REMEMBERED_MAX: Final = 4_096
"""Topics whose rule is remembered, of what comes in; 300 bytes each. Then the memory starts anew."""
REMEMBERED_CHARS_MAX: Final = 256
"""Longer ones are looked up each time: MQTT allows 65,535, with which those that are remembered would hold 256 MiB."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One subscription: `identifier` comes back with every message of it."""

    rule: Rule
    number: int
    """The rule's place in the settings."""
    text: str
    identifier: int


class Heard(NamedTuple):
    """A rule that may want a message of the remote, and the subscription that brings it."""

    rule: Rule
    number: int
    identifier: int


class Topics(NamedTuple):
    """What a rule is about on one side. A filter `remote/#` matches the topic `remote` too (MQTT 5.0 section 4.7.1.2),
    which is nothing behind the prefix `remote/`: it has no name on the other side, and no rule.
    """

    prefix: str
    filter: TopicFilter

    def matches(self, topic: str) -> bool:
        """Whether the rule is about *topic*."""
        return topic.startswith(self.prefix) and self.filter.matches(topic)


def here(rule: Rule) -> Topics:
    """As topics are called here."""
    return Topics(rule.local_prefix, TopicFilter.parse(rule.local_filter))


def there(rule: Rule) -> Topics:
    """As topics are called there."""
    return Topics(rule.remote_prefix, TopicFilter.parse(rule.remote_filter))


def heard(rule: Rule) -> Topics:
    """The topics that messages of the remote have: of those that come together, the batch's."""
    return Topics(rule.remote_prefix, TopicFilter.parse(rule.heard_filter))


class Rules:
    """What is subscribed to on either side, and the rule of a message that comes."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.all = tuple(rules)
        numbered = tuple(enumerate(self.all))
        out = [(number, rule, _carried(rule, rule.local_filter)) for number, rule in numbered if rule.is_out]
        self.out = tuple(_distinct(out))
        """What our front end is asked for; conditions are tested by it."""
        self._out_topics = [(wanted, here(wanted.rule)) for wanted in self.out]
        self._out_of = {wanted.identifier: wanted for wanted in self.out}
        self.out_needs_identifiers = any(wanted.rule.where for wanted in self.out)
        """Whether the topic alone does not tell by which rule a message of ours goes."""
        topics = [TopicFilter.parse(rule.heard_filter) for rule in self.all if rule.is_in]
        self.into_needs_identifiers = any(
            one.overlaps(other) for number, one in enumerate(topics) for other in topics[:number]
        )
        """Whether a broker might send a message once for each of two subscriptions."""
        self.transforms = _transforms(self.all)
        """What becomes of payloads, by the number of the rule."""
        self._conditions = Conditions()
        self._answers_out = [(rule, there(rule)) for rule in self.all if rule.is_out]
        self._answers_in = [(rule, here(rule)) for rule in self.all if rule.is_in]
        self.into: tuple[Wanted, ...] = ()
        """What the remote is asked for."""
        self.listen(understands_filters=False)

    def listen(self, understands_filters: bool) -> None:
        """A remote is there, which tests conditions itself or does not."""
        asked = [
            (number, rule, _carried(rule, rule.heard_filter) if understands_filters else rule.heard_filter)
            for number, rule in enumerate(self.all)
            if rule.is_in
        ]
        self.into = tuple(_distinct(asked))
        self._granted = {wanted.identifier: wanted for wanted in self.into}
        self._into = [(Heard(rule, number, identifier_of(text)), heard(rule)) for number, rule, text in asked]
        self._inner = {number: there(rule) for number, rule, _ in asked if rule.is_unbatching}
        self._met: dict[str, Sequence[Heard]] = {}

    def refused(self, identifier: int) -> None:
        """The remote does not grant this subscription: its rule takes nothing away from others."""
        self._granted.pop(identifier, None)
        self._met.clear()

    def outward(self, publish: Publish) -> tuple[Rule, int] | None:
        """The rule, and its number, of a message of ours. None: no rule is left that wants it."""
        topic, identifiers = publish.topic, subscription_identifiers(publish.properties)
        found = [self._out_of[one] for one in identifiers if one in self._out_of]
        if found and self.out_needs_identifiers:
            found = [wanted for wanted in found if topic.startswith(wanted.rule.local_prefix)]
            first = min(found, key=lambda wanted: wanted.number, default=None)
            return None if first is None else self._before(first, topic)
        # It may have waited since before the rules were changed. Then a rule whose condition is not true of it is
        # better than none: it was wanted when it came.
        untrue: Wanted | None = None
        for wanted, topics in self._out_topics:
            if topics.matches(topic):
                if not wanted.rule.where or self._conditions.holds(wanted.rule.where, publish):
                    return wanted.rule, wanted.number
                untrue = untrue or wanted
        return None if untrue is None else (untrue.rule, untrue.number)

    def _before(self, found: Wanted, topic: str) -> tuple[Rule, int]:
        """The rule *found*, or one before it that wants the topic whatever it says. What is retained comes by the
        subscription that is new, also if the other one has brought it long ago.
        """
        for wanted, topics in self._out_topics:
            if wanted.number >= found.number:
                break
            if not wanted.rule.where and topics.matches(topic):
                return wanted.rule, wanted.number
        return found.rule, found.number

    def inward(self, topic: str) -> Sequence[Heard]:
        """The rules that want what the remote calls *topic*, in their order, if their conditions are true."""
        met = self._met.get(topic)
        if met is None:
            met = [heard for heard, topics in self._into if heard.identifier in self._granted and topics.matches(topic)]
            if len(self._met) >= REMEMBERED_MAX:
                self._met.clear()
            if len(topic) <= REMEMBERED_CHARS_MAX:
                self._met[topic] = met
        return met

    def unbatched(self, batch_topic: str, topic: str) -> Heard | None:
        """The rule of what the remote calls *topic*, that came in a batch of the other topic."""
        candidates = (one for one in self.inward(batch_topic) if one.number in self._inner)
        return next((one for one in candidates if self._inner[one.number].matches(topic)), None)

    def answered_there(self, topic: str) -> str:
        """What they are to call *topic* of ours, that an answer which is published there comes in by a rule."""
        return next((rule.outward(topic) for rule, topics in self._answers_in if topics.matches(topic)), topic)

    def answered_here(self, topic: str) -> str:
        """What we are to call *topic* of theirs, that an answer which is published here goes out by a rule."""
        return next((rule.inward(topic) for rule, topics in self._answers_out if topics.matches(topic)), topic)

    def is_copy(self, first: Heard, identifiers: Sequence[int]) -> bool:
        """Whether a message came by other subscriptions than that of *first*, by which it comes as well.

        A broker may send a copy for each of two subscriptions that overlap; identifiers tell which is which.
        """
        if not identifiers or first.identifier in identifiers:
            return False
        return all(one in self._granted for one in identifiers)


def _carried(rule: Rule, topic_filter: str) -> str:
    return filter_topic(rule.where, topic_filter) if rule.where else topic_filter


def _transforms(rules: Sequence[Rule]) -> dict[int, Transform]:
    shapes = [(number, rule.shape) for number, rule in enumerate(rules) if rule.shape and rule.shape.transforms]
    if not shapes:
        return {}
    from edgebridge.upstream.transform import Transform  # 1.5 MiB, for who transforms payloads

    return {number: Transform(shape) for number, shape in shapes}


def _distinct(asked: Sequence[tuple[int, Rule, str]]) -> list[Wanted]:
    """Each text once, for the first rule that has it."""
    seen: dict[str, Wanted] = {}
    for number, rule, text in asked:
        seen.setdefault(text, Wanted(rule, number, text, identifier_of(text)))
    return list(seen.values())
