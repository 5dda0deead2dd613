"""docs/filters.md, "Any element of an array": `tags[*] = 'x'`."""

from __future__ import annotations

import json
import random
from typing import Any

import cbor2
import pytest

from edgebridge.session.filter_cost import FilterCost
from edgebroker.errors import FilterInvalid, FilterTooComplex
from edgebroker.filters import Extractor, Filter, explain
from edgebroker.filters.covering import covers
from edgebroker.filters.elements import ELEMENTS_MAX, SCAN_WEIGHT
from edgebroker.filters.evaluation import evaluate
from edgebroker.filters.names import AttributeName, AttributeSource
from edgebroker.filters.parser import parse_element_test
from edgebroker.interest import Interest
from edgebroker.limits import FILTER_TERMS_MAX
from edgebroker.matching.pst import Pst
from edgebroker.overlay.link.codec.messages import interest_values, read_interest
from edgebroker.predicate import COMPOSITE, Value
from edgebroker.topics import TopicFilter


def accepts(text: str, payload: Any, content_type: str | None = None) -> bool:
    """Whether the filter is true, by its tree and by its normal form, of *payload*: bytes, or what JSON has of it."""
    content = Filter.parse(text)
    encoded = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    found = Extractor(content.attributes).extract(
        encoded, topic="t", qos=0, retain=False, client="c", content_type=content_type
    )
    is_true = content.accepts(found)
    met = (all(test.accepts(found.get(test.attribute)) for test in predicate) for predicate in content.predicates)
    assert is_true is any(met)
    assert Filter.parse(content.canonical).accepts(found) is is_true
    return is_true


@pytest.mark.clause("F-59", "F-60")
@pytest.mark.parametrize(
    ("text", "true", "not_true"),
    [
        ("tags[*] = 'x'", [["x"], ["y", "x"], ["x", 1, None, {}]], [[], ["y"], [["x"]], "x", None, {"0": "x"}]),
        ("NOT tags[*] = 'x'", [[], ["y"], [1, None, {}]], [["x"], ["y", "x"], "y", None, {}]),
        ("tags[*] <> 'x'", [["y"], ["x", "y"]], [[], ["x"], [1], None]),
        ("tags[*] IN ('x', 'z')", [["z"]], [["y"], []]),
        ("tags[*] NOT IN ('x', 'z')", [["y", "x"]], [["x", "z"], [1]]),
        ("tags[*] > 3", [[1, 4], [3.5]], [[3], ["4"], [True]]),
        ("3 < tags[*]", [[1, 4]], [[3]]),
        ("tags[*] BETWEEN 2 AND 3", [[1, 2.5]], [[1, 4], []]),
        ("tags[*] NOT BETWEEN 2 AND 3", [[1, 2.5]], [[2, 3]]),
        ("tags[*] LIKE 'al%m'", [["x", "alarm"]], [["alarms"], [1]]),
        ("tags[*] NOT LIKE 'al%m'", [["alarm", "x"]], [["alarm"]]),
        ("tags[*]", [[False, True]], [[False], [1], ["true"]]),
        ("NOT tags[*]", [[False], []], [[True], True]),
        ("tags[*] <> TRUE", [[False]], [[True], [1]]),
        ("tags[*] IS NULL", [[1, None]], [[1], [], None]),
        ("tags[*] IS NOT NULL", [[None, {}]], [[None], []]),
        ("NOT tags[*] IS NULL", [[1], []], [[None], None]),
        ("tags[*] = 'x' AND NOT tags[*] = 'y'", [["x"]], [["x", "y"], ["y"]]),
        ("tags[*] BETWEEN 5 AND 1", [], [[2], [6]]),
        ("NOT tags[*] BETWEEN 5 AND 1", [[2], []], [3]),
        ("tags[*].on AND tags[*].id = 7", [[{"id": 7}, {"on": True}]], [[{"id": 7}], [7]]),
        ("tags[*].a[1].b = 'x'", [[{"a": [0, {"b": "x"}]}]], [[{"a": [{"b": "x"}]}]]),
        ("tags[*] = 9007199254740993", [[9007199254740993]], [[9007199254740992]]),
        ("tags[*] = 18446744073709551617", [[18446744073709551617]], [[18446744073709551616]]),
    ],
)
def test_a_test_of_any_element(library: str, text: str, true: list[Any], not_true: list[Any]) -> None:
    for value, is_true in [*((one, True) for one in true), *((one, False) for one in not_true)]:
        assert accepts(text, {"tags": value}) is is_true, value
        assert accepts(text, cbor2.dumps({"tags": value})) is is_true, value
    assert not accepts(text, b"{}")
    assert not accepts(text, b"{")


