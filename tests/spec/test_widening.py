"""Which interests are merged first where not all fit, and what of them is lost."""

from __future__ import annotations

import pytest

from edgebroker.cbor import encode_cbor
from edgebroker.filters import Filter
from edgebroker.filters.widening import octets_of, widened
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.messages import interest_values
from edgebroker.predicate import Attributes
from edgebroker.topics import TopicFilter


def interests(*texts: str) -> tuple[Interest, ...]:
    """Each `topic filter` or `topic filter WHERE condition`."""
    found = []
    for text in texts:
        topic, _, where = text.partition(" WHERE ")
        predicates = Filter.parse(where).predicates if where else ((),)
        found += [Interest(TopicFilter.parse(topic), predicate) for predicate in predicates]
    return tuple(found)


def accept(some: tuple[Interest, ...], topic: str, **attributes: float | str) -> bool:
    levels: Attributes = {f"$level{at}": level for at, level in enumerate(topic.split("/"), 1)}
    return any(one.accepts(topic, {**levels, **attributes}) for one in some)


def test_what_fits_stays_as_it_is() -> None:
    few = interests("a/b WHERE v > 1", "a/c", "#")
    assert widened(few, octets_of(few)) == (few, True)


def test_single_values_become_one_list_without_loss() -> None:
    wishes = interests(*(f"t/# WHERE v = {number}" for number in range(9)))
    widening = widened(wishes, octets_of(wishes) - 1)
    assert widening is not None
    assert widening.is_exact
    assert widening.interests == interests("t/# WHERE v IN (0, 1, 2, 3, 4, 5, 6, 7, 8)")


def test_topics_that_differ_in_one_level_become_a_list_of_names_without_loss() -> None:
    wishes = interests(*(f"plant/line/device-{name}/settings/changed" for name in "abcdef"))
    widening = widened(wishes, octets_of(wishes) - 1)
    assert widening is not None
    assert widening.is_exact
    [one] = widening.interests
    assert one.topic_filter.text == "plant/line/+/settings/changed"
    assert accept((one,), "plant/line/device-c/settings/changed")
    assert not accept((one,), "plant/line/device-g/settings/changed")


def test_ends_of_ranges_are_rounded_before_anything_is_merged() -> None:
    wishes = interests("t WHERE v BETWEEN 20.1 AND 20.2 AND w < 7.3", "t WHERE v BETWEEN 70.1 AND 70.2 AND w > 8.7")
    widening = widened(wishes, octets_of(wishes) - 20)
    assert widening is not None
    assert not widening.is_exact
    assert len(widening.interests) == 2
    assert accept(widening.interests, "t", v=20.1, w=7.2)
    assert not accept(widening.interests, "t", v=20.0999, w=7.2)
    assert not accept(widening.interests, "t", v=20.1, w=7.3001)


def test_the_nearest_boxes_are_merged_first() -> None:
    wishes = interests(
        "t WHERE v BETWEEN 0 AND 10 AND w BETWEEN 0 AND 10",
        "t WHERE v BETWEEN 11 AND 20 AND w BETWEEN 1 AND 11",
        "t WHERE v BETWEEN 900 AND 910 AND w BETWEEN 900 AND 910",
    )
    widening = widened(wishes, octets_of(wishes) - 1)
    assert widening is not None
    assert len(widening.interests) == 2
    assert accept(widening.interests, "t", v=15, w=0.5), "between the two that are near"
    assert not accept(widening.interests, "t", v=450, w=450)
    assert not accept(widening.interests, "t", v=15, w=905)


def test_the_nearest_topics_are_merged_first() -> None:
    wishes = interests("plant/hall-1/press/temperature", "plant/hall-1/press/pressure", "yard/gate/camera/motion")
    widening = widened(wishes, octets_of(wishes) - 1)
    assert widening is not None
    assert {one.topic_filter.text for one in widening.interests} == {"plant/hall-1/press/+", "yard/gate/camera/motion"}
    assert not accept(widening.interests, "plant/hall-1/saw/pressure")
    assert accept(widening.interests, "plant/hall-1/press/temperature")


def test_topics_of_different_lengths_have_a_prefix_in_common() -> None:
    wishes = interests("plant/hall-1/press-number-1", "plant/hall-1/saw-number-two/temperature/celsius")
    widening = widened(wishes, 40)
    assert widening is not None
    [one] = widening.interests
    assert one.topic_filter.text in ("plant/hall-1/+/#", "plant/hall-1/#")


def test_topics_below_different_roots_with_a_dollar_have_nothing_in_common() -> None:
    wishes = interests("$one/a/long/topic/of/somebody", "$two/a/long/topic/of/somebody")
    assert widened(wishes, octets_of(wishes) - 1) is None


@pytest.mark.parametrize(
    "text",
    [
        "t WHERE name LIKE '%" + "x" * 400 + "%'",
        "t WHERE name IN (" + ", ".join(f"'{number:040}'" for number in range(30)) + ")",
        "/".join(["level"] * 100),
    ],
)
def test_a_single_long_interest_becomes_shorter(text: str) -> None:
    wishes = interests(text)
    widening = widened(wishes, 256)
    assert widening is not None
    assert octets_of(widening.interests) <= 256


@pytest.mark.parametrize(
    "text",
    ["a/b/c", "a WHERE v > 1.5", "a WHERE name = 'pump' AND v BETWEEN 70000 AND 70001.1", "a WHERE n LIKE '%x_'"],
)
def test_bytes_are_about_those_of_the_wire_where_nothing_repeats(text: str) -> None:
    (one,) = interests(text)
    sent = len(encode_cbor(interest_values(one), has_short_floats=True))
    assert sent <= octets_of((one,)) <= sent + 8
