"""docs/filters.md: the language, its bounds and its refusals."""

from __future__ import annotations

import random

import pytest

from edgebroker.errors import FilterInvalid, FilterTooComplex
from edgebroker.filters import Filter
from edgebroker.filters.parser import parse
from edgebroker.filters.syntax import And, Between, Comparison, InTest, Like, Not, NullTest, Operator, Or
from edgebroker.predicate import ANY_ONE, ANY_RUN, Value

A, B, C = (Comparison(name, Operator.EQ, True) for name in "abc")


def refusal(text: str) -> FilterInvalid:
    with pytest.raises(FilterInvalid) as caught:
        Filter.parse(text)
    return caught.value


def accepts(text: str, **attributes: Value) -> bool:
    return Filter.parse(text).accepts(attributes)


@pytest.mark.clause("F-1")
def test_not_binds_tighter_than_and_and_and_tighter_than_or() -> None:
    assert parse("a OR b AND NOT c") == Or((A, And((B, Not(C)))))
    assert parse("(a OR b) AND c") == And((Or((A, B)), C))
    assert parse("NOT (a OR b)") == Not(Or((A, B)))
    assert parse("NOT NOT a") == Not(Not(A))
    assert parse("a AND b AND c") == parse("a AND (b AND c)") == And((A, B, C))


@pytest.mark.clause("F-2")
@pytest.mark.parametrize("operator", Operator)
def test_comparisons_take_the_literal_on_either_side(operator: Operator) -> None:
    assert parse(f"a {operator} 3") == parse(f"3 {operator.flipped} a") == Comparison("a", operator, 3)


@pytest.mark.clause("F-3")
def test_in_lists() -> None:
    assert parse("a IN (1, 2)") == InTest("a", (1, 2))
    assert parse("a NOT IN ('x')") == InTest("a", ("x",), negated=True)
    assert [accepts("a IN (1, 2)", a=value) for value in (1, 2.0, 3, "1")] == [True, True, False, False]
    assert [accepts("a NOT IN (1, 2)", a=value) for value in (1, 2.0, 3, "1")] == [False, False, True, False]
    assert refusal("a IN ()").column == 7


@pytest.mark.clause("F-4")
def test_between_includes_both_ends() -> None:
    assert parse("a BETWEEN 1 AND 2 AND b") == And((Between("a", 1, 2), B))
    assert [accepts("a BETWEEN 1 AND 2", a=value) for value in (0, 1, 1.5, 2, 3)] == [False, True, True, True, False]
    assert [accepts("a NOT BETWEEN 1 AND 2", a=value) for value in (0, 1, 2, 3)] == [True, False, False, True]
    assert [accepts("a NOT BETWEEN 2 AND 1", a=value) for value in (0, 1, "x", None)] == [True, True, False, False]
    assert accepts("s BETWEEN 'b' AND 'd'", s="cat")


@pytest.mark.clause("F-5")
def test_like_compares_the_whole_string() -> None:
    assert parse("a LIKE 'x_%y'") == Like("a", ("x", ANY_ONE, ANY_RUN, "y"))
    assert parse("a LIKE '%%_%'") == parse("a LIKE '_%'") == Like("a", (ANY_ONE, ANY_RUN))
    assert parse("a NOT LIKE '100!%!!' ESCAPE '!'") == Like("a", ("100%!",), negated=True)
    assert parse(r"a LIKE '\%'") == Like("a", ("\\", ANY_RUN))
    assert [accepts("a LIKE 'x%'", a=value) for value in ("x", "xy", "ax", "X", 1)] == [True, True, False, False, False]
    assert [accepts("a NOT LIKE 'x%'", a=value) for value in ("x", "ax", 1, None)] == [False, True, False, False]
    assert accepts("a LIKE ''", a="")
    assert accepts("a LIKE '_'", a="\N{GRINNING FACE}")
    assert accepts("a LIKE '%'", a="two\nlines")
    assert refusal("a LIKE 'x!y' ESCAPE '!'").column == 8
    assert refusal("a LIKE 'x!' ESCAPE '!'").column == 8
    assert refusal("a LIKE 'x' ESCAPE 'ab'").column == 19


@pytest.mark.clause("F-6", "F-22")
def test_is_null() -> None:
    assert parse("a IS NOT NULL") == NullTest("a", negated=True)
    assert accepts("a IS NULL")
    assert accepts("a IS NULL", a=None)
    assert not accepts("a IS NULL", a=0)
    assert not accepts("NOT a IS NULL")


@pytest.mark.clause("F-7")
def test_a_bare_attribute_asks_for_true() -> None:
    assert parse("a") == A
    assert [accepts("a AND n > 3", a=value, n=4) for value in (True, False, 1, "TRUE", None)] == [True] + 4 * [False]
    assert [accepts("NOT a", a=value) for value in (True, False, 1, None)] == [False, True, False, False]


