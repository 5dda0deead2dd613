"""Trees and tests as text: the canonical form by which equal filters are recognised, and descriptions for people."""

from __future__ import annotations

from typing import Final, assert_never

from edgebroker.filters.names import is_element_test
from edgebroker.filters.patterns import spelled
from edgebroker.filters.syntax import (
    And,
    Between,
    Comparison,
    InTest,
    Like,
    Node,
    Not,
    NullTest,
    Operator,
    Or,
    joined,
    positive,
)
from edgebroker.predicate import Bound, ElementaryTest, Interval, ValueType

_KIND_WORDS: Final = {ValueType.NUMBER: "any number", ValueType.STRING: "any string", ValueType.BOOLEAN: "any boolean"}


def canonical(node: Node) -> str:
    """Return the common spelling of filters that differ only in blanks, parentheses, NOTs, order, repetition or number
    formats.

    The text is a filter with the same meaning. It may be longer than the original.
    """
    return _text(_ordered(positive(node)))


def literal(value: Bound) -> str:
    """Return *value* in the spelling of the language; equal values have one spelling."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value != int(value):
        return repr(value)
    whole = str(int(value))
    if len(whole) <= 16:
        return whole
    try:
        rounded = float(value)
    except OverflowError:
        return whole
    return min(whole, repr(rounded), key=len) if rounded == value else whole


def accepted_text(test: ElementaryTest) -> str:
    """Return the values that *test* accepts, in the filter language as far as possible."""
    if test.kind in (ValueType.NULL, ValueType.NOT_NULL):
        return f"{test.attribute} IS {'NOT ' if test.kind is ValueType.NOT_NULL else ''}NULL"
    if is_element_test(test.attribute) and test.intervals != (Interval(),):
        return " OR ".join(_element_text(test.attribute, interval.contains(True)) for interval in test.intervals)
    if test.intervals == (Interval(),):
        texts = [] if test.patterns else [f"{test.attribute} is {_KIND_WORDS[test.kind]}"]
    elif len(test.intervals) > 1 and all(interval.is_point for interval in test.intervals):
        texts = [f"{test.attribute} IN ({', '.join(literal(i.low) for i in test.intervals if i.low is not None)})"]
    else:
        ranges = [_interval_text(test.attribute, interval) for interval in test.intervals]
        texts = [ranges[0] if len(ranges) == 1 else f"({' OR '.join(ranges)})"]
    texts += [_like_text(test.attribute, pattern.parts, pattern.negated) for pattern in test.patterns]
    return " AND ".join(texts)


def _ordered(node: Node) -> Node:
    """Return the tree with the operands of every And and Or sorted by their text, each once."""
    if not isinstance(node, (And, Or)):
        return node
    kind = type(node)
    flat = joined(kind, *map(_ordered, node.operands))
    if not isinstance(flat, kind):
        return flat
    by_text = {_text(operand): operand for operand in flat.operands}
    return joined(kind, *(by_text[text] for text in sorted(by_text)))


def _text(node: Node) -> str:
    match node:
        case And(operands):
            return " AND ".join(f"({_text(one)})" if isinstance(one, Or) else _text(one) for one in operands)
        case Or(operands):
            return " OR ".join(map(_text, operands))
        case Not():
            raise AssertionError("negation has been pushed to the leaves")
        case Comparison(attribute, operator, bool(value)) if is_element_test(attribute):
            return _element_text(attribute, value is (operator is Operator.EQ))
        case Comparison(attribute, operator, bool(value)):
            return f"{attribute} = {literal(value is (operator is Operator.EQ))}"
        case Comparison(attribute, operator, value):
            return f"{attribute} {operator} {literal(value)}"
        case InTest(attribute, values, negated):
            return _members_text(attribute, sorted(set(map(literal, values))), negated)
        case Between(attribute, low, high, negated):
            return f"{attribute} {'NOT ' if negated else ''}BETWEEN {literal(low)} AND {literal(high)}"
        case Like(attribute, parts, negated):
            return _like_text(attribute, parts, negated)
        case NullTest(attribute, negated):
            return f"{attribute} IS {'NOT ' if negated else ''}NULL"
        case _:
            assert_never(node)


def _element_text(attribute: str, is_true: bool) -> str:
    """Return the condition that *attribute*, a test of any element of an array, is true or is false."""
    return attribute if is_true else f"NOT {attribute}"


def _members_text(attribute: str, values: list[str], negated: bool) -> str:
    if len(values) > 1:
        return f"{attribute} {'NOT ' if negated else ''}IN ({', '.join(values)})"
    if values[0] in ("TRUE", "FALSE"):
        return f"{attribute} = {literal((values[0] == 'TRUE') is not negated)}"
    return f"{attribute} {'<>' if negated else '='} {values[0]}"


def _like_text(attribute: str, parts: tuple[str | int, ...], negated: bool) -> str:
    pattern, escape = spelled(parts)
    text = f"{attribute} {'NOT ' if negated else ''}LIKE {literal(pattern)}"
    return f"{text} ESCAPE {literal(escape)}" if escape else text


def _interval_text(attribute: str, interval: Interval) -> str:
    if interval.is_point and interval.low is not None:
        return f"{attribute} = {literal(interval.low)}"
    ends = []
    if interval.low is not None:
        ends.append(f"{attribute} {'>=' if interval.low_closed else '>'} {literal(interval.low)}")
    if interval.high is not None:
        ends.append(f"{attribute} {'<=' if interval.high_closed else '<'} {literal(interval.high)}")
    return " AND ".join(ends)