@pytest.mark.clause("F-59")
def test_elements_of_what_is_elsewhere() -> None:
    assert accepts("value[*] = 3", [1, 3])
    assert accepts("a.b[0][*] = 3", {"a": {"b": [[1, 3], [4]]}})
    assert not accepts("a.b[0][*] = 4", {"a": {"b": [[1, 3], [4]]}})
    assert accepts('"a[*]"[*] = 3 AND "b[*]" = 1', {"a[*]": [3], "b[*]": 1})
    assert accepts("tags[*] = 1", b'{"tags":[NaN,1]}')
    for text in ("a[*][*] = 1", "a[*].b[*] = 1", "$topic[*] = 'x'", "$user[*] = 'x'", "$user.a[*] = 'x'", "a[**] = 1"):
        with pytest.raises(FilterInvalid):
            Filter.parse(text)
    for name in ("a[*] = ", "a[*] = 1 AND b = 2", "a[*] x", "NOT a[*]", "a[*]=other"):
        with pytest.raises(FilterInvalid):
            Extractor([name])


@pytest.mark.clause("F-61", "F-24")
def test_the_canonical_text_is_the_test_and_its_name() -> None:
    for texts in (
        ("tags[*] = 'x'", "'x' = \"tags\"[*]", "(tags[*] IN ('x'))", "NOT NOT tags[*]='x'"),
        ("NOT tags[*] = 'x'", "NOT ('x' = tags[*])"),
        ("tags[*] IN (1, 2)", "tags[*] IN (2.0, 1, 2)"),
        ("tags[*] = TRUE", "tags[*]", "tags[*] <> FALSE"),
    ):
        first, *others = map(Filter.parse, texts)
        assert first.canonical == texts[0]
        for other in others:
            assert other == first
            assert other.predicates == first.predicates
    [[test]] = explain(Filter.parse("NOT tags[*] > 3.50")).conjunctions
    assert (test.attribute, test.accepts) == ("tags[*] > 3.5", "NOT tags[*] > 3.5")
    name = AttributeName.parse(test.attribute)
    assert (name.canonical, name.source) == (test.attribute, AttributeSource.ELEMENT)
    assert Filter.parse("NOT tags[*] = 'x' AND tags[*] = 'x'").predicates == ()


@pytest.mark.clause("F-62")
def test_what_is_not_among_the_first_elements_is_unknown(library: str) -> None:
    extractor = Extractor(Filter.parse("t[*] = 1 AND u[*] > 1 AND v[*] = 1").attributes)

    def taken(payload: dict[str, Any]) -> dict[str, Value]:
        return extractor.extract(json.dumps(payload).encode(), topic="t", qos=0, retain=False, client="c")

    full = [0] * ELEMENTS_MAX
    assert taken({"t": full, "u": full}) == {"t[*] = 1": False, "u[*] > 1": False}
    assert extractor.arrays_too_long == 0
    assert extractor.element_work > 0
    assert taken({"t": [*full, 1], "u": [2, *full]}) == {"u[*] > 1": True}
    assert extractor.arrays_too_long == 2
    assert taken({"t": [10**400, *full], "v": [1]}) == {"v[*] = 1": True}
    assert extractor.arrays_too_long == 1
    assert taken({}) == {}
    assert extractor.arrays_too_long == extractor.element_work == 0
    assert not accepts("NOT t[*] = 1", {"t": [*full, 0]})


