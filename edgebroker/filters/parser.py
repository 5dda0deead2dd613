"""The filter language: a Pratt parser from text to tree. docs/filters.md is the specification.

    condition := condition OR condition | condition AND condition | NOT condition | ( condition ) | term
    term      := name [ (= | <> | < | <= | > | >=) literal ]  |  literal (= | <> | < | <= | > | >=) name
               | name [NOT] IN ( literal, ... )  |  name [NOT] BETWEEN literal AND literal
               | name [NOT] LIKE string [ESCAPE string]  |  name IS [NOT] NULL

NOT binds tighter than AND, AND tighter than OR. A bare name is `name = TRUE`. A term about any element of an array,
`tags[*] = 'x'`, is a comparison with TRUE of an attribute that has the term's canonical text as its name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from edgebroker.errors import FilterInvalid, FilterTooComplex
from edgebroker.filters.names import AttributeName, is_element
from edgebroker.filters.patterns import parts_of
from edgebroker.filters.spelling import canonical
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
    Term,
    joined,
)
from edgebroker.filters.tokens import FilterToken, TokenKind, tokens_of
from edgebroker.limits import FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_TERMS_MAX
from edgebroker.predicate import Bound, ValueType, kind_of

_BINDING: Final[dict[str, tuple[int, type[And | Or]]]] = {"OR": (1, Or), "AND": (2, And)}
_OPERATORS: Final = {operator.value: operator for operator in Operator}
_AFTER_NAME: Final = ("IN", "BETWEEN", "LIKE", "IS", "NOT", "AND", "OR")
_NAMES_REMEMBERED: Final = 256
"""Cached names: thousands of filters use the same few attributes, and parsing a name takes 3 us. Names of 2 KiB would
take 4 MiB.
"""
_KIND_NAMES: Final = {ValueType.NUMBER: "a number", ValueType.STRING: "a string", ValueType.BOOLEAN: "a boolean"}
_NAME: Final = TokenKind.NAME
_VALUED: Final = (TokenKind.NUMBER, TokenKind.STRING)
_LITERAL: Final = "a number, a 'string', TRUE or FALSE"


def parse(text: str) -> Node:
    """Parse a filter. Raises FilterInvalid (with a column) or FilterTooComplex (a bound of `edgebroker.limits`)."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > FILTER_BYTES_MAX:
        raise FilterTooComplex(f"a filter has at most {FILTER_BYTES_MAX} bytes, this one has {size}")
    parser = _Parser(tokens_of(text))
    return parser.whole()


def parse_element_test(text: str) -> Term:
    """Parse the name of an attribute that is a test of any element of an array: the term, of an attribute such as
    `tags[*]`. Raises FilterInvalid.
    """
    parser = _Parser(tokens_of(text), keeps_elements=True)
    term = parser.whole()
    if isinstance(term, Not | And | Or) or not is_element(term.attribute):
        raise FilterInvalid(f"{text[:40]!r} is no test of an element", 1)
    return term


