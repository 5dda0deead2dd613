"""The hand-written parser against a grammar for `lark`: both accept the same texts and build the same trees."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from lark import Lark, Token, Transformer
from lark.exceptions import LarkError, VisitError

from edgebroker.errors import FilterInvalid, FilterTooComplex
from edgebroker.filters import Filter
from edgebroker.filters.names import AttributeName
from edgebroker.filters.parser import parse
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
    terms_of,
)
from edgebroker.predicate import ANY_ONE, ANY_RUN

GRAMMAR = r"""
?start: condition
?condition: conjunction (_OR conjunction)*                         -> any_of
?conjunction: negation (_AND negation)*                            -> all_of
?negation: NOT negation                                            -> negated
         | "(" condition ")"
         | term
?term: NAME                                                        -> bare
     | NAME OPERATOR literal                                       -> comparison
     | literal OPERATOR NAME                                       -> flipped
     | NAME [NOT] _IN "(" literal ("," literal)* ")"               -> membership
     | NAME [NOT] _BETWEEN literal _AND literal                    -> between
     | NAME [NOT] _LIKE STRING [_ESCAPE STRING]                    -> like
     | NAME _IS [NOT] _NULL                                        -> presence
!literal: NUMBER | STRING | TRUE | FALSE
OPERATOR: "<>" | "<=" | ">=" | "=" | "<" | ">"
_AND.2: /AND(?!\w)/i
_OR.2: /OR(?!\w)/i
NOT.2: /NOT(?!\w)/i
_IN.2: /IN(?!\w)/i
_BETWEEN.2: /BETWEEN(?!\w)/i
_LIKE.2: /LIKE(?!\w)/i
_ESCAPE.2: /ESCAPE(?!\w)/i
_IS.2: /IS(?!\w)/i
_NULL.2: /NULL(?!\w)/i
TRUE.2: /TRUE(?!\w)/i
FALSE.2: /FALSE(?!\w)/i
NAME: /(\$?[^\W\d]\w*|"([^"]|"")*")(\.([^\W\d]\w*|"([^"]|"")*")|\[[0-9]+\])*/
NUMBER.1: /[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?(?!\w)/i
STRING: /'([^']|'')*'/
%ignore /[ \t\r\n]+/
"""
RESERVED = re.compile(
    r'\$(topic|qos|retain|size|client|level([1-9][0-9]?|1[01][0-9]|12[0-8])|user\.([^\W\d]\w*|"([^"]|"")*"))'
)


class Refused(Exception):
    """The text fits the grammar and breaks a rule beside it."""


class Trees(Transformer[Token, Any]):
    """From lark's trees to ours."""

    def any_of(self, nodes: list[Node]) -> Node:
        return joined(Or, *nodes)

    def all_of(self, nodes: list[Node]) -> Node:
        return joined(And, *nodes)

    def negated(self, found: list[Any]) -> Node:
        return Not(found[1], found[0].start_pos + 1)

    def literal(self, found: list[Token]) -> tuple[Any, int]:
        return value_of(found[0]), int(found[0].start_pos or 0) + 1

    def bare(self, found: list[Token]) -> Node:
        return comparison(found[0], "=", True, found[0].start_pos)

    def comparison(self, found: list[Any]) -> Node:
        return comparison(found[0], found[1], found[2][0], found[0].start_pos)

    def flipped(self, found: list[Any]) -> Node:
        mirrored = found[1].translate(str.maketrans("<>", "><")) if found[1] != "<>" else "<>"
        return comparison(found[2], mirrored, found[0][0], found[0][1] - 1)

    def membership(self, found: list[Any]) -> Node:
        values = tuple(value for value, _ in found[2:])
        one_kind(values)
        return InTest(name_of(found[0]), values, found[1] is not None, found[0].start_pos + 1)

    def between(self, found: list[Any]) -> Node:
        low, high = found[2][0], found[3][0]
        one_kind((low, high))
        if isinstance(low, bool):
            raise Refused
        return Between(name_of(found[0]), low, high, found[1] is not None, found[0].start_pos + 1)

    def like(self, found: list[Any]) -> Node:
        escape = None if found[3] is None else value_of(found[3])
        if escape is not None and len(escape) != 1:
            raise Refused
        parts = parts_of(value_of(found[2]), escape)
        return Like(name_of(found[0]), parts, found[1] is not None, found[0].start_pos + 1)

    def presence(self, found: list[Any]) -> Node:
        return NullTest(name_of(found[0]), found[1] is not None, found[0].start_pos + 1)


