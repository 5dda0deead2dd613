"""The tokens of the filter language, each with its column."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import FilterInvalid
from edgebroker.filters.names import KEYWORDS, PATH, WORD
from edgebroker.predicate import Value


class TokenKind(Enum):
    """The kind of a token, as error messages name it."""

    NAME = "an attribute"
    KEYWORD = "a keyword"
    NUMBER = "a number"
    STRING = "a string"
    SYMBOL = "a symbol"
    END = "the end"


_NAME, _KEYWORD, _NUMBER, _STRING, _SYMBOL, _END = TokenKind


@dataclass(slots=True)  # not frozen, which takes 0.3 us more for each; only the parser uses tokens
class FilterToken:
    """One token. `text` as written (keywords in upper case), `value` of a literal, `column` of its first character.

    `text` alone distinguishes keywords and symbols from all other tokens: no name is a keyword, a literal begins with a
    quote, a digit, a sign or a point, and the end has no text.
    """

    kind: TokenKind
    text: str
    column: int
    value: Value = None

    def __str__(self) -> str:
        """Return the token as an error message names it."""
        if self.kind is _END:
            return "the end"
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        return f"{self.kind.value} {shown}" if self.kind in (_STRING, _NUMBER) else f"'{shown}'"


_TOKEN = re.compile(
    rf"""(?P<blanks>[ \t\r\n]*+)(?:
    (?P<name>{PATH})
    |(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<unit>{WORD})?
    |(?P<string>'(?:[^']|'')*+')
    |(?P<wrong>==|!=|=<|=>|&&|\|\||!|=~)
    |(?P<symbol><>|<=|>=|[=<>(),])
    |(?P<unreadable>.)
    |(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
"""Blanks and the token behind them. One of the groups always matches, so every token begins where the last one
ended.
"""
_UNSENDABLE = re.compile("[\ud800-\udfff]")

_INSTEAD: Final = {
    "==": "equality is written =",
    "!=": "inequality is written <>",
    "=<": "'at most' is written <=",
    "=>": "'at least' is written >=",
    "&&": "'and' is written AND",
    "||": "'or' is written OR",
    "!": "'not' is written NOT",
    "=~": "patterns are written LIKE 'abc%'",
}
_CURLY_QUOTES: Final = "\u2018\u2019\u201c\u201d\u201e\u201a\u00b4`"


def tokens_of(text: str) -> list[FilterToken]:
    """Return the tokens of *text*; the last one is END. Time grows linearly with the text. Raises FilterInvalid."""
    unsendable = _UNSENDABLE.search(text)
    if unsendable:
        raise FilterInvalid("a lone surrogate is no character", unsendable.start() + 1)
    tokens: list[FilterToken] = []
    column = 1
    # findall with a tuple per token takes a sixth less time than match objects; groups are not nested
    for blanks, name, number, unit, string, wrong, symbol, unreadable, _ in _TOKEN.findall(text):
        column += len(blanks)
        if name:
            upper = name.upper()
            tokens.append(
                FilterToken(_KEYWORD, upper, column) if upper in KEYWORDS else FilterToken(_NAME, name, column)
            )
        elif symbol:
            tokens.append(FilterToken(_SYMBOL, symbol, column))
        elif wrong or unit or unreadable:
            found = _TOKEN.match(text, column - 1)
            assert found is not None
            raise FilterInvalid(_refusal(found, text, tokens), found.start(found.lastgroup or 0) + 1)
        elif number:
            tokens.append(FilterToken(_NUMBER, number, column, _number(number, column)))
        elif string:
            tokens.append(FilterToken(_STRING, string, column, string[1:-1].replace("''", "'")))
        else:
            tokens.append(FilterToken(_END, "", column))
            break  # behind blanks the empty end would match a second time
        column += len(name or symbol or number or string)
    return tokens


def _number(word: str, column: int) -> int | float:
    """Return the exact whole number, or the nearest float. Raises FilterInvalid if it is too large."""
    if word.lstrip("+-").isdecimal():
        return int(word)
    number = float(word)
    if number in (float("inf"), float("-inf")):
        raise FilterInvalid(f"{word[:20]} is beyond the largest number with a fraction or exponent, 1.79e308", column)
    return number


def _refusal(found: re.Match[str], text: str, before: list[FilterToken]) -> str:
    """Return why *found* is not a token."""
    match found.lastgroup:
        case "wrong":
            return f"'{found['wrong']}' is no operator here; {_INSTEAD[found['wrong']]}"
        case "unit":
            unit, number = found["unit"][:20], found["number"][:20]
            return f"{unit!r} touches the number {number}; numbers have no unit; put a blank before a word"
        case _:
            return _unreadable(text, found.start("unreadable"), before)


def _unreadable(text: str, at: int, before: list[FilterToken]) -> str:
    """Return why no token begins at `text[at]`."""
    character = text[at]
    after_name = bool(before) and before[-1].kind is _NAME and before[-1].column + len(before[-1].text) == at + 1
    if character == "'":
        return "this string is not closed; it ends with ' and a quote inside is doubled: 'it''s'"
    if character == '"':
        return 'this quoted name is not closed; it ends with " and a quote inside is doubled'
    if character in _CURLY_QUOTES:
        return f"{character} (U+{ord(character):04X}) is no quote of this language; strings take 'straight' quotes"
    if character == "." and after_name:
        return "after '.' comes a key; a key that is no plain word is quoted: a.\"7 b\""
    if character == "[" and after_name:
        return "between '[' and ']' comes an index, a whole number from 0, or * for any; a key is written after '.'"
    if character in "+-*/%":
        return (
            f"'{character}' stands before no number; filters do not calculate, they compare an attribute with a literal"
        )
    if character == "$":
        return "after '$' comes a reserved name, such as $topic or $level1"
    shown = f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
    return f"{shown} means nothing here; odd attribute names take double quotes, strings single ones"
