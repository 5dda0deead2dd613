"""`edgebroker explain --covers`: what it says of two filters, and the event that tells them apart."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgebroker.cli.explain.meaning import compare
from edgebroker.filters import Filter


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


@pytest.mark.parametrize(
    ("this", "other", "relation"),
    [
        ("temp > 30", "30 < temp", "equal"),
        ("temp > 30", "temp > 31 AND site = 'north'", "covers"),
        ("temp = 31", "temp > 30", "covered"),
        ("temp < 5 OR temp >= 5", "temp BETWEEN 3 AND 9", "covers"),
        ("temp > 30", "temp < 30", "apart"),
        ("temp > 30", "temp > 'b'", "apart"),
        ("temp > 30", "temp < 40", "overlaps"),
        ("site LIKE 'a%'", "site LIKE 'ab%c'", "covers"),
        ("site LIKE 'a%' AND site LIKE '%c'", "site LIKE 'a%c'", "covers"),
        ("site LIKE 'ab%c%'", "site LIKE 'ab%' AND site LIKE '%xc%'", "unknown"),
        ("site LIKE '%ab%' AND x = 1", "site LIKE '%ba%' AND x IN (1, 2)", "neither"),
        ("temp > 3 AND temp < 2", "temp = 1", "covered"),
        ("$qos IN (0, 1, 2)", "$qos >= 1", "covers"),
        ("pos.lat = 1", "pos IS NOT NULL", "unknown"),
    ],
)
def test_how_two_filters_stand_to_each_other(this: str, other: str, relation: str) -> None:
    assert compare(Filter.parse(this), Filter.parse(other)).relation == relation


def test_an_event_tells_them_apart_and_the_attribute_is_named() -> None:
    result = explain("temp > 30 AND temp <= 50", "--covers", "temp > 40 AND site = 'north'")
    assert result.exit_code == 0, result.output
    assert [line.rstrip() for line in result.stdout.splitlines()][-4:] == [
        "compared with   site = 'north' AND temp > 40",
        "                some events satisfy both, and each accepts some that the other does not",
        "                only the other accepts site = 'north' and temp = 51; "
        "here temp is a number above 30 and at most 50",
        "                only this one accepts temp = 31 without site; there site is 'north'",
    ]


def test_what_cannot_be_decided_is_said_with_the_attribute() -> None:
    result = explain("site LIKE 'ab%c%'", "--covers", "site LIKE 'ab%' AND site LIKE '%xc%'")
    assert "not decided for site" in result.stdout


def test_one_that_accepts_nothing_is_compared_too() -> None:
    result = explain("a = 1 AND a = 2", "--covers", "a IS NULL")
    assert "only the other accepts a message without a; here nothing is accepted" in result.stdout


def test_the_comparison_for_programs() -> None:
    told = json.loads(explain("temp > 30", "--covers", "temp >= 31", "--json").stdout)
    assert told["covers"]["relation"] == "covers"
    assert told["covers"]["other"] == "temp >= 31"
    assert "covers" not in json.loads(explain("temp > 30", "--json").stdout)


def test_a_mistake_in_the_other_filter_is_shown_like_one_in_the_first() -> None:
    result = explain("temp > 30", "--covers", "temp >> 30")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[1] == "  temp >> 30"