class _Parser:
    """Parses one filter. Every method begins at `self._token` and leaves it behind the tokens it has consumed."""

    def __init__(self, tokens: list[FilterToken], *, keeps_elements: bool = False) -> None:
        """*keeps_elements*: terms about elements stay as they are, instead of becoming attributes."""
        self._keeps_elements = keeps_elements
        self._tokens = iter(tokens)
        self._token = next(self._tokens)
        self._depth = 0
        self._terms = 0

    def whole(self) -> Node:
        if self._at_end():
            raise FilterInvalid("the filter is empty; write a condition such as temp > 30", self._token.column)
        node = self._condition(0)
        if self._token.text == ")":
            raise FilterInvalid("this ')' closes nothing", self._token.column)
        if not self._at_end():
            raise self._unexpected("AND, OR or the end", "AND", "OR")
        return node

    # -- conditions -------------------------------------------------------------------------------------------

    def _condition(self, floor: int) -> Node:
        """Parse operands joined by operators that bind tighter than *floor*."""
        left = self._operand()
        while (word := self._token.text) in _BINDING:
            strength, kind = _BINDING[word]
            if strength <= floor:
                break
            operands = [left]
            while self._token.text == word:
                self._next()
                operands.append(self._condition(strength))
            left = joined(kind, *operands)
        return left

    def _operand(self) -> Node:
        token = self._token
        if token.kind is _NAME:
            return self._attribute_term(self._named_term())
        if token.text == "NOT":
            self._enter(token)
            node: Node = Not(self._operand(), token.column)
        elif token.text == "(":
            self._enter(token)
            node = self._condition(0)
            if self._token.text != ")":
                raise self._unexpected(f"AND, OR or the ')' that closes column {token.column}", "AND", "OR")
            self._next()
        elif self._at_literal():
            return self._attribute_term(self._flipped_term())
        else:
            error = self._unexpected("a condition (an attribute, a literal, NOT or '(')")
            if token.kind is TokenKind.KEYWORD:
                error = FilterInvalid(
                    f'{error.reason}; as an attribute\'s name it is quoted: "{token.text.lower()}"', error.column
                )
            raise error
        self._depth -= 1
        return node

    def _enter(self, token: FilterToken) -> None:
        self._depth += 1
        if self._depth > FILTER_DEPTH_MAX:
            raise FilterTooComplex(f"parentheses and NOTs nest at most {FILTER_DEPTH_MAX} deep (column {token.column})")
        self._next()

    def _attribute_term(self, term: Term) -> Term:
        """Return *term*; if it is about the elements of an array, the comparison that stands for it."""
        if self._keeps_elements or not is_element(term.attribute):
            return term
        return Comparison(canonical(term), Operator.EQ, True, term.column)

    # -- terms ------------------------------------------------------------------------------------------------

    def _named_term(self) -> Term:
        start = self._token.column
        name = self._name()
        word = self._token.text
        if word in _OPERATORS:
            operator = _OPERATORS[word]
            self._next()
            literal = self._token
            return self._comparison(name, operator, self._literal(f"after {word}"), start, literal)
        negated = word == "NOT"
        if negated:
            self._next()
            word = self._token.text
        if word == "IN":
            return self._in_test(name, negated, start)
        if word == "BETWEEN":
            return self._between(name, negated, start)
        if word == "LIKE":
            return self._like(name, negated, start)
        if negated:
            raise self._unexpected("IN, BETWEEN or LIKE after NOT", "IN", "BETWEEN", "LIKE")
        if word == "IS":
            return self._null_test(name, start)
        if self._at_end() or word in ("AND", "OR", ")"):
            self._count()
            return Comparison(name, Operator.EQ, True, start)
        raise self._unexpected("a comparison (= <> < <= > >= IN BETWEEN LIKE IS), AND, OR or the end", *_AFTER_NAME)

    def _flipped_term(self) -> Comparison:
        literal, value = self._token, self._literal("")
        if self._token.text not in _OPERATORS:
            raise FilterInvalid(
                f"{literal} alone is no condition; a comparison (= <> < <= > >=) follows, not {self._token}",
                self._token.column,
            )
        operator = _OPERATORS[self._token.text]
        self._next()
        if self._token.kind is not _NAME:
            raise self._unexpected(f"an attribute to compare with {literal}")
        return self._comparison(self._name(), operator.flipped, value, literal.column, literal)

    def _comparison(self, name: str, operator: Operator, value: Bound, start: int, literal: FilterToken) -> Comparison:
        self._count()
        if isinstance(value, bool) and operator not in (Operator.EQ, Operator.NE):
            raise FilterInvalid("TRUE and FALSE have no order; compare them with = or <>", literal.column)
        return Comparison(name, operator, value, start)

    def _in_test(self, name: str, negated: bool, start: int) -> InTest:
        self._next()
        if self._token.text != "(":
            raise self._unexpected("'(' and a list of literals after IN")
        values: list[Bound] = []
        while not values or self._token.text == ",":
            self._next()
            literal = self._token
            values.append(self._literal("in the list"))
            self._same_kind(values[0], values[-1], "an IN list", literal)
            self._count()
        if self._token.text != ")":
            raise self._unexpected("',' or ')' in the list")
        self._next()
        return InTest(name, tuple(values), negated, start)

    def _between(self, name: str, negated: bool, start: int) -> Between:
        self._next()
        literal = self._token
        low = self._literal("after BETWEEN")
        if isinstance(low, bool):
            raise FilterInvalid("TRUE and FALSE have no order; compare them with = or <>", literal.column)
        if self._token.text != "AND":
            raise self._unexpected("AND and the upper end of BETWEEN", "AND")
        self._next()
        literal = self._token
        high = self._literal("after BETWEEN ... AND")
        self._same_kind(low, high, "BETWEEN", literal)
        self._count()
        return Between(name, low, high, negated, start)

    def _like(self, name: str, negated: bool, start: int) -> Like:
        self._next()
        pattern = self._token
        text = self._string("a 'pattern' after LIKE")
        escape: str | None = None
        if self._token.text == "ESCAPE":
            self._next()
            literal = self._token
            escape = self._string("an 'escape character' after ESCAPE")
            if len(escape) != 1:
                raise FilterInvalid(f"ESCAPE takes exactly one character, not {len(escape)}", literal.column)
        self._count()
        return Like(name, parts_of(text, escape, pattern.column), negated, start)

    def _null_test(self, name: str, start: int) -> NullTest:
        self._next()
        negated = self._token.text == "NOT"
        if negated:
            self._next()
        if self._token.text in ("TRUE", "FALSE"):
            raise FilterInvalid(f"IS asks for NULL only; write = {self._token.text}", self._token.column)
        if self._token.text != "NULL":
            raise self._unexpected("NULL after IS" if negated else "NULL or NOT NULL after IS", "NULL", "NOT")
        self._next()
        self._count()
        return NullTest(name, negated, start)

    # -- words ------------------------------------------------------------------------------------------------

    def _name(self) -> str:
        token = self._token
        self._next()
        try:
            return _canonical_name(token.text)
        except FilterInvalid as error:
            raise FilterInvalid(error.reason, token.column + error.column - 1) from None

    def _at_end(self) -> bool:
        return self._token.kind is TokenKind.END

    def _at_literal(self) -> bool:
        return self._token.kind in _VALUED or self._token.text in ("TRUE", "FALSE")

    def _literal(self, where: str) -> Bound:
        token = self._token
        if token.kind in _VALUED:
            self._next()
            assert isinstance(token.value, (int, float, str))
            return token.value
        if token.text in ("TRUE", "FALSE"):
            self._next()
            return token.text == "TRUE"
        if token.text == "NULL":
            raise FilterInvalid("nothing compares with NULL; write IS NULL or IS NOT NULL", token.column)
        if token.kind is _NAME:
            raise FilterInvalid(_no_literal(token, where), token.column)
        raise self._unexpected(f"{_LITERAL} {where}")

    def _string(self, wanted: str) -> str:
        token = self._token
        if token.kind is _NAME:
            raise FilterInvalid(_no_literal(token, f"where {wanted} is expected"), token.column)
        if token.kind is not TokenKind.STRING:
            raise self._unexpected(wanted)
        self._next()
        return str(token.value)

    def _same_kind(self, first: Bound, other: Bound, where: str, literal: FilterToken) -> None:
        one, two = kind_of(first), kind_of(other)
        if one is not two:
            raise FilterInvalid(
                f"{where} takes literals of one kind: it begins with {_KIND_NAMES[one]}, this is {_KIND_NAMES[two]}",
                literal.column,
            )

    def _count(self) -> None:
        self._terms += 1
        if self._terms > FILTER_TERMS_MAX:
            raise FilterTooComplex(
                f"a filter has at most {FILTER_TERMS_MAX} terms; every comparison and every value of an IN list is one"
            )

    def _next(self) -> None:
        self._token = next(self._tokens)

    def _unexpected(self, wanted: str, *keywords: str) -> FilterInvalid:
        """Return the error that names the token, the expectation, and the keyword most similar to a misspelt one."""
        token = self._token
        reason = f"expected {wanted}, found {token}"
        if token.kind is _NAME:
            from difflib import get_close_matches  # 0.2 MiB, loaded only after a misspelt keyword

            near = get_close_matches(token.text[:12].upper(), keywords, n=1)
            if near:
                reason += f"; did you mean {near[0]}?"
        elif token.kind is TokenKind.NUMBER and token.text[0] in "+-":
            reason += "; filters do not calculate"
        return FilterInvalid(reason, token.column)


@lru_cache(_NAMES_REMEMBERED)
def _canonical_name(text: str) -> str:
    """Return the canonical spelling of a name. Raises FilterInvalid, with a column inside the name."""
    return AttributeName.parse(text).canonical


def _no_literal(token: FilterToken, where: str) -> str:
    inner = token.text.strip('"')[:40].replace("'", "''")
    return (
        f"{token} {where} is an attribute, and attributes compare with literals only; "
        f"if it is meant as text, write '{inner}' in single quotes"
    )
