"""The truth of a filter for one event: true, false or unknown (None). This is the reference for every faster search.

A comparison is unknown if the attribute is NULL, composite, or of another type (number, string, boolean) than the
literal. So is `LIKE` for a text of more than LIKE_CHARS_MAX characters, unless the pattern is a plain prefix or has no
wildcard. NOT of unknown is unknown; AND is false if any operand is false; OR is true if any operand is true. An event
is delivered only if the filter is true.
"""

from __future__ import annotations

from typing import assert_never

from edgebroker.filters.patterns import is_plain
from edgebroker.filters.syntax import And, Between, Comparison, InTest, Like, Node, Not, NullTest, Operator, Or
from edgebroker.limits import LIKE_CHARS_MAX
from edgebroker.predicate import Attributes, Bound, Composite, Pattern, Value, kind_of


def evaluate(node: Node, attributes: Attributes) -> bool | None:
    """Return the truth of *node* for an event with these *attributes*."""
    match node:
        case And(operands):
            return _all(operands, attributes)
        case Or(operands):
            return _any(operands, attributes)
        case Not(operand):
            truth = evaluate(operand, attributes)
            return None if truth is None else not truth
        case NullTest(attribute, negated):
            return (attributes.get(attribute) is None) is not negated
        case Comparison(attribute, operator, literal):
            value = attributes.get(attribute)
            return _compare(value, operator, literal) if _comparable(value, literal) else None
        case InTest(attribute, literals, negated):
            value = attributes.get(attribute)
            return (value in literals) is not negated if _comparable(value, literals[0]) else None
        case Between(attribute, low, high, negated):
            value = attributes.get(attribute)
            if not _comparable(value, low):
                return None
            return (_compare(value, Operator.GE, low) and _compare(value, Operator.LE, high)) is not negated
        case Like(attribute, parts, negated):
            value = attributes.get(attribute)
            if not isinstance(value, str) or (len(value) > LIKE_CHARS_MAX and not is_plain(parts)):
                return None
            return Pattern(parts, negated).accepts(value)
        case _:
            assert_never(node)


def _all(operands: tuple[Node, ...], attributes: Attributes) -> bool | None:
    truth: bool | None = True
    for operand in operands:
        one = evaluate(operand, attributes)
        if one is False:
            return False
        if one is None:
            truth = None
    return truth


def _any(operands: tuple[Node, ...], attributes: Attributes) -> bool | None:
    truth: bool | None = False
    for operand in operands:
        one = evaluate(operand, attributes)
        if one is True:
            return True
        if one is None:
            truth = None
    return truth


def _comparable(value: Value, literal: Bound) -> bool:
    """Return whether *value* is of the literal's type. NaN is of none: it equals nothing, itself included."""
    if value is None or isinstance(value, Composite) or value != value:
        return False
    return kind_of(value) is kind_of(literal)


def _compare(value: Value, operator: Operator, literal: Bound) -> bool:
    """Compare two values of one type. Whole numbers and floats compare exactly, strings by code point."""
    match operator:
        case Operator.EQ:
            return value == literal
        case Operator.NE:
            return value != literal
        case Operator.LT:
            return value < literal  # type: ignore[operator]
        case Operator.LE:
            return value <= literal  # type: ignore[operator]
        case Operator.GT:
            return value > literal  # type: ignore[operator]
        case Operator.GE:
            return value >= literal  # type: ignore[operator]
        case _:
            assert_never(operator)
