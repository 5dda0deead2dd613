"""The rights of one client: may it read or write a topic, or subscribe to a topic filter?

The rules come from the access-control list (`session.acl`). Decisions are cached per topic. The order is Mosquitto's:
denials of the user, permissions of the user, denials for everybody, permissions for everybody. The first rule that
matches decides; without one the answer is no.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edgebridge.session.acl import AccessKind, Acl, AclRule
from edgebroker.filters import Extractor, Filter
from edgebroker.publication import Publication
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, TopicFilter, weight

_HERE: Final = ""
"""The key of the rules that end at a node. Levels have keys that start with "/"."""


class AclRuleTree:
    """Rules found by topic name, in the order in which they were given."""

    __slots__ = ("_root", "_rules")

    def __init__(self, rules: Sequence[AclRule]) -> None:
        self._rules = rules
        self._root: dict[str, Any] = {}
        for number, rule in enumerate(rules):
            node = self._root
            for level in rule.topic_filter.levels:
                node = node.setdefault(SEPARATOR + level, {})
            node.setdefault(_HERE, []).append(number)

    def matching(self, topic: str) -> list[AclRule]:
        """The rules whose topic filter matches the topic name *topic*."""
        found: list[int] = []
        names = topic.split(SEPARATOR)
        nodes = [self._root]
        for depth, name in enumerate(names):
            below: list[dict[str, Any]] = []
            for node in nodes:
                if depth or not name.startswith("$"):  # no wildcard in front matches those [MQTT-4.7.2-1]
                    found += node.get(SEPARATOR + MULTI_LEVEL, _NOTHING).get(_HERE, ())
                    if SEPARATOR + SINGLE_LEVEL in node:
                        below.append(node[SEPARATOR + SINGLE_LEVEL])
                if SEPARATOR + name in node:
                    below.append(node[SEPARATOR + name])
            nodes = below
        for node in nodes:
            found += node.get(_HERE, ())
            found += node.get(SEPARATOR + MULTI_LEVEL, _NOTHING).get(_HERE, ())  # `a/#` matches `a` too
        return [self._rules[number] for number in sorted(found)]


_NOTHING: Final[dict[str, Any]] = {}


DECISIONS_MAX: Final = 20_000
"""Decisions remembered for all clients together; about 250 bytes each, 5 MiB in all. Beyond, all are forgotten.
One about a long topic counts for several."""
_UNSAFE_CHARACTERS: Final = frozenset("+#/")
"""In a client identifier or user name: not put in for %c or %u, because it would mean other topics than its own.
Nor is one that begins with "$": `pattern read %c/#` would open $SYS to whoever takes that for its name."""


class AccessDecision:
    """May it? Always, never, or if one of `conditions` is true of the publication."""

    __slots__ = ("_extractor", "conditions", "is_always")

    def __init__(self, is_always: bool, conditions: tuple[Filter, ...] = ()) -> None:
        self.is_always = is_always
        self.conditions = conditions
        self._extractor: Extractor | None = None

    @property
    def is_never(self) -> bool:
        """Whether no publication is permitted."""
        return not (self.is_always or self.conditions)

    def permits(self, publication: Publication) -> bool:
        """Whether *publication* is permitted. What a condition cannot tell is not, nor what it asks of a payload that
        cannot be read.
        """
        if not self.conditions:
            return self.is_always
        if self._extractor is None:
            self._extractor = Extractor(frozenset().union(*(one.attributes for one in self.conditions)))
        attributes = self._extractor.extract(
            publication.payload,
            topic=publication.topic,
            qos=publication.qos,
            retain=publication.retain,
            client=publication.publisher,
            user=publication.user,
            content_type=publication.content_type,
        )
        is_unreadable = self._extractor.is_unreadable
        return any(one.permits(attributes, is_unreadable) for one in self.conditions)


class CombinedDecision(AccessDecision):
    """Permitted if two decisions permit it, neither of which is always or never."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: AccessDecision, second: AccessDecision) -> None:
        super().__init__(False, (*first.conditions, *second.conditions))
        self._first = first
        self._second = second

    def permits(self, publication: Publication) -> bool:
        return self._first.permits(publication) and self._second.permits(publication)


ALWAYS: Final = AccessDecision(True)
NEVER: Final = AccessDecision(False)


