"""What one client may do: the rules of its user and those for everybody, decided once for each topic.

The order is Mosquitto's: the user's denials, what the user is allowed, denials for everybody, what everybody is
allowed; the first rule that matches decides, and without one the answer is no.
"""

from __future__ import annotations

from typing import Final

from edgebridge.session.acl import AccessKind, Acl, Rule
from edgebridge.session.ruletree import RuleTree
from edgebroker.filters import Extractor, Filter
from edgebroker.publication import Publication
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter, weight

DECISIONS_MAX: Final = 20_000
"""Decisions remembered for all clients together; about 250 bytes each, 5 MiB in all. Beyond, all are forgotten.
One about a long topic counts for several."""
_STRANGE: Final = frozenset("+#/")
"""In a client identifier or user name: not put in for %c or %u, because it would mean other topics than its own.
Nor is one that begins with "$": `pattern read %c/#` would open $SYS to whoever takes that for its name."""


class Decision:
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
        """Whether *publication* is permitted. What a condition cannot tell is not."""
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
        return any(one.accepts(attributes) for one in self.conditions)


class Both(Decision):
    """Permitted if two decisions permit it, neither of which is always or never."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Decision, second: Decision) -> None:
        super().__init__(False, (*first.conditions, *second.conditions))
        self._first = first
        self._second = second

    def permits(self, publication: Publication) -> bool:
        return self._first.permits(publication) and self._second.permits(publication)


ALWAYS: Final = Decision(True)
NEVER: Final = Decision(False)


class Decisions:
    """What was decided for all clients, bounded as a whole."""

    __slots__ = ("_count", "_filled")

    def __init__(self) -> None:
        self._count = 0
        self._filled: list[dict[str, Decision]] = []

    def note(self, known: dict[str, Decision], topic: str, decision: Decision) -> None:
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
        "_asking",
        "_client",
        "_decisions",
        "_is_strange",
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
        tree: RuleTree | None,
        user: str,
        client: str,
        decisions: Decisions,
        within: Rights | None = None,
    ) -> None:
        """*tree*: the rules of *user*, None if it has none. It and *decisions* are shared with other clients."""
        self._rules = acl.users.get(user, ())
        self._tree = tree
        self._patterns = acl.patterns
        self._user = user
        self._client = client
        self._is_strange = bool(_STRANGE & {*user, *client}) or "$" in (user[:1], client[:1])
        self._decisions = decisions
        self._reads: dict[str, Decision] = {}
        self._writes: dict[str, Decision] = {}
        self._within = within
        self.origin: object = None
        """What they were made of."""
        self._asking: tuple[bool, list[tuple[Rule, TopicFilter | None]]] | None = None

    def read(self, topic: str) -> Decision:
        """May the client get messages of *topic*?"""
        decision = self._reads.get(topic)
        if decision is None:
            decision = self.decide(topic, AccessKind.READ)
            self._decisions.note(self._reads, topic, decision)
        return decision

    def write(self, topic: str) -> Decision:
        """May the client publish under *topic*?"""
        decision = self._writes.get(topic)
        if decision is None:
            decision = self.decide(topic, AccessKind.WRITE)
            self._decisions.note(self._writes, topic, decision)
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
        is_explicit, rules = self._asked()
        for rule, meant in rules:
            if rule.access == AccessKind.DENY:
                if meant is None or meant.covers(topic_filter):
                    return False
            elif meant is not None and (meant.covers(topic_filter) if is_explicit else overlaps(meant, topic_filter)):
                return True
        return False

    def _asked(self) -> tuple[bool, list[tuple[Rule, TopicFilter | None]]]:
        """Whether rules for the client say `subscribe`; then those and the denials, else those that let it read.

        What a rule means for the client comes with it; with a denial that means everything, None.
        """
        if self._asking is None:
            rules = [(rule, rule.topic_filter) for rule in self._rules]
            patterns = [(rule, self._meant(rule)) for rule in self._patterns]
            is_explicit = any(rule.access & AccessKind.SUBSCRIBE for rule, _ in rules + patterns)
            wanted = AccessKind.SUBSCRIBE if is_explicit else AccessKind.READ
            kept: list[tuple[Rule, TopicFilter | None]] = [
                (rule, meant)
                for rule, meant in rules + patterns
                if (meant is not None and rule.access & wanted)
                or (rule.access == AccessKind.DENY and (meant is not None or self._is_unclear(rule)))
            ]
            self._asking = is_explicit, kept
        return self._asking

    def decide(self, topic: str, wanted: AccessKind) -> Decision:
        """As `read` and `write`, without remembering."""
        decision = self._decide(topic, wanted)
        if self._within is None or decision.is_never:
            return decision
        other = self._within.decide(topic, wanted)
        if decision.is_always or other.is_never:
            return other
        return decision if other.is_always else Both(decision, other)

    def _decide(self, topic: str, wanted: AccessKind) -> Decision:
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
            meant = self._meant(rule)
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
        return Decision(False, tuple(conditions)) if conditions else NEVER

    def _meant(self, rule: Rule) -> TopicFilter | None:
        """What a pattern means for this client; None if it means nothing."""
        names_client, names_user = rule.names_client, rule.names_user
        if not (names_client or names_user):
            return rule.topic_filter
        if self._is_strange or (names_user and not self._user):
            return None
        levels = tuple(_put_in(level, self._client, self._user) for level in rule.topic_filter.levels)
        return TopicFilter("/".join(levels), levels)

    def _is_unclear(self, rule: Rule) -> bool:
        """Whether a denial cannot be understood for this client, so that it denies everything."""
        return self._is_strange and not (rule.names_user and not self._user)


def _put_in(level: str, client: str, user: str) -> str:
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
