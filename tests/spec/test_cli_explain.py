"""`edgebroker explain`: what it says of a filter, of a mistake, and of an event."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebridge.session.subscription_text import parse_subscription
from edgebroker.cli import main
from edgebroker.cli.explain import marked_position
from edgebroker.cli.explain.terms import UNREADABLE, SubscriptionForms, predicate_text
from edgebroker.filters import Filter

TRUCK = "$level2 = 'truck-3' AND humidity BETWEEN 40 AND 60"


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def told(*arguments: str) -> dict[str, Any]:
    result = explain(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_explanation_for_people() -> None:
    result = explain("NOT temp <= 30 and site in ('north', 'south') OR door LIKE 'o_en%'", "--topic", "sensors/#")
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.stdout.splitlines()][:8] == [
        "understood as   door LIKE 'o_en%' OR site IN ('north', 'south') AND temp > 30",
        "true if either  door is a string like 'o_en%'   tried one by one",
        "or              site is one of 'north', 'south'   found by hash",
        "  and           temp is a number above 30         found among sorted ranges",
        "needs           door (in the payload)",
        "                site (in the payload)",
        "                temp (in the payload)",
        "subscribe       any MQTT   mosquitto_sub -t '$filter/NOT temp <= 30 and site in (%27north%27, %27south%27) "
        "OR door LIKE %27o_en%25%27/sensors/#' -v",
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = 5", "is 5"),
        ("a IN (5, 7)", "is one of 5, 7"),
        ("a <> 5", "is a number other than 5"),
        ("a NOT IN ('x', 'y')", "is a string other than 'x', 'y'"),
        ("a > 5", "is a number above 5"),
        ("a >= 5", "is a number at least 5"),
        ("a < 5", "is a number below 5"),
        ("a <= 5", "is a number at most 5"),
        ("a BETWEEN 5 AND 7", "is a number from 5 to 7"),
        ("a > 5 AND a < 7", "is a number above 5 and below 7"),
        ("a NOT BETWEEN 5 AND 7", "is a number below 5 or above 7"),
        ("a < 5 OR a = 7", "is a number below 5 or equal to 7"),
        ("a < 5 OR a > 5 AND a <> 7", "is a number other than 5, 7"),
        ("a LIKE 'ab%'", "is a string that begins with 'ab'"),
        ("a LIKE '%'", "is a string"),
        ("a LIKE '%x'", "is a string like '%x'"),
        ("a LIKE 'ab%x'", "is a string like 'ab%x'"),
        ("a NOT LIKE '%x'", "is a string unlike '%x'"),
        ("a LIKE '50!%%_' ESCAPE '!'", "is a string like '50!%_%' (escape !)"),
        ("a > 'k' AND a LIKE '%x'", "is a string above 'k' and like '%x'"),
        ("a", "is TRUE"),
        ("a IN (TRUE, FALSE)", "is one of FALSE, TRUE"),
        ("a IS NULL", "is absent or null"),
        ("a IS NOT NULL", "is there, whatever it holds"),
    ],
)
def test_a_test_in_words(expression: str, expected: str) -> None:
    ((test,),) = Filter.parse(expression).predicates
    assert predicate_text(test) == expected


def test_the_explanation_for_programs() -> None:
    found = told(TRUCK, "--topic", "cold-chain/#")
    assert found["canonical"] == TRUCK
    assert found["attributes"] == {"$level2": "$level", "humidity": "payload"}
    (conjunction,) = found["conjunctions"]
    assert [(test["attribute"], test["index"]) for test in conjunction] == [
        ("$level2", "equality"),
        ("humidity", "range"),
    ]
    assert "event" not in found


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("a > 3 AND a < 2", "No event can satisfy this filter: it contradicts itself."),
        ("a IS NULL OR a IS NOT NULL", "Every event satisfies this filter."),
    ],
)
def test_filters_that_say_nothing_are_pointed_out(expression: str, remark: str) -> None:
    assert remark in explain(expression).stdout


def words_of(line: str) -> list[str]:
    """The words a POSIX shell makes of *line*."""
    done = subprocess.run(["sh", "-c", rf"printf '%s\0' {line}"], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


EXPRESSIONS = [
    "temp > 30",
    TRUCK,
    "a LIKE '50!%' ESCAPE '!'",
    "\"odd key\" = 'it''s' OR \"a/b\" = '+#%`\\'",
    "a = 'hi!' AND b = '$(x)'",
    "x = '\u00e9 \u6f22' AND\n y = 2",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_way_to_subscribe_carries_the_filter_through_a_shell(expression: str) -> None:
    wanted = Filter.parse(expression)
    by_need = {needs: words_of(line) for needs, line in SubscriptionForms(expression, "a/+/#").commands}
    anywhere = by_need["any MQTT"]
    request = parse_subscription(anywhere[anywhere.index("-t") + 1])
    assert (request.filter, request.topic_filter.text) == (wanted, "a/+/#")
    five = by_need["MQTT 5"]
    request = parse_subscription(five[five.index("-t") + 1], five[five.index("$where") + 1])
    assert (request.filter, request.topic_filter.text) == (wanted, "a/+/#")
    own = by_need["our client"]
    assert Filter.parse(own[own.index("--where") + 1]) == wanted


@pytest.mark.parametrize(
    ("event", "truth", "delivered"),
    [
        ('{"temp": 31}', "true", True),
        ('{"temp": 29}', "false", False),
        ('{"temp": "31"}', "unknown", False),
        ("{}", "unknown", False),
        ("not json", "unknown", False),
    ],
)
def test_an_event_is_judged_as_the_broker_would(event: str, truth: str, delivered: bool) -> None:
    found = told("temp > 30", "--event", event)["event"]
    assert (found["truth"], found["delivered"]) == (truth, delivered)


def test_an_event_that_cannot_be_read_is_told_as_such() -> None:
    for event, is_unreadable in (('{"temp": "\\q"}', True), ("{}", False), ("", False), ("ON", False)):
        assert told("temp IS NULL", "--event", event)["event"]["unreadable"] is is_unreadable
    assert explain("temp IS NULL", "--event", "{").stdout.rstrip().endswith(UNREADABLE)


def test_a_difference_in_the_elements_of_an_array_is_told_as_a_condition() -> None:
    reasons = told("tags[*] = 'x'", "--covers", "NOT tags[*] = 'x' AND a = 1")["covers"]["reasons"]
    assert reasons == [
        "only the other accepts a = 1 and NOT tags[*] = 'x'; here tags[*] = 'x' is TRUE",
        "only this one accepts tags[*] = 'x'; there a is 1",
    ]


def test_every_term_is_judged_and_the_reason_is_given() -> None:
    arguments = (
        f"{TRUCK} OR pos.lat = 1 OR $user.site = 'n' OR $qos = 1",
        "--event",
        '{"humidity": "50", "pos": {"lat": []}}',
    )
    terms = told(*arguments, "--topic-name", "c/truck-3", "--qos", "1", "--user-property", "site", "n")["event"][
        "terms"
    ]
    assert [(term["truth"], term["because"]) for term in terms] == [
        ("true", "$level2 is 'truck-3'"),
        ("unknown", "humidity is a string, '50'"),
        ("unknown", "pos.lat is an object, an array, bytes or not a number"),
        ("true", "$user.site is 'n'"),
        ("true", "$qos is 1"),
    ]


def test_the_judgement_for_people() -> None:
    lines = explain("temp > 30 AND site = 'n'", "--event", '{"temp": 31}').stdout.splitlines()
    assert lines[-3:] == [
        "this event      true    temp > 30, for temp is 31",
        "                unknown site = 'n', for site is absent or null",
        "                unknown in all: not delivered",
    ]


def test_a_filter_that_asks_for_the_topic_needs_one_to_judge() -> None:
    result = explain(TRUCK, "--event", "{}")
    assert result.exit_code == 2
    assert "$level2" in result.stderr
    assert "--topic-name" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("a = 1", "--topic", "a/#/b"), "--topic:"), (("a = 1", "--event", "{}", "--topic-name", "a/+"), "--topic-name:")],
)
def test_a_topic_that_is_none_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    result = explain(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_mistake_is_shown_with_a_caret_under_its_column() -> None:
    result = explain("temp > > 30")
    assert result.exit_code == 2
    assert result.stdout == ""
    message, text, caret = result.stderr.splitlines()
    assert message.startswith("edgebroker: column 8: expected a number")
    assert (text, caret) == ("  temp > > 30", "         ^")


def test_a_mistake_for_programs() -> None:
    result = explain("temp > > 30", "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert (found["ok"], found["column"]) == (False, 8)


def test_a_filter_beyond_the_bounds_is_refused_without_a_column() -> None:
    result = explain("a = " + "1" * 3_000)
    assert result.exit_code == 2
    assert result.stderr == "edgebroker: a filter has at most 2048 bytes, this one has 3004\n"


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("abc", 4, ("abc", "   ^")),
        ("a\tb\nc", 5, ("a b c", "    ^")),
        ("\u6f22 =", 4, ("\u6f22 =", "    ^")),
        ("e\u0301 =", 5, ("e\u0301 =", "   ^")),
        ("x" * 200, 100, ("..." + "x" * 75 + "...", " " * 53 + "^")),
    ],
)
def test_the_caret_stands_under_the_character(text: str, column: int, expected: tuple[str, str]) -> None:
    assert marked_position(text, column) == expected