class DecisionCache:
    """What was decided for all clients, bounded as a whole."""

    __slots__ = ("_count", "_filled")

    def __init__(self) -> None:
        self._count = 0
        self._filled: list[dict[str, AccessDecision]] = []

    def add(self, known: dict[str, AccessDecision], topic: str, decision: AccessDecision) -> None:
        """Remember *decision* in *known*, one client's."""
        if self._count >= DECISIONS_MAX:
            for filled in self._filled:
                filled.clear()
            self._filled.clear()
            self._count = 0
        if not known:
            self._filled.append(known)
        self._count += weight(topic)
        known[topic] = decision


class Rights:
    """One client's rights. `within`: rights that narrow these, as a token's claims do."""

    __slots__ = (
        "_cached_subscribe_rules",
        "_client",
        "_decisions",
        "_has_unsafe_name",
        "_patterns",
        "_reads",
        "_rules",
        "_tree",
        "_user",
        "_within",
        "_writes",
        "origin",
    )

    def __init__(
        self,
        acl: Acl,
        tree: AclRuleTree | None,
        user: str,
        client: str,
        decisions: DecisionCache,
        within: Rights | None = None,
    ) -> None:
        """*tree*: the rules of *user*, None if it has none. It and *decisions* are shared with other clients."""
        self._rules = acl.users.get(user, ())
        self._tree = tree
        self._patterns = acl.patterns
        self._user = user
        self._client = client
        self._has_unsafe_name = bool(_UNSAFE_CHARACTERS & {*user, *client}) or "$" in (user[:1], client[:1])
        self._decisions = decisions
        self._reads: dict[str, AccessDecision] = {}
        self._writes: dict[str, AccessDecision] = {}
        self._within = within
        self.origin: object = None
        """What they were made of."""
        self._cached_subscribe_rules: tuple[bool, list[tuple[AclRule, TopicFilter | None]]] | None = None

    def read(self, topic: str) -> AccessDecision:
        """May the client get messages of *topic*?"""
        decision = self._reads.get(topic)
        if decision is None:
            decision = self.decide(topic, AccessKind.READ)
            self._decisions.add(self._reads, topic, decision)
        return decision

    def write(self, topic: str) -> AccessDecision:
        """May the client publish under *topic*?"""
        decision = self._writes.get(topic)
        if decision is None:
            decision = self.decide(topic, AccessKind.WRITE)
            self._decisions.add(self._writes, topic, decision)
        return decision

    def writes(self, topic: str) -> bool:
        """Whether the client may publish whatever it likes under *topic*."""
        return self.write(topic).is_always

    def may_read(self, publication: Publication) -> bool:
        """Whether the client may get *publication*."""
        return self.read(publication.topic).permits(publication)

    def may_write(self, publication: Publication) -> bool:
        """Whether the client may publish *publication*."""
        return self.write(publication.topic).permits(publication)

    def subscribe(self, topic_filter: TopicFilter) -> bool:
        """May the client ask for *topic_filter*?

        Where rules for it say `subscribe`, one of them must cover the filter. Else it is enough that something it may
        read can come that way: what it may not read is kept back from it one by one. A denial counts if it covers the
        filter.
        """
        if self._within is not None and not self._within.subscribe(topic_filter):
            return False
        is_explicit, rules = self._subscribe_rules()
        for rule, meant in rules:
            if rule.access == AccessKind.DENY:
                if meant is None or meant.covers(topic_filter):
                    return False
            elif meant is not None and (meant.covers(topic_filter) if is_explicit else overlaps(meant, topic_filter)):
                return True
        return False

    def _subscribe_rules(self) -> tuple[bool, list[tuple[AclRule, TopicFilter | None]]]:
        """Whether rules for the client say `subscribe`; then those and the denials, else those that let it read.

        What a rule means for the client comes with it; with a denial that means everything, None.
        """
        if self._cached_subscribe_rules is None:
            rules = [(rule, rule.topic_filter) for rule in self._rules]
            patterns = [(rule, self._substituted_filter(rule)) for rule in self._patterns]
            is_explicit = any(rule.access & AccessKind.SUBSCRIBE for rule, _ in rules + patterns)
            wanted = AccessKind.SUBSCRIBE if is_explicit else AccessKind.READ
            kept: list[tuple[AclRule, TopicFilter | None]] = [
                (rule, meant)
                for rule, meant in rules + patterns
                if (meant is not None and rule.access & wanted)
                or (rule.access == AccessKind.DENY and (meant is not None or self._is_unclear(rule)))
            ]
            self._cached_subscribe_rules = is_explicit, kept
        return self._cached_subscribe_rules

    def decide(self, topic: str, wanted: AccessKind) -> AccessDecision:
        """As `read` and `write`, without remembering."""
        decision = self._decide(topic, wanted)
        if self._within is None or decision.is_never:
            return decision
        other = self._within.decide(topic, wanted)
        if decision.is_always or other.is_never:
            return other
        return decision if other.is_always else CombinedDecision(decision, other)

    def _decide(self, topic: str, wanted: AccessKind) -> AccessDecision:
        conditions: list[Filter] = []
        for rule in () if self._tree is None else self._tree.matching(topic):
            if rule.access == AccessKind.DENY:
                return NEVER
            if rule.access & wanted:
                if rule.where is None:
                    return ALWAYS
                conditions.append(rule.where)
        for rule in self._patterns:
            if rule.access != AccessKind.DENY and not rule.access & wanted:
                continue
            meant = self._substituted_filter(rule)
            if meant is None:
                if rule.access != AccessKind.DENY or not self._is_unclear(rule):
                    continue
            elif not meant.matches(topic):
                continue
            if rule.access == AccessKind.DENY:
                break
            if rule.where is None:
                return ALWAYS
            conditions.append(rule.where)
        return AccessDecision(False, tuple(conditions)) if conditions else NEVER

    def _substituted_filter(self, rule: AclRule) -> TopicFilter | None:
        """What a pattern means for this client; None if it means nothing."""
        names_client, names_user = rule.names_client, rule.names_user
        if not (names_client or names_user):
            return rule.topic_filter
        if self._has_unsafe_name or (names_user and not self._user):
            return None
        levels = tuple(_substitute(level, self._client, self._user) for level in rule.topic_filter.levels)
        return TopicFilter("/".join(levels), levels)

    def _is_unclear(self, rule: AclRule) -> bool:
        """Whether a denial cannot be understood for this client, so that it denies everything."""
        return self._has_unsafe_name and not (rule.names_user and not self._user)