@pytest.mark.clause("F-36", "F-62")
def test_what_tests_of_elements_cost_is_bounded() -> None:
    values = ", ".join(map(str, range(FILTER_TERMS_MAX)))
    listed = Filter.parse(f"t[*] IN ({values})")
    with pytest.raises(FilterTooComplex):
        Filter.parse(f"t[*] IN ({values}, 99)")
    with pytest.raises(FilterTooComplex):
        listed.conjoined(Filter.parse("a = 1"))
    assert FilterCost.of(listed).patterns == 0
    assert FilterCost.of(Filter.parse("t[*] > 1 AND t[*] < 3")).patterns == 0
    assert FilterCost.of(Filter.parse("t[*] LIKE '%a%' AND t[*] LIKE 'a%'")).patterns == SCAN_WEIGHT


@pytest.mark.clause("F-51", "F-63")
def test_covering_and_links_take_them_as_attributes() -> None:
    one, both, none = map(Filter.parse, ("t[*] = 'x'", "t[*] = 'x' AND a = 1", "NOT t[*] = 'x'"))
    assert covers(one.predicates, both.predicates)
    assert not covers(both.predicates, one.predicates)
    assert not covers(one.predicates, none.predicates)
    assert not covers(none.predicates, one.predicates)
    for content in (one, both, none):
        interest = Interest(TopicFilter.parse("a/#"), content.predicates[0])
        assert read_interest(interest_values(interest)) == interest


ELEMENTS = (1, 2.5, -3, "x", "y", "", "xy", True, False, None, {"c": 1}, {"c": "x"}, [1], {}, 2**70)
TERMS = (
    *("{} = 1", "{} <> 'x'", "{} < 2", "{} >= 2.5", "{} IN ('x', 'y')", "{} NOT IN (1, 2.5)", "{} BETWEEN 1 AND 2.5"),
    *("{} NOT BETWEEN 'x' AND 'xz'", "{} LIKE 'x%'", "{} NOT LIKE '%y'", "{} IS NULL", "{} IS NOT NULL", "{} = TRUE"),
    *("{} = FALSE", "{} > 1180591620717411303423"),
)


@pytest.mark.clause("F-60", "F-23")
def test_elements_one_by_one_say_the_same(chance: random.Random) -> None:
    """Against the definition: the term alone, evaluated for each element; and the matcher against the tree."""
    tree = Pst()
    texts = [
        f"{chance.choice(('', 'NOT '))}{term.format(path)}" for term in TERMS for path in ("t[*]", "t[*].c", "o.t[*]")
    ]
    others = chance.sample(texts, len(texts))
    texts += [f"({a}) {chance.choice(('AND', 'OR'))} {b}" for a, b in zip(texts, others, strict=True)]
    filters = [Filter.parse(text) for text in texts]
    for number, content in enumerate(filters):
        tree.insert(number, TopicFilter.parse("a"), content.predicates)
    names = frozenset().union(*(content.attributes for content in filters))
    extractor = Extractor(names)
    for _ in range(200):
        array: Any = chance.choices(ELEMENTS, k=chance.randrange(5))
        if chance.random() < 0.1:
            array = chance.choice(ELEMENTS)
        payload = json.dumps({"t": array, "o": {"t": array}}).encode()
        found = extractor.extract(payload, topic="a", qos=0, retain=False, client="c")
        for name in names:
            assert found.get(name) is by_definition(name, array), (name, array)
        matched = set(tree.match(tree.resolve("a"), found))
        assert matched == {number for number, content in enumerate(filters) if content.accepts(found)}


def by_definition(name: str, array: Any) -> bool | None:
    """True if the test is true of some element, None if there is no array."""
    if not isinstance(array, list):
        return None
    term = parse_element_test(name)
    values = array
    if term.attribute.endswith(".c"):
        values = [one.get("c") if isinstance(one, dict) else None for one in array]
    values = [COMPOSITE if isinstance(value, (list, dict)) else value for value in values]
    return any(evaluate(term, {term.attribute: value}) is True for value in values)
