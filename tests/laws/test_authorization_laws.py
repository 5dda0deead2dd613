"""Laws of access control: each decision, cached or not, equals that of a plain reading of the rules."""

from __future__ import annotations

import random
from collections.abc import Iterator

from edgebridge.session import authorization as rights_module
from edgebridge.session.acl import ANONYMOUS_USER, AccessKind, Acl, AclRule
from edgebridge.session.authorization import AccessDecision, AclRights, overlaps
from edgebroker.filters import Extractor
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

ROUNDS = 300
LEVELS = ("a", "b", "", "$s", "c1", "u1")
USERS = (ANONYMOUS_USER, "u1", "u2", "stranger")
CLIENTS = ("c1", "a", "c+", "x/y")
CONDITIONS = ("v > 1", "$size < 3", "$client = 'p'", "v IS NULL", "NOT v > 1", "v IS NULL AND $size > 2")
UNREADABLE = (b'{"v"', b'{"v":1,"x":"\\ud800"}')


def some_filter(chance: random.Random, more: tuple[str, ...] = ()) -> str:
    levels = [chance.choice((*LEVELS, "+", *more)) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.3:
        levels.append("#")
    return "/".join(levels) or "a"


def some_topic(chance: random.Random) -> str:
    return "/".join(chance.choice(LEVELS) for _ in range(chance.randint(1, 4))) or "a"


def some_rule(chance: random.Random, keyword: str) -> str:
    word = chance.choice(("read", "write", "readwrite", "deny", "subscribe", ""))
    where = f" where {chance.choice(CONDITIONS)}" if word not in ("deny", "subscribe") and chance.random() < 0.3 else ""
    marks = ("%c", "%u", "%u%c") if keyword == "pattern" else ()
    return f"{keyword} {word + ' ' if word else ''}{some_filter(chance, marks)}{where}"


def some_acl(chance: random.Random) -> str:
    lines = [some_rule(chance, "topic") for _ in range(chance.randint(0, 3))]
    for user in ("u1", "u2"):
        lines += [f"user {user}", *(some_rule(chance, "topic") for _ in range(chance.randint(0, 5)))]
    lines += [some_rule(chance, "pattern") for _ in range(chance.randint(0, 4))]
    return "\n".join(lines)


def by_the_word(acl: Acl, user: str, client: str, wanted: AccessKind, publication: Publication) -> bool:
    """What the documentation says, without trees and memory."""
    for rule, meant in _in_order(acl, user, client):
        if meant is not None and not meant.matches(publication.topic):
            continue
        if rule.access == AccessKind.DENY:
            return False
        if rule.access & wanted and meant is not None and _is_true(rule, publication):
            return True
    return False


def _in_order(acl: Acl, user: str, client: str) -> Iterator[tuple[AclRule, TopicFilter | None]]:
    """Rules in the order in which they are asked; None instead of a filter: a denial that holds for everything."""
    own = acl.users.get(user, ())
    for is_denial in (True, False):
        yield from ((rule, rule.topic_filter) for rule in own if (rule.access == AccessKind.DENY) is is_denial)
    for is_denial in (True, False):
        for rule in acl.patterns:
            if (rule.access == AccessKind.DENY) is not is_denial:
                continue
            text = rule.topic_filter.text
            if "%u" in text and not user:
                continue
            if ("%c" in text or "%u" in text) and any(mark in user + client for mark in "+#/"):
                if is_denial:
                    yield rule, None
                continue
            levels = [level.replace("%u", "\0").replace("%c", client).replace("\0", user) for level in text.split("/")]
            yield rule, TopicFilter("/".join(levels), tuple(levels))


def _is_true(rule: AclRule, publication: Publication) -> bool:
    if rule.where is None:
        return True
    if publication.payload in UNREADABLE and " v " in f" {rule.where.text} ":
        return False
    attributes = Extractor(rule.where.attributes).extract(
        publication.payload,
        topic=publication.topic,
        qos=publication.qos,
        retain=publication.retain,
        client=publication.publisher,
    )
    return rule.where.accepts(attributes)


def some_publication(chance: random.Random) -> Publication:
    payload = chance.choice((b"", b"1", b"12345", b'{"v": 2}', b'{"v": 0}', *UNREADABLE))
    return Publication(chance.choice("pq"), some_topic(chance), payload, chance.randrange(3), False, 0)


def test_decisions_are_those_of_the_words(chance: random.Random) -> None:
    permitted = 0
    for _ in range(ROUNDS):
        text = some_acl(chance)
        acl = Acl.parse(text)
        book = AclRights(acl)
        for user in USERS:
            client = chance.choice(CLIENTS)
            rights = book.rights(user, client)
            for _ in range(8):
                publication = some_publication(chance)
                for wanted, answer in ((AccessKind.READ, rights.may_read), (AccessKind.WRITE, rights.may_write)):
                    expected = by_the_word(acl, user, client, wanted, publication)
                    permitted += expected
                    said = (text, user, client, wanted, publication.topic, publication.payload)
                    assert answer(publication) is expected, said
                    assert answer(publication) is expected, said  # remembered
                    decided = rights.decide(publication.topic, wanted)
                    assert decided.permits(publication) is expected
                    assert not (decided.is_always and not expected)
                    assert not (decided.is_never and expected)
    assert permitted > ROUNDS  # or nothing was shown


def test_a_subscription_is_granted_if_something_may_come(chance: random.Random) -> None:
    """Without `subscribe` in the rules, whatever may be read can be asked for, unless a denial covers the filter."""
    granted = 0
    for _ in range(ROUNDS):
        text = "\n".join(line for line in some_acl(chance).splitlines() if " subscribe " not in line)
        acl = Acl.parse(text)
        for user in USERS:
            rights = AclRights(acl).rights(user, "c1")
            asked = TopicFilter.parse(some_filter(chance))
            may = rights.subscribe(asked)
            granted += may
            for _ in range(10):
                topic = some_topic(chance)
                if asked.matches(topic) and not rights.read(topic).is_never:
                    assert may, (text, user, asked.text, topic)
    assert granted > ROUNDS // 3


def test_overlap_is_what_a_topic_shows(chance: random.Random) -> None:
    seen = 0
    for _ in range(5 * ROUNDS):
        topic = some_topic(chance)
        one, other = (TopicFilter.parse(widened(topic, chance)) for _ in range(2))
        if one.matches(topic) and other.matches(topic):
            seen += 1
            assert overlaps(one, other), (one.text, other.text, topic)
    assert seen > ROUNDS


def widened(topic: str, chance: random.Random) -> str:
    """A filter that matches *topic*, but for topics with `$`."""
    levels = [chance.choice((level, "+")) for level in topic.split("/")]
    if chance.random() < 0.4:
        levels = [*levels[: chance.randint(0, len(levels))], "#"]
    return "/".join(levels)


def test_claims_only_ever_narrow(chance: random.Random) -> None:
    for _ in range(ROUNDS):
        wide, narrow = AclRights(Acl.parse(some_acl(chance))), AclRights(Acl.parse(some_acl(chance)))
        within = narrow.rights("u1", "c1")
        both = wide.rights("u1", "c1", within)
        alone = wide.rights("u1", "c1")
        for _ in range(10):
            publication = some_publication(chance)
            assert both.may_read(publication) is (alone.may_read(publication) and within.may_read(publication))
            assert both.may_write(publication) is (alone.may_write(publication) and within.may_write(publication))


def test_memory_is_bounded(monkeypatch: object, chance: random.Random) -> None:
    book = AclRights(Acl.parse("topic read #"))
    many = [book.rights(ANONYMOUS_USER, f"c{number}") for number in range(100)]
    for number in range(rights_module.DECISIONS_MAX + 500):
        many[number % 100].read(f"t/{number}")
    kept = sum(len(one._reads) for one in many)
    assert 0 < kept <= rights_module.DECISIONS_MAX
    assert isinstance(many[0].read("t/0"), AccessDecision)