def name_of(token: Token) -> str:
    if token.startswith("$") and not RESERVED.fullmatch(token):
        raise Refused
    return AttributeName.parse(token).canonical


def value_of(token: Token) -> Any:
    if token.type in ("TRUE", "FALSE"):
        return token.type == "TRUE"
    if token.type == "STRING":
        return token[1:-1].replace("''", "'")
    if re.fullmatch("[+-]?[0-9]+", token):
        return int(token)
    if abs(float(token)) == float("inf"):
        raise Refused
    return float(token)


def comparison(name: Token, operator: str, value: Any, start: int | None) -> Node:
    if isinstance(value, bool) and operator not in ("=", "<>"):
        raise Refused
    return Comparison(name_of(name), Operator(operator), value, (start or 0) + 1)


def one_kind(values: tuple[Any, ...]) -> None:
    if len({str if isinstance(value, str) else bool if isinstance(value, bool) else float for value in values}) > 1:
        raise Refused


def parts_of(pattern: str, escape: str | None) -> tuple[str | int, ...]:
    """Characters marked as literal or wildcard first; then runs of wildcards in order; then texts joined."""
    marks: list[str | int] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            if pattern[position : position + 1] not in ("%", "_", escape):
                raise Refused
            marks.append(pattern[position])
        else:
            marks.append({"%": ANY_RUN, "_": ANY_ONE}.get(character, character))
        position += 1
    parts: list[str | int] = []
    for mark in marks:
        parts.append(mark)
        while parts[-2:] in ([ANY_RUN, ANY_RUN], [ANY_RUN, ANY_ONE]):
            parts[-2:] = [ANY_RUN] if parts[-1] == ANY_RUN else [ANY_ONE, ANY_RUN]
        if len(parts) > 1 and isinstance(parts[-1], str) and isinstance(parts[-2], str):
            parts[-2:] = [parts[-2] + parts[-1]]
    return tuple(parts)


ORACLE = Lark(GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=True, propagate_positions=False)


def by_grammar(text: str) -> Node | None:
    try:
        return Trees().transform(ORACLE.parse(text))  # type: ignore[no-any-return]
    except VisitError as error:
        if isinstance(error.orig_exc, Refused):
            return None
        raise
    except LarkError:
        return None


def by_hand(text: str) -> Node | None:
    try:
        return parse(text)
    except FilterInvalid as refused:
        column = refused.column
    assert 1 <= column <= len(text) + 1
    return None


def agree(text: str) -> bool:
    """Whether both accept *text*; they must say the same, down to the columns. Too complex counts as accepted."""
    try:
        hand = by_hand(text)
    except FilterTooComplex:
        return True
    assert repr(hand) == repr(by_grammar(text)), text
    return hand is not None


# -- texts ----------------------------------------------------------------------------------------------------

NAMES = ("a", "_", "größe", "pos.lat", "a.in", "tags[0]", '"my key".x', '"in"', "$topic", "$level2", '$user."b c"')
LITERALS = (
    ("0", "-1", "+7", "3.5", ".5", "5.", "1e3", "1E-2", "12345678901234567890123", "1e999", "007"),
    ("''", "'a'", "'it''s'", "'%'", "'x_%'", "'\u00e9'", "'AND'"),
    ("TRUE", "false", "True"),
)
BLANKS = (" ", "  ", "\t", "\r\n ")


ACCIDENTS = (
    *("", "", "", "", " ", " ", "'", '"', "(", ")", ",", "=", "<", ".", "[", "]", "-", "5", "e", "$"),
    *(" AND ", " NOT ", "%", "!", "x", "\u0663", "_", "in", ".x"),
)