@pytest.mark.clause("F-8")
def test_only_keywords_ignore_case() -> None:
    assert parse("a Not In (1) anD b iS nuLL") == parse("a NOT IN (1) AND b IS NULL")
    assert parse("Temp > 1") != parse("temp > 1")
    assert parse("a = TRUE") == parse("a = true")


@pytest.mark.clause("F-9", "F-20")
def test_numbers() -> None:
    spelled = {"0": 0, "+5": 5, "-5": -5, "3.25": 3.25, ".5": 0.5, "5.": 5.0, "1e-3": 0.001, "1E3": 1000.0, "007": 7}
    for text, number in spelled.items():
        tree = parse(f"a = {text}")
        assert isinstance(tree, Comparison)
        assert (tree.value, type(tree.value)) == (number, type(number))
    assert parse(f"a = {'9' * 400}") == Comparison("a", Operator.EQ, 10**400 - 1)
    assert not accepts("a = 9007199254740993", a=9007199254740992.0)
    assert accepts("a = 1.0", a=1)
    assert "1.79e308" in refusal("a > 1e400").reason


@pytest.mark.clause("F-10")
def test_strings() -> None:
    assert accepts("a = 'it''s'", a="it's")
    assert accepts("a = ''", a="")
    for character in ("\0", "\n", '"', "%", "\ud7ff", "\ue000", "\U0010ffff"):
        assert accepts(f"a = '{character}'", a=character)


@pytest.mark.clause("F-11")
def test_blanks_do_not_matter_but_a_unit_does() -> None:
    assert parse("\t a\r\n>3 AND(b)") == parse("a > 3 AND b")
    assert parse("a>3") == parse(" a > 3 ")
    assert refusal("temp > 30C").column == 10
    assert refusal("temp >\u00a030").column == 7


@pytest.mark.clause("F-12", "F-13", "F-14")
def test_names_have_one_spelling() -> None:
    spelled = {
        "temp": "temp",
        '"temp"': "temp",
        "pos.lat": "pos.lat",
        "tags[00]": "tags[0]",
        "rows[2].x[0]": "rows[2].x[0]",
        '"my key".x': '"my key".x',
        '"a.b"': '"a.b"',
        '"say ""hi"""': '"say ""hi"""',
        '"in"': '"in"',
        "a.in": "a.in",
        'a."in"': "a.in",
        '""': '""',
        '"$ts"': '"$ts"',
        "größe.温度": "größe.温度",
        '$user."a"': "$user.a",
        '$user."a b"': '$user."a b"',
    }
    for text, name in spelled.items():
        assert Filter.parse(f"{text} = 1").attributes == {name}
        assert Filter.parse(f"{name} = 1").attributes == {name}
    for text in ("a.", "a.[0]", "a[]", "a[-1]", "a[x]", "a..b", "a .b", "7a", "a-b", "in", "in.x", '"a', "a.7"):
        refusal(f"{text} = 1")


@pytest.mark.clause("F-15", "F-16")
def test_reserved_names() -> None:
    known = ["$topic", "$level1", "$level512", "$qos", "$retain", "$size", "$client", "$user.key"]
    assert Filter.parse(" AND ".join(f"{name} IS NULL" for name in known)).attributes == set(known)
    for name in ("$level0", "$level513", "$level", "$level01", "$topics", "$user", "$user[0]", "$user.a.b", "$qos.x"):
        refusal(f"{name} = 1")
    assert "$topic" in refusal("$topc = 'x'").reason
    assert '"$ts"' in refusal("$ts > 1").reason


@pytest.mark.clause("F-35")
def test_bytes_are_bounded() -> None:
    longest = f"a = '{'x' * (2048 - 6)}'"
    assert len(longest) == 2048
    Filter.parse(longest)
    for text in (longest + " ", f"a = '{'ä' * 1024}'", "x" * 1_000_000):
        with pytest.raises(FilterTooComplex, match="2048 bytes"):
            Filter.parse(text)


@pytest.mark.clause("F-36")
def test_terms_are_bounded() -> None:
    Filter.parse(" OR ".join(f"a={number}" for number in range(64)))
    Filter.parse(f"a IN ({','.join(map(str, range(64)))})")
    for text in (" AND ".join(f"a<>{number}" for number in range(65)), f"a IN ({','.join(map(str, range(65)))})"):
        with pytest.raises(FilterTooComplex, match="64 terms"):
            Filter.parse(text)


