"""F-5: what a text is like, against a reference that tries everything, compiled and in plain Python."""

from __future__ import annotations

import re
from random import Random

import pytest

from edgebroker import predicate
from edgebroker.filters.patterns import parts_of
from edgebroker.predicate import Pattern, end_of_places, end_of_places_plainly, end_of_text, end_of_text_plainly

LETTERS = ("ab", "ab\u00e9", "ab\u20ac\u0141", "a\U0001f600\U0001f500b", "a\0\x01b")


def is_like(pattern: str, text: str) -> bool:
    """F-5, letter by letter."""
    rows = {0}
    for sign in pattern:
        if sign == "%":
            rows = set(range(min(rows), len(text) + 1)) if rows else rows
        else:
            rows = {at + 1 for at in rows if at < len(text) and sign in ("_", text[at])}
    return len(text) in rows


@pytest.mark.clause("F-5")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("plainly", [False, True])
def test_patterns_mean_what_they_say(seed: int, plainly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plainly:
        monkeypatch.setattr(predicate, "end_of_places", end_of_places_plainly)
        monkeypatch.setattr(predicate, "end_of_text", end_of_text_plainly)
    chance = Random(seed)
    print(f"seed {seed}")
    for _ in range(2_000):
        letters = chance.choice(LETTERS)
        pattern = "".join(chance.choices(letters + "%_", k=chance.randrange(9)))
        text = "".join(chance.choices(chance.choice((letters, letters[:2])), k=chance.randrange(12)))
        said = Pattern(parts_of(pattern, None, 1)).accepts(text)
        assert said is is_like(pattern, text), (pattern, text)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 127, 128, 129, 400])
def test_long_segments_are_found_where_they_are_first(size: int) -> None:
    """64 places take one pass."""
    chance = Random(size)
    for letters in LETTERS:
        for _ in range(40):
            places = tuple(chance.choice(("", "", letters[0], letters[0], chance.choice(letters))) for _ in range(size))
            middle = "".join(place or chance.choice(letters) for place in places)
            ends = ["".join(chance.choices(letters[0] * 9 + letters, k=chance.randrange(150))) for _ in range(2)]
            text = middle.join(ends)
            at, stop = chance.randrange(3), len(text) - chance.randrange(3)
            wanted = re.compile("".join(re.escape(place) or "." for place in places), re.DOTALL)
            found = wanted.search(text, at, stop)
            end = -1 if found is None else found.end()
            assert end_of_places(places, text, at, stop) == end == end_of_places_plainly(places, text, at, stop)


@pytest.mark.parametrize("size", [1, 3, 64, 99, 130, 300])
def test_literals_are_found_where_they_are_first(size: int) -> None:
    chance = Random(size)
    for letters in LETTERS:
        for length in (0, 10, 100, 1_000, 3_000):
            literal = "".join(chance.choices(letters[0] * 40 + letters, k=size))
            ends = ["".join(chance.choices(letters[0] * 40 + letters, k=length)) for _ in range(2)]
            for text in ("".join(ends), literal.join(ends)):
                at, stop = min(2, len(text)), len(text) - chance.randrange(3)
                assert end_of_text(literal, text, at, stop) == end_of_text_plainly(literal, text, at, stop)


def test_a_text_that_is_too_short_has_no_place() -> None:
    for at, stop in ((0, 0), (0, 1), (2, 1), (3, 3)):
        assert end_of_places(("a", "", "b"), "aab"[:3], at, stop) == -1
    assert end_of_places(("a", "", "b"), "aab", 0, 3) == 3
