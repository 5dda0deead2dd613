"""`edgebroker explain --subscriptions`: a filter, a message, a client or the tree, among subscriptions of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from edgebroker.cli import main
from edgebroker.cli.explain.match_trace import mismatch
from edgebroker.topics import TopicFilter

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"id": 1, "client": "anna", "topic": "sensors/#", "where": "temp > 30", "link": 0},
    {"id": 2, "client": "anna", "topic": "sensors/+/climate", "link": 0},
    {"id": 3, "client": "bert", "topic": "sensors/#", "where": "site = 'north' AND temp > 30", "link": 1},
    {"id": 4, "client": "bert", "topic": "plant/#", "where": "temp > 30", "link": 1},
    {"id": 5, "client": "carl", "topic": "sensors/#", "where": "site = 'north' AND door LIKE '%open%'", "link": 2},
    {"id": 6, "topic": "sensors/#", "where": "temp > 30", "link": 2},
    {"id": 7, "client": "emil", "topic": "sensors/#", "where": "site = 'south' AND temp < 5", "link": 1},
    {"id": 8, "client": "emil", "topic": "sensors/#", "where": "site = 'south'", "link": 2},
]
WARM = ("--event", '{"temp": 31, "site": "south"}', "--topic-name", "sensors/hall/climate")

Explain = Callable[..., Result]


@pytest.fixture
def explain(tmp_path: Path) -> Explain:
    """Runs `edgebroker explain --subscriptions`, the tree branching from four predicates on."""
    file = tmp_path / "S.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in SUBSCRIPTIONS), encoding="utf-8")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["explain", "--subscriptions", str(file), "--bucket", "4", *arguments])

    return run


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# -- a filter ---------------------------------------------------------------------------------------------------------


def test_a_filter_is_placed_among_the_others(explain: Explain) -> None:
    assert lines(explain("site = 'north' AND temp > 30", "--topic", "sensors/#"))[-7:] == [
        "sits on         topic filter sensors/#, with 6 other subscriptions",
        "behind          temp: > 30   (1 of 3 edges, 2 predicates)",
        "in              a bucket, with 1 other predicate, too small for columns",
        "its tests       site is 'north'             compared: the bucket has no column for it",
        "                temp is a number above 30   settled by the way to the bucket",
        "costs           2 steps of the search, a bucket of 2 gone through one by one",
        "shares          its place with 1 subscription of the same predicate",
    ]


def test_a_filter_is_placed_for_programs(explain: Explain) -> None:
    found = told(explain("temp > 30", "--topic", "sensors/#", "--json"))
    assert found["canonical"] == "temp > 30"
    assert found["sits"]["topic"] == "sensors/#"
    (placed,) = found["sits"]["predicates"]
    assert placed["path"] == [{"fork": "temp", "edge": "temp: > 30", "reason": "", "edges": 3, "leaves": 2}]
    assert placed["tests"] == [
        {"attribute": "temp", "words": "is a number above 30", "settled": "path", "compared": False}
    ]
    assert (placed["steps"], placed["scanned"], placed["subscriptions"]) == (2, 2, 3)


@pytest.mark.parametrize(
    ("expression", "line"),
    [
        ("a IS NULL OR a IS NOT NULL", "matches every message there: nothing is searched"),
        ("a = 1 AND a = 2", "can match nothing"),
        ("temp > 30", "2 steps of the search; every message that gets there matches"),
    ],
)
def test_filters_that_need_no_comparing(explain: Explain, expression: str, line: str) -> None:
    assert any(said.endswith(line) for said in lines(explain(expression, "--topic", "sensors/#")))


def test_alternatives_are_placed_one_by_one(explain: Explain) -> None:
    said = lines(explain("site = 'north' OR temp < 0", "--topic", "sensors/#"))
    assert [line for line in said if line.startswith("alternative")] == [
        "alternative 1   site is 'north'",
        "alternative 2   temp is a number below 0",
    ]


def test_a_message_is_judged_by_the_filter_as_without_subscriptions(explain: Explain) -> None:
    said = lines(explain("temp > 30", "--event", '{"temp": 31}'))
    assert "this event      true    temp > 30, for temp is 31" in said
    assert "sits on         topic filter #, alone" in said


# -- a message --------------------------------------------------------------------------------------------------------


def test_a_message_is_followed_through_the_tree(explain: Explain) -> None:
    assert lines(explain(*WARM)) == [
        "topic filters   sensors/#: 6 subscriptions, 5 predicates to search",
        "                sensors/+/climate: 1 subscription, 1 without filter",
        "search            1  sensors/#      fork on temp, which is 31: 2 of 3 edges taken",
        "                                      not temp: < 5",
        "                  2    temp: > 30   bucket of 2, no columns: 2 subscriptions decided, 1 compared, 0 match",
        "                                      in vain 3: site is 'south', must be 'north'",
        "                  3    *            bucket of 2, no columns: 2 compared, 1 matches",
        "                                      in vain 5: door is absent or null, must be a string like '%open%'",
        "                3 steps, 4 predicates in the buckets, 3 compared, 2 of them in vain",
        "links             0  Y  a subscription without filter is reached over it",
        "                  1  N  searched to the end, last at step 2",
        "                  2  Y  certain at step 2",
        "masks             1  sensors/#      mask YMM, here MMM, so YMM",
        "                  2    temp: > 30   mask YMM, here YMY, so YMY",
        "                  3    *            mask YMY, here NNM, so YNY: no further",
        "                3 steps",
        "matches         4 subscriptions of 3 clients",
        "                6      6",
        "                anna   1, 2",
        "                emil   8",
    ]


def test_a_message_is_followed_for_programs(explain: Explain) -> None:
    found = told(explain(*WARM, "--client", "bert", "--json"))
    assert found["matches"] == [1, 2, 6, 8]
    assert found["clients"] == {"6": [6], "anna": [1, 2], "emil": [8]}
    fork, warm, star = found["steps"]
    assert (fork["attribute"], fork["value"]) == ("temp", "31")
    assert (fork["taken"], fork["not_taken"]) == (["temp: > 30", "*"], ["temp: < 5"])
    assert (warm["decided"], star["decided"]) == ([1, 6], [])
    assert warm["in_vain"] == [{"subscriptions": [3], "failed": "site is 'south', must be 'north'"}]
    assert [(end["yes"], end["why"]) for end in found["links"]["ends"]] == [
        (True, "plain"),
        (False, "searched"),
        (True, "certain"),
    ]
    assert [reason["matches"] for reason in found["reasons"]] == [False, False]


def test_a_message_that_no_topic_filter_matches(explain: Explain) -> None:
    said = lines(explain("--event", "{}", "--topic-name", "garden"))
    assert said[0] == "topic filters   none matches this topic"
    assert said[-1] == "matches         0 subscriptions of 0 clients"
    assert "                  1  N  no subscription to search for" in said


def test_filters_that_ask_for_the_message_itself_are_answered(explain: Explain, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    where = "$client = 'thermo' AND $qos = 1 AND $level2 = 'x' AND $user.site = 'n' AND $retain"
    file.write_text(json.dumps({"id": 9, "topic": "t/#", "where": where}))
    about = ("--publisher", "thermo", "--qos", "1", "--user-property", "site", "n", "--retain")
    arguments = ("--subscriptions", str(file), "--event", "", "--topic-name", "t/x", *about)
    assert told(explain(*arguments, "--json"))["matches"] == [9]
    assert told(explain(*arguments[:-1], "--json"))["matches"] == []


def test_without_links_nothing_is_said_of_them(explain: Explain, tmp_path: Path) -> None:
    file = tmp_path / "linkless.jsonl"
    file.write_text('{"id": 1, "topic": "sensors/#", "where": "temp > 30"}\n')
    assert "links" not in told(explain("--subscriptions", str(file), *WARM, "--json"))
    assert len(told(explain("--subscriptions", str(file), "--links", "4", *WARM, "--json"))["links"]["ends"]) == 4


# -- a client ---------------------------------------------------------------------------------------------------------


def test_why_a_client_does_not_get_a_message(explain: Explain) -> None:
    said = lines(explain(*WARM, "--client", "bert"))
    assert said[said.index("client bert     3  sensors/#: site = 'north' AND temp > 30") :] == [
        "client bert     3  sensors/#: site = 'north' AND temp > 30",
        "                   false   site = 'north', for site is 'south'",
        "                   true    temp > 30, for temp is 31",
        "                   not delivered",
        "                   step 2: compared in vain: site is 'south', must be 'north'",
        "                4  plant/#: temp > 30",
        "                   not delivered: level 1 of the topic is 'sensors', not 'plant'",
    ]


def test_why_a_client_gets_a_message_and_where_the_search_turned_away(explain: Explain) -> None:
    said = lines(explain(*WARM, "--client", "emil"))
    assert "                   step 1: the edge towards it, temp: < 5, is not taken" in said
    assert said[-3:] == [
        "                   true    site = 'south', for site is 'south'",
        "                   delivered",
        "                   step 3: found",
    ]
    assert lines(explain(*WARM, "--client", "anna"))[-2:] == [
        "                2  sensors/+/climate",
        "                   delivered",
    ]


def test_a_term_that_is_unknown_is_told_as_such(explain: Explain) -> None:
    cold = ("--event", '{"temp": "31"}', "--topic-name", "sensors/x", "--client", "bert", "--json")
    first, _ = told(explain(*cold))["reasons"]
    assert [term["truth"] for term in first["verdict"]["terms"]] == ["unknown", "unknown"]


def test_where_the_subscriptions_of_a_client_sit(explain: Explain) -> None:
    said = lines(explain("--client", "anna"))
    assert said[0] == "subscription    1   temp > 30"
    assert said[-3:] == [
        "subscription    2",
        "sits on         topic filter sensors/+/climate, alone",
        "                matches every message there: nothing is searched",
    ]
    found = told(explain("--client", "anna", "--json"))
    assert [one["id"] for one in found["subscriptions"]] == [1, 2]


def test_a_subscription_without_client_is_one_of_its_own(explain: Explain) -> None:
    assert lines(explain("--client", "6"))[0] == "subscription    6   temp > 30"


@pytest.mark.parametrize(
    ("topic_filter", "topic", "why"),
    [
        ("a/+/c", "a/b/c", ""),
        ("a/#", "a", ""),
        ("a/x/c", "a/b/c", "level 2 of the topic is 'b', not 'x'"),
        ("a/b", "a/b/c", "the topic has 3 levels, the topic filter asks for 2"),
        ("a/+/c/#", "a/b", "the topic has 2 levels, the topic filter asks for at least 3"),
        ("a/b", "a", "the topic has 1 level, the topic filter asks for 2"),
        ("#", "$SYS/x", "a topic that begins with $ is not matched by # as first level"),
        ("+/x", "$SYS/x", "a topic that begins with $ is not matched by + as first level"),
    ],
)
def test_why_a_topic_filter_does_not_match(topic_filter: str, topic: str, why: str) -> None:
    assert mismatch(TopicFilter.parse(topic_filter), topic) == why


# -- the tree ---------------------------------------------------------------------------------------------------------


def test_the_tree_is_written(explain: Explain) -> None:
    said = lines(explain("--portrait"))
    assert said[6].startswith("      temp: > 30  YMY  bucket: 2 leaves, no columns, ")
    assert said[-2] == "8 subscriptions with 6 leaves in 4 buckets"
    assert len(lines(explain("--portrait", "--lines", "2"))) == 2 + 2
    assert told(explain("--portrait", "--json"))["lines"] == said


def test_the_tree_is_drawn(explain: Explain, tmp_path: Path) -> None:
    assert lines(explain("--svg", str(tmp_path / "tree.svg"))) == []
    drawn = ElementTree.parse(tmp_path / "tree.svg")
    assert "fork on temp" in {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    refused = explain("--svg", str(tmp_path / "nowhere" / "tree.svg"))
    assert (refused.exit_code, "nowhere/tree.svg: No such file" in refused.stderr) == (2, True)


# -- what is no question ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "say what to explain of the subscriptions"),
        (("--event", "{}"), "say it with --topic-name"),
        (("--topic-name", "t"), "--topic-name needs --event"),
        (("--publisher", "p", "--client", "anna"), "--publisher needs --event"),
        (("--covers", "a = 1", "--portrait"), "--covers needs a filter, EXPR"),
        (("--topic", "t", "--portrait"), "--topic needs a filter, EXPR"),
        (("--lines", "9", "--client", "anna"), "--lines needs --portrait"),
        (("a = 1", "--client", "anna"), "a filter, EXPR, is explained by itself: leave out --client"),
        (("a = 1", "--portrait"), "leave out --portrait"),
        (("a = 1", "--svg", "x.svg"), "leave out --svg"),
        (("--portrait", *WARM), "the tree is shown by itself: leave out --event"),
        (("--portrait", "--client", "anna"), "leave out --client"),
        (("--event", "{}", "--topic-name", "a/+"), "--topic-name:"),
        (("--client", "ana"), "no subscription is of client 'ana'; did you mean 'anna'?"),
        (("--links", "1", "--portrait"), 'S.jsonl:3: "link" must be a whole number from 0 to 0'),
        (("a = = 1",), "column 5"),
    ],
)
def test_options_that_make_no_question_are_refused(
    explain: Explain, arguments: tuple[str, ...], complaint: str
) -> None:
    result = explain(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("a = 1", "--event", "{}", "--client", "anna"), "say their subscriptions with --subscriptions S.jsonl."),
        (("a = 1", "--client", "anna"), "The client identifier of the publisher is --publisher."),
        (("--event", "{}"), "say a filter, EXPR, or whose subscriptions it is about with --subscriptions"),
        (("a = 1", "--links", "2"), "--links needs --subscriptions"),
        (("a = 1", "--bucket", "4"), "--bucket needs --subscriptions"),
        (("--portrait",), "--portrait needs --subscriptions"),
        (("a = 1", "--qos", "1"), "--qos needs --event"),
    ],
)
def test_without_subscriptions_what_needs_them_is_refused(arguments: tuple[str, ...], complaint: str) -> None:
    result = CliRunner().invoke(main, ["explain", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "there is no subscription in this file"),
        ('{"id": 1, "topic": "t", "client": 7}', '"client" must be a text, not 7'),
        ('{"id": 1, "topic": "t", "where": "a >"}', 'S.jsonl:1: "where": column'),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(explain: Explain, tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "S.jsonl").write_text(content)
    result = explain("--portrait")
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_the_publisher_of_a_message_can_be_named_without_subscriptions() -> None:
    result = CliRunner().invoke(main, ["explain", "$client = 'thermo'", "--event", "", "--publisher", "thermo"])
    assert result.stdout.endswith("true    in all: delivered\n")
