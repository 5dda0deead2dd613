"""The two trit operators and the three mask operations [LM, operators; worked example of the slides]."""

from __future__ import annotations

from itertools import product

import pytest

from edgebroker.matching.outcomes import (
    NOWHERE,
    TritVector,
    absorb,
    alternative_combine,
    format_trits,
    parallel_combine,
    refine,
)
from tests.support.trits import parse_trits

ALL_TRIPLES = ["".join(letters) for letters in product("YMN", repeat=3)]


def test_a_vector_is_written_with_link_0_first() -> None:
    assert parse_trits("YNM") == TritVector(yes=0b001, maybe=0b100)
    assert format_trits(TritVector(yes=0b001, maybe=0b100), 4) == "YNMN"


def test_another_letter_is_refused() -> None:
    with pytest.raises(ValueError, match="'X'"):
        parse_trits("YX")


@pytest.mark.parametrize(
    ("a", "b", "alternative", "parallel"),
    [
        ("Y", "Y", "Y", "Y"),
        ("Y", "M", "M", "Y"),
        ("Y", "N", "M", "Y"),
        ("M", "M", "M", "M"),
        ("M", "N", "M", "M"),
        ("N", "N", "N", "N"),
    ],
)
def test_truth_tables(a: str, b: str, alternative: str, parallel: str) -> None:
    for left, right in ((a, b), (b, a)):
        assert format_trits(alternative_combine(parse_trits(left), parse_trits(right)), 1) == alternative
        assert format_trits(parallel_combine(parse_trits(left), parse_trits(right)), 1) == parallel


def test_the_example_of_the_slides() -> None:
    alternative = alternative_combine(parse_trits("MYY"), parse_trits("NYN"))
    assert format_trits(alternative, 3) == "MYM"
    assert format_trits(parallel_combine(alternative, parse_trits("YYN")), 3) == "YYM"


@pytest.mark.parametrize("operator", [alternative_combine, parallel_combine])
def test_both_operators_are_commutative_associative_and_idempotent(operator) -> None:  # type: ignore[no-untyped-def]
    for a, b, c in product("YMN", repeat=3):
        x, y, z = parse_trits(a), parse_trits(b), parse_trits(c)
        assert operator(x, y) == operator(y, x)
        assert operator(operator(x, y), z) == operator(x, operator(y, z))
        assert operator(x, x) == x


def test_nowhere_is_the_identity_of_parallel_combine() -> None:
    for text in ALL_TRIPLES:
        assert parallel_combine(parse_trits(text), NOWHERE) == parse_trits(text)


@pytest.mark.parametrize(
    ("mask", "annotation", "refined"),
    [("NMM", "MYM", "NYM"), ("MMM", "YMN", "YMN"), ("YYY", "NNN", "YYY"), ("NNN", "YYY", "NNN")],
)
def test_refining_only_settles_what_was_open(mask: str, annotation: str, refined: str) -> None:
    assert format_trits(refine(parse_trits(mask), parse_trits(annotation)), 3) == refined


def test_absorbing_takes_over_a_yes_and_nothing_else() -> None:
    assert format_trits(absorb(parse_trits("MMYN"), parse_trits("YNNY")), 4) == "YMYN"
