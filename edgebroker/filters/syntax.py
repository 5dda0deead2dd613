"""The syntax tree of a filter: frozen nodes with their columns. Negation can be pushed to the leaves.

`column` counts characters from 1, is where the node begins, and is not part of equality.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from edgebroker.dataclasses import dataclass
from edgebroker.predicate import Bound


class Operator(StrEnum):
    """A comparison with a literal on the right."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def flipped(self) -> Operator:
        """The operator with the same meaning when both sides are exchanged: `30 < temp` is `temp > 30`."""
        return _FLIPPED[self]

    @property
    def opposite(self) -> Operator:
        """The operator that is true exactly where this one is false (and unknown where this one is)."""
        return _OPPOSITE[self]


_EQ, _NE, _LT, _LE, _GT, _GE = Operator
_FLIPPED = {_EQ: _EQ, _NE: _NE, _LT: _GT, _LE: _GE, _GT: _LT, _GE: _LE}
_OPPOSITE = {_EQ: _NE, _NE: _EQ, _LT: _GE, _LE: _GT, _GT: _LE, _GE: _LT}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`attribute operator value`."""

    attribute: str
    operator: Operator
    value: Bound
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class InTest:
    """`attribute [NOT] IN (values)`; the values are of one kind."""

    attribute: str
    values: tuple[Bound, ...]
    negated: bool = False
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`attribute [NOT] BETWEEN low AND high`, ends included; both are numbers or both are strings."""

    attribute: str
    low: Bound
    high: Bound
    negated: bool = False
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Like:
    """`attribute [NOT] LIKE pattern`; `parts` as in `edgebroker.predicate.Pattern`, in their shortest form."""

    attribute: str
    parts: tuple[str | int, ...]
    negated: bool = False
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class NullTest:
    """`attribute IS [NOT] NULL`. Never unknown."""

    attribute: str
    negated: bool = False
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`."""

    operand: Node
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Junction:
    """Operands, of which there are at least two and none is of the same type."""

    operands: tuple[Node, ...]

    @property
    def column(self) -> int:
        """The column of the first operand."""
        return self.operands[0].column


@dataclass(frozen=True, slots=True)
class And(Junction):
    """All operands."""


@dataclass(frozen=True, slots=True)
class Or(Junction):
    """Any operand."""


Term: TypeAlias = Comparison | InTest | Between | Like | NullTest
"""A leaf: one attribute, tested once."""
Node: TypeAlias = Term | Not | And | Or


def joined(kind: type[And | Or], *nodes: Node) -> Node:
    """Return all *nodes* as operands of one And or Or, without nesting the same type."""
    operands: list[Node] = []
    for node in nodes:
        if isinstance(node, kind):
            operands.extend(node.operands)
        else:
            operands.append(node)
    return operands[0] if len(operands) == 1 else kind(tuple(operands))


def terms_of(node: Node) -> list[Term]:
    """Return the leaves, from left to right."""
    match node:
        case Not(operand):
            return terms_of(operand)
        case And(operands) | Or(operands):
            return [term for operand in operands for term in terms_of(operand)]
        case _:
            return [node]


def positive(node: Node, *, negated: bool = False) -> Node:
    """Return the same condition (or its negation) without any Not.

    De Morgan's laws are valid in three-valued logic, and every term has an opposite that is unknown exactly where the
    term is: both compare the same attribute with literals of the same type.
    """
    match node:
        case Not(operand):
            return positive(operand, negated=not negated)
        case And(operands):
            return joined(Or if negated else And, *(positive(operand, negated=negated) for operand in operands))
        case Or(operands):
            return joined(And if negated else Or, *(positive(operand, negated=negated) for operand in operands))
        case Comparison(operator=operator):
            return replace(node, operator=operator.opposite) if negated else node
        case InTest() | Between() | Like() | NullTest():
            return replace(node, negated=not node.negated) if negated else node
        case _:
            assert_never(node)