class Writer:
    """Writes random conditions in random spelling: nearly all of them are filters."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def condition(self, depth: int = 0) -> str:
        pick = self.chance.random()
        if depth > 4 or pick < 0.4:
            return self.term()
        if pick < 0.55:
            return self.spaced("NOT", self.condition(depth + 1))
        if pick < 0.7:
            return "(" + self.condition(depth + 1) + ")"
        return self.spaced(self.condition(depth + 1), self.chance.choice(("AND", "OR")), self.condition(depth + 1))

    def term(self) -> str:
        name = self.chance.choice(NAMES)
        kind = self.chance.choice(LITERALS)
        one, two = self.chance.choice(kind), self.chance.choice(kind)
        negation = self.chance.choice(((), ("NOT",)))
        operator = self.chance.choice(tuple(Operator)) if kind is not LITERALS[2] else self.chance.choice(("=", "<>"))
        return self.chance.choice(
            (
                lambda: name,
                lambda: self.spaced(name, operator, one),
                lambda: self.spaced(one, operator, name),
                lambda: self.spaced(name, *negation, "IN", "(", one, ",", two, ")"),
                lambda: self.spaced(name, *negation, "BETWEEN", one, "AND", two),
                lambda: self.spaced(name, *negation, "LIKE", self.chance.choice(LITERALS[1])),
                lambda: self.spaced(name, *negation, "LIKE", "'a!_%'", "ESCAPE", "'!'"),
                lambda: self.spaced(name, "IS", *negation, "NULL"),
            )
        )()

    def spaced(self, *words: str) -> str:
        """The words with blanks between, which symbols can sometimes do without; keywords in any case."""
        text = ""
        for word in words:
            if word.isupper() and word.isalpha() and self.chance.random() < 0.3:
                word = word.lower()
            symbols = (not word[0].isalnum() and word[0] in "=<>(,)'") or text[-1:] in tuple("=<>(,'")
            blank = "" if not text or (symbols and self.chance.random() < 0.5) else self.chance.choice(BLANKS)
            text += blank + word
        return text

    def damaged(self, text: str) -> str:
        """*text* after one or two small accidents."""
        for _ in range(self.chance.randrange(1, 3)):
            at = self.chance.randrange(len(text) + 1)
            span = self.chance.randrange(0, 4)
            insert = self.chance.choice(ACCIDENTS)
            text = text[:at] + insert + text[at + span :]
        return text


def texts(seed: int, count: int) -> Iterator[str]:
    writer = Writer(seed)
    for _ in range(count):
        yield writer.condition()


# -- the laws -------------------------------------------------------------------------------------------------


@pytest.mark.clause("F-1", "F-2", "F-3", "F-4", "F-5", "F-6", "F-7", "F-8", "F-11")
@pytest.mark.parametrize("seed", range(4))
def test_parser_and_grammar_build_the_same_tree(seed: int) -> None:
    accepted = sum(map(agree, texts(seed, 500)))
    assert accepted > 300, "the writer should mostly write filters"


@pytest.mark.clause("F-1", "F-11", "F-41", "F-42")
@pytest.mark.parametrize("seed", range(4))
def test_parser_and_grammar_refuse_the_same_texts(seed: int) -> None:
    writer = Writer(seed)
    verdicts = [agree(writer.damaged(text)) for text in texts(seed + 100, 1_000)]
    assert 50 < sum(verdicts) < 950, "damage should neither always nor never matter"


@pytest.mark.clause("F-24")
@pytest.mark.parametrize("seed", range(4))
def test_the_canonical_text_is_a_fixed_point(seed: int) -> None:
    for text in texts(seed + 200, 300):
        if by_hand(text) is None:
            continue
        try:
            first = Filter.parse(text)
            again = Filter.parse(first.canonical)
        except FilterTooComplex:
            continue
        assert again.canonical == first.canonical, text
        assert again == first
        assert {term.attribute for term in terms_of(again.tree)} == first.attributes
