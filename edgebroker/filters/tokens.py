"""The words of the filter language: text in, tokens out, each with its column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edgebroker.errors import FilterInvalid
from edgebroker.event import Value
from edgebroker.filters.names import KEYWORDS, PATH, WORD


class TokenKind(Enum):
    """What a token is, in the words of an error message."""

    NAME = "an attribute"
    KEYWORD = "a keyword"
    NUMBER = "a number"
    STRING = "a string"
    SYMBOL = "a symbol"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """One word. `text` as written (keywords in upper case), `value` of a literal, `column` of its first character."""

    kind: TokenKind
    text: str
    column: int
    value: Value = None

    def is_(self, *words: str) -> bool:
        """Whether this is one of these keywords or symbols."""
        return self.text in words and self.kind in (TokenKind.KEYWORD, TokenKind.SYMBOL)

    def __str__(self) -> str:
        """The token as an error message names it."""
        if self.kind is TokenKind.END:
            return "the end"
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        return f"{self.kind.value} {shown}" if self.kind in (TokenKind.STRING, TokenKind.NUMBER) else f"'{shown}'"


_TOKEN = re.compile(
    rf"""(?P<blank>[ \t\r\n]+)
    |(?P<wrong>==|!=|=<|=>|&&|\|\||!|=~)
    |(?P<name>{PATH})
    |(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<string>'(?:[^']|'')*+')
    |(?P<symbol><>|<=|>=|[=<>(),])""",
    re.VERBOSE,
)
_WORD = re.compile(WORD)
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


def tokens_of(text: str) -> list[Token]:
    """The tokens of *text*; the last one is END. Time grows linearly with the text. Raises FilterInvalid."""
    unsendable = _UNSENDABLE.search(text)
    if unsendable:
        raise FilterInvalid("a lone surrogate is no character", unsendable.start() + 1)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise FilterInvalid(_unreadable(text, at, tokens), at + 1)
        if found.lastgroup != "blank":
            tokens.append(_token(found, text))
        at = found.end()
    tokens.append(Token(TokenKind.END, "", len(text) + 1))
    return tokens


def _token(found: re.Match[str], text: str) -> Token:
    word, column = found[0], found.start() + 1
    match found.lastgroup:
        case "name":
            if word.upper() in KEYWORDS:
                return Token(TokenKind.KEYWORD, word.upper(), column)
            return Token(TokenKind.NAME, word, column)
        case "number":
            return Token(TokenKind.NUMBER, word, column, _number(found, text))
        case "string":
            return Token(TokenKind.STRING, word, column, word[1:-1].replace("''", "'"))
        case "wrong":
            raise FilterInvalid(f"'{word}' is no operator here; {_INSTEAD[word]}", column)
        case _:
            return Token(TokenKind.SYMBOL, word, column)


def _number(found: re.Match[str], text: str) -> int | float:
    """The exact whole number, or the nearest float. Raises FilterInvalid: a unit sticks to it, or it is too large."""
    unit = _WORD.match(text, found.end())
    if unit:
        raise FilterInvalid(
            f"{unit[0][:20]!r} touches the number {found[0][:20]}; numbers have no unit; put a blank before a word",
            found.end() + 1,
        )
    try:
        return int(found[0])
    except ValueError:
        number = float(found[0])
    if number in (float("inf"), float("-inf")):
        raise FilterInvalid(
            f"{found[0][:20]} is beyond the largest number with a fraction or exponent, 1.79e308", found.start() + 1
        )
    return number


def _unreadable(text: str, at: int, before: list[Token]) -> str:
    """Why no token begins at `text[at]`."""
    character = text[at]
    after_name = (
        bool(before) and before[-1].kind is TokenKind.NAME and before[-1].column + len(before[-1].text) == at + 1
    )
    if character == "'":
        return "this string is not closed; it ends with ' and a quote inside is doubled: 'it''s'"
    if character == '"':
        return 'this quoted name is not closed; it ends with " and a quote inside is doubled'
    if character in _CURLY_QUOTES:
        return f"{character} (U+{ord(character):04X}) is no quote of this language; strings take 'straight' quotes"
    if character == "." and after_name:
        return "after '.' comes a key; a key that is no plain word is quoted: a.\"7 b\""
    if character == "[" and after_name:
        return "between '[' and ']' comes an index, a whole number from 0; a key is written after '.'"
    if character in "+-*/%":
        return (
            f"'{character}' stands before no number; filters do not calculate, they compare an attribute with a literal"
        )
    if character == "$":
        return "after '$' comes a reserved name, such as $topic or $level1"
    shown = f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
    return f"{shown} means nothing here; odd attribute names take double quotes, strings single ones"