def _substitute(level: str, client: str, user: str) -> str:
    if "%" not in level:
        return level
    parts: list[str] = []
    at = 0
    while at < len(level):  # from left to right: what was put in is not looked at again
        mark = level[at : at + 2]
        parts.append(client if mark == "%c" else user if mark == "%u" else level[at])
        at += 2 if mark in ("%c", "%u") else 1
    return "".join(parts)


def overlaps(first: TopicFilter, second: TopicFilter) -> bool:
    """Whether some topic name is matched by both."""
    for mine, other in ((first.levels, second.levels), (second.levels, first.levels)):
        if other[0].startswith("$") and mine[0] in (SINGLE_LEVEL, MULTI_LEVEL):
            return False
    for position in range(max(len(first.levels), len(second.levels))):
        mine_at = first.levels[position] if position < len(first.levels) else None
        other_at = second.levels[position] if position < len(second.levels) else None
        if MULTI_LEVEL in (mine_at, other_at):
            return True
        if mine_at is None or other_at is None:
            return False
        if mine_at != other_at and SINGLE_LEVEL not in (mine_at, other_at):
            return False
    return True


class AclRights:
    """An access-control list in use: it gives each client its rights, and shares rule trees and cached decisions.

    Its rules do not change: another file is another AclRights.
    """

    def __init__(self, acl: Acl, decisions: DecisionCache | None = None) -> None:
        """*decisions*: where those of other lists are remembered too, if there are many."""
        self.acl = acl
        self._trees: dict[str, AclRuleTree] = {}
        self._decisions = decisions or DecisionCache()

    def rights(self, user: str, client: str, within: Rights | None = None) -> Rights:
        """The rights of *client*, authenticated as *user* (empty: nobody in particular)."""
        tree = self._trees.get(user)
        if tree is None and user in self.acl.users:
            tree = self._trees[user] = AclRuleTree(self.acl.users[user])
        return Rights(self.acl, tree, user, client, self._decisions, within)
