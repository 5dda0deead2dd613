"""docs/filters.md, "Carriers": filters inside topic filters and as user property."""

from __future__ import annotations

import random

import pytest

from edgebridge.session.subscription_text import encode_subscription, parse_subscription
from edgebroker.errors import FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.filters import Filter

TEMP = Filter.parse("temp > 30")


def test_a_plain_topic_filter_has_no_filter() -> None:
    request = parse_subscription("sensors/#")
    assert (request.topic_filter.text, request.filter, request.share) == ("sensors/#", None, None)


@pytest.mark.clause("F-44")
@pytest.mark.parametrize(
    "text", ["$filter/temp%3E30/sensors/#", "$filter/temp > 30/sensors/#", "$filter/%74emp%20%3e%2030/sensors/#"]
)
def test_the_topic_form_with_raw_or_encoded_characters(text: str) -> None:
    request = parse_subscription(text)
    assert (request.topic_filter.text, request.filter, request.share) == ("sensors/#", TEMP, None)


@pytest.mark.clause("F-44")
def test_encoded_utf_8_and_the_four_characters() -> None:
    request = parse_subscription("$filter/name LIKE 'gr%C3%B6\u00dfe %2F%2B%23 50!%25' ESCAPE '!'/+")
    assert request.filter is not None
    assert request.filter.accepts({"name": "gr\u00f6\u00dfe /+# 50%"})


@pytest.mark.clause("F-35", "F-44")
def test_what_is_carried_has_the_bound_of_a_filter() -> None:
    longest = f"a='{'x' * (2048 - 4)}'"
    everything = "".join(f"%{octet:02X}" for octet in longest.encode())
    assert parse_subscription(f"$filter/{everything}/t").filter == Filter.parse(longest)
    for encoded in (everything + "%20", everything + "x", everything + "x" * 50_000, "x" * 60_000, "%zz" * 2_049):
        with pytest.raises(FilterTooComplex, match="2048 bytes"):
            parse_subscription(f"$filter/{encoded}/t")


@pytest.mark.clause("F-45")
def test_shared_subscriptions_are_recognised() -> None:
    plain = parse_subscription("$share/g/sensors/#")
    assert (plain.share, plain.topic_filter.text, plain.filter) == ("g", "sensors/#", None)
    filtered = parse_subscription("$share/g/$filter/temp%3E30/sensors/#")
    assert (filtered.share, filtered.topic_filter.text, filtered.filter) == ("g", "sensors/#", TEMP)


@pytest.mark.clause("F-46")
@pytest.mark.parametrize(
    ("expression", "column", "words"),
    [
        ("temp%3", 5, "two hexadecimal digits"),
        ("temp%", 5, "two hexadecimal digits"),
        ("a LIKE 'x%'", 10, "%25"),
        ("temp%3E+3", 8, "%2B"),
        ("a = '#'", 6, "%23"),
        ("a='%C3%28'", 4, "c3"),
        ("a='x%41%FF'", 8, "ff"),
        ("a='%ED%A0%80'", 4, "UTF-8"),
    ],
)
def test_bad_encodings_are_refused_with_their_column(expression: str, column: int, words: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        parse_subscription(f"$filter/{expression}/t")
    assert (caught.value.column, words in caught.value.reason) == (column, True), caught.value


@pytest.mark.clause("F-46", "F-41")
def test_errors_of_the_language_count_in_the_decoded_expression() -> None:
    with pytest.raises(FilterInvalid) as caught:
        parse_subscription("$filter/temp%20%3E%20%3E/t")
    assert caught.value.column == 8
    with pytest.raises(FilterInvalid, match="empty"):
        parse_subscription("$filter//t")


@pytest.mark.clause("F-47")
def test_where_applies_and_both_carriers_must_hold() -> None:
    assert parse_subscription("sensors/#", "temp > 30").filter == TEMP
    both = parse_subscription("$filter/a OR b/sensors/#", "temp > 30 OR c").filter
    assert both == Filter.parse("(a OR b) AND (temp > 30 OR c)")
    assert both is not None
    assert both == Filter.parse(both.text)
    assert both.attributes == {"a", "b", "c", "temp"}
    percent = parse_subscription("t", "a LIKE '50%/+#'").filter
    assert percent is not None
    assert percent.accepts({"a": "50/+#"}) is True
    with pytest.raises(FilterInvalid):
        parse_subscription("t", "")


@pytest.mark.clause("F-47")
def test_the_bounds_hold_for_both_carriers_together() -> None:
    forty = " AND ".join(f"a{number}" for number in range(40))
    parse_subscription("t", forty)
    with pytest.raises(FilterTooComplex, match="80 terms"):
        parse_subscription(f"$filter/{forty}/t", forty)
    four = " AND ".join(f"(a{number} OR b{number})" for number in range(4))
    with pytest.raises(FilterTooComplex, match="alternatives"):
        parse_subscription(f"$filter/{four}/t", four.replace("a", "c").replace("b", "d"))


@pytest.mark.clause("F-48")
@pytest.mark.parametrize(
    "text",
    [
        *("", "t\0", "$filter/", "$filter/a", "$filter/a/", "$filter/a/$filter/b/t", "$filter/a/$share/g/t"),
        *("$filter/a/#/t", "$filter/a/t+", "$share/", "$share/g", "$share//t", "$share/g/", "$share/g+/t"),
        *("$share/#/t", "$share/g/$share/h/t", "$share/g/$filter/a"),
    ],
)
def test_malformed_subscriptions_are_no_topic_filters(text: str) -> None:
    with pytest.raises(TopicInvalid):
        parse_subscription(text)


@pytest.mark.clause("F-49")
def test_the_text_is_the_identity() -> None:
    for text in ("$filter/temp%3E30/t", "$filter/temp > 30/t", "$share/g/t", "t"):
        assert parse_subscription(text, "b").text == text


@pytest.mark.clause("F-50")
def test_what_the_encoder_writes_is_read_back() -> None:
    chance = random.Random(17)
    for _ in range(2_000):
        inner = "".join(chance.choices("%/+#aA0'\u00e9\U0001f600\0 \n", k=chance.randrange(8))).replace("'", "''")
        expression = f"a = '{inner}'"
        carried = parse_subscription(encode_subscription(expression, "x/+/#"))
        assert carried.topic_filter.text == "x/+/#"
        assert carried.filter is not None
        assert carried.filter.text == expression


def test_a_filter_that_many_ask_for_is_read_once_and_a_bad_one_is_refused_each_time() -> None:
    one, other = (parse_subscription(f"$filter/temp > 30/{topic}") for topic in ("a", "b"))
    assert one.filter is other.filter
    assert one.topic_filter != other.topic_filter
    for _ in range(2):
        with pytest.raises(FilterInvalid):
            parse_subscription("$filter/temp >/a")


def test_a_shared_subscription_without_a_group_says_what_to_write() -> None:
    with pytest.raises(TopicInvalid, match=r"the name of the group is missing: \$share/group/\$filter/"):
        parse_subscription("$share/$filter/temp>30/s/#")
