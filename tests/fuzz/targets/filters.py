"""The filter language, and how filters travel in topic filters."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from edgebridge.session.subscription_text import parse_subscription
from edgebridge.wire.user_properties import TraceContext
from edgebroker.errors import FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.filters import Filter
from edgebroker.filters.patterns import parts_of
from edgebroker.limits import FILTER_CONJUNCTIONS_MAX, TOPIC_LEVELS_LIMIT
from edgebroker.predicate import Pattern, Value
from tests.fuzz.frame.target import Target, filled

FILTERS = (
    "temp > 30 AND site = 'north'",
    'NOT (a.b[0] <> 3 OR "odd key" IS NOT NULL)',
    "x NOT IN (1, 2.5, -3e7) AND y IN ('a', 'b')",
    "x BETWEEN 1 AND 9 OR x NOT BETWEEN 'a' AND 'b'",
    "name LIKE 'a!%%_b%' ESCAPE '!' AND name NOT LIKE '%%__'",
    "$topic LIKE 'a/%' AND $level1 = 'a' AND $qos >= 1 AND $retain = FALSE AND $size < 9 AND $user.k = 'v'",
    "5 < temp AND on AND NOT off",
    "(a = 1 OR b = 2) AND (c = 3 OR d = 4) AND (e = 5 OR f = 6)",
    "tags[*] IN ('x', 'y') AND NOT rows[*].t > 3 OR tags[*] LIKE '%a_' AND tags[*] IS NOT NULL",
    "tags[3].name = 'x' AND tags[3].\"na.me\" <> ''''",
)
WORDS = (
    *b"BETWEEN IS NULL TRUE FALSE ( ) < <= > >= = <> , ' \" . [0] [*] $topic $level1 $user.k".split(),
    *b"AND OR NOT IN LIKE ESCAPE".split(),
    b" AND x > 1",
    b" OR y IN (1,2)",
    b" LIKE 'a%'",
    b"NOT (",
    b"''",
    b"'%_%_'",
)
EVENTS: tuple[dict[str, Value], ...] = (
    {"temp": 31, "site": "north", "x": 2.5, "name": "a%xb", "on": True},
    {"tags[*] = 1": True, "tags[*] > -2500": False, "a[*].b = 'a'": True, "tags[*] IS NULL": False},
    {"temp": None, "x": "a", "name": "", "$topic": "a/b", "$qos": 1, "$retain": False, "$size": 3},
    {},
)


def read(data: bytes) -> None:
    """A filter is refused, or has one meaning: that of its canonical text."""
    text = data.decode("utf-8", "surrogateescape")
    found = Filter.parse(text)
    assert len(found.predicates) <= FILTER_CONJUNCTIONS_MAX
    again = Filter.parse(found.canonical) if len(found.canonical.encode()) <= 2_000 else found
    assert again.canonical == found.canonical
    for event in EVENTS:
        is_true = found.accepts(event)
        assert is_true == again.accepts(event)
        met = (all(test.accepts(event.get(test.attribute)) for test in predicate) for predicate in found.predicates)
        assert is_true == any(met)


def read_once(data: bytes) -> None:
    """What a gateway does with a filter that it hands on to others."""
    assert Filter.parse(data.decode("utf-8", "surrogateescape")).canonical


def make(chance: Random) -> bytes:
    """A filter, more often right than not."""

    def condition(depth: int) -> str:
        kind = chance.randrange(8 if depth else 5)
        name = chance.choice(
            ("x", "temp", "a.b[0]", "tags[*]", "a[*].b", '"odd key"', "$topic", "$user.k", "name", "\u00fc")
        )
        value = chance.choice(("1", "-2.5e3", "'a'", "'%_'", "''''", "TRUE", "9" * 20, "'\u20ac'", "0.1"))
        match kind:
            case 0:
                return f"{name} {chance.choice(('=', '<>', '<', '<=', '>', '>='))} {value}"
            case 1:
                return f"{name} {chance.choice(('', 'NOT '))}IN ({', '.join([value] * chance.randrange(1, 4))})"
            case 2:
                return f"{name} {chance.choice(('', 'NOT '))}BETWEEN {value} AND {value}"
            case 3:
                return f"{name} {chance.choice(('', 'NOT '))}LIKE {value}{chance.choice(('', ' ESCAPE ' + value))}"
            case 4:
                return f"{name} IS {chance.choice(('', 'NOT '))}NULL"
            case 5:
                return f"NOT ({condition(depth - 1)})"
            case _:
                word = f" {chance.choice(('AND', 'OR'))} "
                return "(" + word.join(condition(depth - 1) for _ in range(chance.randrange(2, 5))) + ")"

    return condition(chance.randrange(4)).encode()


def read_subscription(data: bytes) -> None:
    """A topic filter with what it carries, and behind a line break what the user property `$where` says."""
    text, _, where = data.decode("utf-8", "replace").partition("\n")
    found = parse_subscription(text, where or None)
    assert found.text == text
    assert 1 <= len(found.topic_filter.text.split("/")) <= TOPIC_LEVELS_LIMIT
    assert found.share is None or found.share
    assert parse_subscription(found.topic_filter.text).topic_filter == found.topic_filter


def read_traceparent(data: bytes) -> None:
    """A position in a trace, or nothing."""
    found = TraceContext.parse(data.decode("utf-8", "replace"))
    assert found is None or (len(found.trace_id), len(found.parent_id)) == (32, 16)


def both_or(count: int, term: Callable[[int, int], bytes]) -> bytes:
    """*count* ORs of two terms, and all of them ANDed."""
    return b" AND ".join(b"(%s OR %s)" % (term(0, number), term(1, number)) for number in range(count))


def long_pattern(alternative: int, number: int) -> bytes:
    return (b"%%%d%d" % (alternative, number) + b"%a" * 100)[:120]


LIKES = tuple(
    Pattern(parts_of(pattern, None, 1))
    for n in range(16)
    for pattern in (f"%_a{'_a' * 40}b{n}%", f"%a_b{n}%", f"%ab{n}%", f"%{'a' * 50}{n}{'a' * 40}%")
)
"""As many patterns as a client may have, of the hardest known."""


def like(data: bytes) -> None:
    """Patterns are asked about a text. What they mean is tested in tests/spec/test_filters_like.py."""
    text = data.decode("utf-8", "replace")
    for pattern in LIKES:
        pattern.accepts(text)


SIZE = 2_048
"""Filters beyond it are refused by their size; their bombs have that size, and as many as fit are read one by one."""


REFUSALS = (FilterInvalid, FilterTooComplex)
BOMBS = {
    "64 KiB of parentheses": lambda: filled(b"(", after=b"x"),
    "64 KiB of digits": lambda: filled(b"9", b"x = "),
    "64 KiB of quotes": lambda: filled(b"'", b"x = "),
    "64 KiB of surrogates": lambda: filled(b"\xed\xa0\x80"),
}
ONE_BOMBS = {
    "2 KiB of parentheses": lambda: filled(b"(", after=b"x", size=SIZE),
    "2 KiB of NOTs": lambda: filled(b"NOT ", after=b"x", size=SIZE),
    "2 KiB of digits": lambda: filled(b"9", b"x = ", size=SIZE),
    "2 KiB of digits in an exponent": lambda: filled(b"9", b"x = 1e", size=SIZE),
    "2 KiB of blanks": lambda: filled(b" ", b"x = 1", size=SIZE),
    "2 KiB of dots": lambda: filled(b".a", b"x", b" = 1", size=SIZE),
    "2 KiB of indexes": lambda: filled(b"[0]", b"x", b" = 1", size=SIZE),
    "2 KiB of quotes": lambda: filled(b"''", b"x = '", b"'", size=SIZE),
    "2 KiB of %_ in LIKE": lambda: filled(b"%_", b"x LIKE '", b"'", size=SIZE),
    "2 KiB of %a in LIKE": lambda: filled(b"%a", b"name LIKE '", b"b'", size=SIZE),
    "2 KiB of text between % in LIKE": lambda: filled(b"a", b"name LIKE '%", b"%b'", size=SIZE),
    "64 terms of LIKE": lambda: b" AND ".join(b"n%d LIKE '%%%d%%_a%%'" % (n, n) for n in range(64)),
    "ORs over one attribute, 64 of LIKE": lambda: b" OR ".join(b"x LIKE '%%%02d_%%'" % n for n in range(64)),
    "ANDs over ORs of long LIKE": lambda: both_or(6, lambda a, n: b"a LIKE '%s%%'" % long_pattern(a, n)),
    "ANDs over ORs of long LIKE, other attributes": lambda: both_or(
        6, lambda a, n: b"a%d LIKE '%s%%'" % (n, long_pattern(a, n))
    ),
    "ANDs over ORs of LIKE with _": lambda: both_or(6, lambda a, n: b"x LIKE '%%%d%d_'" % (a, n)),
    "ANDs over ORs, 64 conjunctions": lambda: b" AND ".join(b"(a%d=1 OR b%d=2)" % (n, n) for n in range(6)),
    "ANDs over ORs, too many": lambda: b" AND ".join(b"(a%d=1 OR b%d=2)" % (n, n) for n in range(32)),
    "ORs over NOTs over ANDs": lambda: b"NOT (" + b" OR ".join(b"(a%d=1 AND b%d>2)" % (n, n) for n in range(31)) + b")",
    "IN lists under NOT": lambda: b"NOT (x IN (" + b",".join(b"%d" % n for n in range(62)) + b") AND y = 1)",
    "an unknown word": lambda: filled(b"nulll ", b"x = 1 ", size=SIZE),
    "a long unknown word": lambda: filled(b"a", b"x ", size=SIZE),
}
TARGETS = (
    Target(
        "filter",
        read,
        tuple(text.encode() for text in FILTERS),
        REFUSALS,
        WORDS,
        make,
        bombs=BOMBS | ONE_BOMBS,
        plain=read_once,
    ),
    Target(
        "like",
        like,
        (b"aaab0", b"aab1", "a\u20acb2".encode()),
        (),
        (b"a", b"b0", b"b1", "\u20ac".encode()),
        bombs={
            "the same letter": lambda: filled(b"a"),
            "two letters in turn": lambda: filled(b"ab"),
            "letters of another page": lambda: filled("a\u20ac".encode()),
        },
    ),
    Target(
        "subscription",
        read_subscription,
        (
            b"sensors/+/#",
            b"$filter/temp%3E30/sensors/#",
            b"$share/group/$filter/temp > 30/sensors/#\nx = 1",
            b"$share/g/a",
            b"a/b\nx LIKE 'a%'",
        ),
        (*REFUSALS, TopicInvalid),
        (b"$filter/", b"$share/", b"%25", b"%C3%A4", b"%ff", b"+", b"#", b"/", b"$SYS", b"\n", *WORDS),
        bombs={
            "levels": lambda: filled(b"/"),
            "percent signs": lambda: filled(b"%41", b"$filter/", b"/a"),
            "percent signs that are no UTF-8": lambda: filled(b"%ff", b"$filter/", b"/a"),
            "percent signs one by one": lambda: filled(b"%41 ", b"$filter/", b"/a"),
            "percent signs of a filter of 2 KiB": lambda: b"$filter/" + b"%41%2B" * 1_024 + b"/" + b"a" * 59_000,
            "shares": lambda: filled(b"$share/g/"),
            "wildcards": lambda: filled(b"+/", after=b"#"),
        },
    ),
    Target(
        "traceparent",
        read_traceparent,
        (b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"01-" + b"c" * 32 + b"-" + b"d" * 16 + b"-00-more"),
        bombs={"dashes": lambda: filled(b"-"), "digits": lambda: filled(b"a")},
    ),
)
