"""The access-control file: what is read, and which line is wrong how."""

from __future__ import annotations

import pytest

from edgebridge.session.acl import ANONYMOUS_USER, AccessKind, Acl, AclInvalid
from edgebridge.session.authorization import AclRights, overlaps
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

R, W, S, DENY = AccessKind.READ, AccessKind.WRITE, AccessKind.SUBSCRIBE, AccessKind.DENY


def test_a_file() -> None:
    acl = Acl.parse(
        """\
# everybody else
topic read public/#

user anna smith
topic sensors/#
  topic write a topic with blanks
topic read t/# where temp > 30 AND site = 'n'
topic t where $size < 10
topic deny sensors/secret
user bert
topic subscribe x/+
user anna smith
topic\treadwrite y
pattern write devices/%c/%u/#
"""
    )
    assert {
        user: [(rule.line, rule.access, rule.topic_filter.text) for rule in rules] for user, rules in acl.users.items()
    } == {
        ANONYMOUS_USER: [(2, R, "public/#")],
        "anna smith": [
            (9, DENY, "sensors/secret"),
            (5, R | W, "sensors/#"),
            (6, W, "a topic with blanks"),
            (7, R, "t/#"),
            (8, R | W, "t"),
            (13, R | W, "y"),
        ],
        "bert": [(11, S, "x/+")],
    }
    where = {rule.line: rule.where.text for rule in acl.rules() if rule.where is not None}
    assert where == {7: "temp > 30 AND site = 'n'", 8: "$size < 10"}
    assert [rule.topic_filter.text for rule in acl.patterns] == ["devices/%c/%u/#"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("topics a", "'topics' begins no rule; they begin with user, topic or pattern"),
        ("topic", "nothing follows 'topic'"),
        ("user ", "nothing follows 'user'"),
        ("topic wirte a/#", "'wirte' is no kind of access; did you mean 'write'? A topic with blanks needs one"),
        ("topic pump a/b", "'pump' is no kind of access; there are read, write, readwrite, subscribe, deny; a topic"),
        ("topic read a/#/b", "'#' must be the whole last level: 'a/#/b'"),
        ("topic read a where temp >", "in the condition, column 7"),
        ("topic read where a > 1", "'#' must be"),
        ("topic deny a where a > 1", "'deny' takes no condition; write what is allowed instead"),
        ("topic subscribe a where a > 1", "'subscribe' takes no condition"),
        ("pattern read a+/%c", "'+' must be a whole level"),
        ("\x00", "begins no rule"),
    ],
)
def test_a_line_that_is_wrong(line: str, reason: str) -> None:
    if line == "topic read where a > 1":  # a topic filter called `where a > 1`: blanks are allowed in topics
        assert Acl.parse(line).users[ANONYMOUS_USER][0].topic_filter.text == "where a > 1"
        return
    with pytest.raises(AclInvalid) as caught:
        Acl.parse(f"topic ok\n{line}\ntopic ok\n")
    (problem,) = caught.value.problems
    assert problem.line == 2
    assert reason in str(problem)


def test_all_problems_at_once_but_not_thousands() -> None:
    with pytest.raises(AclInvalid) as caught:
        Acl.parse("topic ok\n" + "nonsense\n" * 1_000)
    assert [problem.line for problem in caught.value.problems] == list(range(2, 22))


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/+", "a", False),
        ("+/b", "a/+", True),
        ("a/+/c", "a/b/#", True),
        ("a/b/#", "a", False),
        ("#", "$SYS/#", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_filters_that_overlap(first: str, second: str, answer: bool) -> None:
    one, other = TopicFilter.parse(first), TopicFilter.parse(second)
    assert overlaps(one, other) is overlaps(other, one) is answer


@pytest.mark.parametrize(
    ("rules", "topic", "may_read"),
    [
        ("topic deny a\ntopic read #", "a", False),
        ("topic read #\ntopic deny a", "a", False),
        ("topic read #\npattern deny a", "a", True),  # what a user is allowed comes before patterns
        ("pattern read #\npattern deny a", "a", False),
        ("topic write #", "a", False),
        ("topic read #", "$SYS/x", False),
        ("topic read $SYS/#", "$SYS/x", True),
        ("", "a", False),
    ],
)
def test_the_order_is_that_of_mosquitto(rules: str, topic: str, may_read: bool) -> None:
    rights = AclRights(Acl.parse("user anna\n" + rules)).rights("anna", "c")
    assert rights.read(topic).is_always is may_read
    assert rights.read(topic).is_never is not may_read


def test_what_is_put_in_for_a_mark_is_not_looked_at_again() -> None:
    rights = AclRights(Acl.parse("pattern read a/%c-%u/%cc\n")).rights("%c", "%u")
    assert rights.read("a/%u-%c/%uc").is_always
    assert rights.read("a/%u-%u/%uc").is_never


@pytest.mark.parametrize(
    ("condition", "payload", "is_met"),
    [
        ("danger IS NULL", b'{"safe":1}', True),
        ("danger IS NULL", b"", True),
        ("danger IS NULL", b'{"danger":1,"x":"\\ud800"}', False),
        ("danger IS NULL", b'{"danger":1', False),
        ("NOT danger IS NOT NULL", b'{"danger":1,"x":"\\q"}', False),
        ("danger IS NULL OR $size < 99", b'{"danger":1', False),
        ("danger IS NULL", b'{"danger":NaN}', False),
        ("danger IS NULL", b'{"danger":1}\0', False),
        ("$size < 99", b'{"danger":1', True),
    ],
)
def test_a_condition_is_not_met_by_what_cannot_be_read(condition: str, payload: bytes, is_met: bool) -> None:
    """All that an unreadable payload holds seems to be absent; a rule that keeps danger back must not open."""
    rights = AclRights(Acl.parse(f"user anna\ntopic readwrite a where {condition}")).rights("anna", "c")
    publication = Publication("c", "a", payload, 0, False, 0)
    assert rights.may_read(publication) is rights.may_write(publication) is is_met