@pytest.mark.clause("F-37")
@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("NOT ", ""), ("NOT (", ")"), ("(", ""), ("(a AND ", "")])
def test_depth_is_bounded(before: str, after: str) -> None:
    levels = before.count("(") + before.count("NOT")
    most = 16 // levels
    if after or "NOT" in before:
        Filter.parse(before * most + "a" + after * most)
    with pytest.raises(FilterTooComplex, match="16 deep"):
        Filter.parse(before * (most + 1) + "a" + after * (most + 1))
    with pytest.raises(FilterTooComplex):
        parse(before * 10_000 + "a" + after * 10_000)


@pytest.mark.clause("F-40")
def test_no_text_causes_anything_but_a_refusal() -> None:
    chance = random.Random(20_240_601)
    words = [
        "a",
        "$topic",
        '"q"',
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "LIKE",
        "ESCAPE",
        "IS",
        "NULL",
        "TRUE",
        "(",
        ")",
    ]
    words += [
        ",",
        "=",
        "<",
        ">",
        "<>",
        "'x'",
        "'",
        '"',
        "1",
        "-",
        ".",
        "[0]",
        "[",
        "%",
        "\ud800",
        "\0",
        "é",
        " ",
        "1e999",
    ]
    for _ in range(5_000):
        text = " ".join(chance.choices(words, k=chance.randrange(1, 14)))
        if chance.random() < 0.5:
            text = text.replace(" ", "")
        try:
            Filter.parse(text)
        except (FilterInvalid, FilterTooComplex):
            continue


REFUSALS = {
    "": (1, "empty"),
    "   ": (4, "empty"),
    "temp >": (7, "found the end"),
    "temp > > 3": (8, "expected a number, a 'string', TRUE or FALSE after >, found '>'"),
    "temp == 3": (6, "="),
    "temp != 3": (6, "<>"),
    "a && b": (3, "AND"),
    "a lik 'x'": (3, "did you mean LIKE?"),
    "a > 3 ADN b": (7, "did you mean AND?"),
    "a IS NUL": (6, "did you mean NULL?"),
    "a IS TRUE": (6, "= TRUE"),
    "(a": (3, "closes column 1"),
    "a)": (2, "closes nothing"),
    "a = 'x": (5, "not closed"),
    '"a': (1, "not closed"),
    "a = \u2018x\u2019": (5, "straight"),
    "'x'": (4, "alone is no condition"),
    "a IN 1": (6, "'('"),
    "a IN (1 2)": (9, "',' or ')'"),
    "a IN (1(2)": (8, "',' or ')'"),
    "a IN (1,)": (9, "in the list"),
    "a BETWEEN 1 OR 2": (13, "AND and the upper end"),
    "a NOT = 1": (7, "IN, BETWEEN or LIKE"),
    "a LIKE 3": (8, "'pattern'"),
    "a LIKE x": (8, "'x' in single quotes"),
    "in = 3": (1, '"in"'),
    "in.x = 3": (1, '"in".x'),
    "temp.>3": (5, "after '.' comes a key"),
    "a[x]=1": (2, "index"),
    "a ? 1": (3, "'?'"),
    "\ud800 = 1": (1, "surrogate"),
    "a = = 3": (5, "expected a number"),
}


@pytest.mark.clause("F-41", "F-43")
@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_name_the_column_and_the_cure(text: str) -> None:
    column, words = REFUSALS[text]
    error = refusal(text)
    assert error.column == column
    assert words in error.reason
    assert str(error) == f"column {column}: {error.reason}"


@pytest.mark.clause("F-41")
@pytest.mark.parametrize(
    ("name", "column"), [("in.x", 1), ("$tpoic", 1), ("$level513", 1), ("$user", 1), ("$qos.a", 5), ("$level3[0]", 8)]
)
def test_a_refused_name_says_where_it_stands_each_time(name: str, column: int) -> None:
    for before in ("", "b AND ", "   c = 1 OR ", ""):
        assert refusal(f"{before}{name} = 3").column == len(before) + column


@pytest.mark.clause("F-42")
@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("a = b", 5, "literals only"),
        ('site = "north"', 8, "'north' in single quotes"),
        ("a + 1 > 3", 3, "do not calculate"),
        ("a+1 > 3", 2, "do not calculate"),
        ("a = NULL", 5, "IS NULL"),
        ("1 = 1", 5, "an attribute"),
        ("a > TRUE", 5, "no order"),
        ("TRUE < a", 1, "no order"),
        ("a BETWEEN FALSE AND TRUE", 11, "no order"),
        ("a IN (1, 'x')", 10, "one kind"),
        ("a IN (1, TRUE)", 10, "one kind"),
        ("a BETWEEN 1 AND 'x'", 17, "one kind"),
    ],
)
def test_what_the_language_leaves_out(text: str, column: int, words: str) -> None:
    error = refusal(text)
    assert (error.column, words in error.reason) == (column, True), error
