"""docs/filters.md, "Covering": which filter covers which, and what a neighbour is told."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from edgebroker.cli import main
from edgebroker.filters import Filter
from edgebroker.filters.announcement import CoveringAnnouncer, InterestDelta
from edgebroker.filters.covering import STEPS_MAX, are_apart, common_example, counterexample, covers, merged
from edgebroker.interest import Interest
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter


def predicates(text: str) -> tuple[Predicate, ...]:
    return Filter.parse(text).predicates


def covered(general: str, special: str) -> bool:
    return covers(predicates(general), predicates(special))


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("F-51", "F-52")
@pytest.mark.parametrize(
    ("general", "special"),
    [
        ("temp > 30", "temp > 31 AND site = 'north'"),
        ("temp > 30", "temp IN (31, 32)"),
        ("temp <> 3", "temp BETWEEN 4 AND 9"),
        ("temp IS NOT NULL", "temp < 3"),
        ("site LIKE 'a%'", "site LIKE 'ab%'"),
        ("site >= 'a' AND site <= 'b'", "site LIKE 'a%'"),
        ("active IN (TRUE, FALSE)", "active"),
        ("a = 1 OR b = 2", "b = 2 AND c = 3"),
        ("a IS NULL OR a IS NOT NULL", "b = 1"),
    ],
)
def test_one_covers_the_other_and_not_the_other_way(general: str, special: str) -> None:
    assert covered(general, special)
    assert not covered(special, general)
    assert covered(general, general)


@pytest.mark.clause("F-51")
@pytest.mark.parametrize(
    ("general", "special"),
    [
        ("temp > 30", "temp >= 30"),
        ("temp > 30", "temp > '30'"),
        ("temp > 30", "site = 'north'"),
        ("temp > 30", "temp IS NOT NULL"),
        ("NOT temp > 30", "temp IS NULL"),
        ("a = 9007199254740992", "a = 9007199254740993"),
        ("temp < 5 OR temp > 5", "temp BETWEEN 3 AND 9"),
        ("temp < 5 AND site = 'a' OR temp >= 5 AND site = 'b'", "temp BETWEEN 3 AND 9"),
        ("site LIKE '%a_b%'", "site LIKE '%ab%'"),
        ("site NOT LIKE '%x'", "site LIKE '%y%'"),
        ('"pos" = 1', "pos.lat = 1"),
    ],
)
def test_what_does_not_cover_is_not_said_to(general: str, special: str) -> None:
    assert not covered(general, special)


@pytest.mark.clause("F-52")
@pytest.mark.parametrize(
    ("general", "special"),
    [
        ("temp < 5 OR temp >= 5", "temp BETWEEN 3 AND 9"),
        ("temp < 5 AND site = 'a' OR temp >= 5 AND site = 'a'", "temp BETWEEN 3 AND 9 AND site = 'a'"),
        ("a < 5 AND b < 5 OR a >= 5 OR b >= 5", "a = 4 AND b = 7 OR a BETWEEN 2 AND 9 AND b > 0"),
        ("flag OR NOT flag AND x = 1", "x = 1 AND flag IN (TRUE, FALSE)"),
        ("a IS NULL AND x > 1 OR a IS NOT NULL AND x > 2", "x > 3"),
        ("temp > 3 AND site LIKE '%x' OR temp <= 3 AND site LIKE '%x'", "temp < 9 AND site LIKE 'a%x'"),
    ],
)
def test_alternatives_cover_together(general: str, special: str) -> None:
    assert covered(general, special)


@pytest.mark.clause("F-52")
def test_a_filter_that_accepts_nothing_is_covered_by_all_and_covers_none() -> None:
    assert covered("b = 1", "a = 1 AND a = 2")
    assert covered("b = 1", "a > 1 AND a < 1.0000000000000002")
    assert not covered("a = 1 AND a = 2", "b = 1")


@pytest.mark.clause("F-52")
@pytest.mark.parametrize(
    ("general", "special"),
    [
        ("pos IS NOT NULL", "pos.lat = 1"),
        ("$level1 = 'a'", "$topic = 'a/b'"),
        ("$size <= 4", "$size < 5"),
        ("$topic <> ''", "$topic < 'a'"),
        ("$level2 < '#' OR $level2 > '#'", "$level2 = '#'"),
        ("$client > ''", "$client < 'a'"),
    ],
)
def test_what_attributes_never_are_is_not_decided_either_way(general: str, special: str) -> None:
    assert not covered(general, special)
    assert counterexample(predicates(general), predicates(special)) is None


@pytest.mark.clause("F-52")
def test_examples_are_events_that_can_be() -> None:
    assert counterexample(predicates("$size <= 4"), predicates("$size <= 5")) == {"$size": 5}
    assert counterexample(predicates("$topic >= 'b'"), predicates("$topic < 'c'")) == {"$topic": "a"}
    assert counterexample(predicates("$level1 >= 'b'"), predicates("$level1 < 'c'")) == {"$level1": "a"}
    assert common_example(predicates("$client <> 'x'"), predicates("$qos > 0")) == {"$client": "a", "$qos": 1}
    assert common_example(predicates("pos IS NOT NULL"), predicates("pos.lat = 1")) is None


@pytest.mark.clause("F-52")
def test_too_many_steps_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    general, special = predicates("a < 5 AND b < 5 OR a >= 5 OR b >= 5"), predicates("a <> 7 AND b <> 7")
    assert STEPS_MAX == 4_096
    assert covers(general, special)
    monkeypatch.setattr("edgebroker.filters.covering.STEPS_MAX", 1)
    assert not covers(general, special)
    assert counterexample(general, special) is None


@pytest.mark.clause("F-53")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > 1", "a >= 1.0000000000000002"),
        ("a > 9007199254740992", "a >= 9007199254740993"),
        ("a < 9007199254740993", "a <= 9007199254740992"),
        ("a = 1", "a >= 1.0 AND a < 1.0000000000000002"),
        ("s > 'a' OR s = 'a'", "s >= 'a'"),
        ("s < ''", "s IS NULL AND s IS NOT NULL"),
        ("$qos >= 0", "$qos IN (0, 1, 2)"),
        ("$qos > 0", "$qos <> 0"),
        ("$retain OR NOT $retain", "x IS NULL OR x IS NOT NULL"),
        ("$client IS NOT NULL", "$topic IS NOT NULL"),
        ("$level1 IS NOT NULL", "$topic >= ''"),
        ("$level2 >= '' OR $level2 IS NULL", "$user.unit IS NULL OR $user.unit >= ''"),
    ],
)
def test_values_no_event_can_have_do_not_count(one: str, other: str) -> None:
    assert covered(one, other)
    assert covered(other, one)


@pytest.mark.clause("F-54")
@pytest.mark.parametrize(
    ("general", "special", "expected"),
    [
        ("s LIKE 'a%'", "s LIKE 'ab%c'", True),
        ("s LIKE '%c'", "s LIKE 'ab%c'", True),
        ("s LIKE 'a%c'", "s LIKE 'ab%c'", True),
        ("s LIKE 'ab%c'", "s LIKE 'a%c'", False),
        ("s LIKE '%c'", "s IN ('c', 'bc')", True),
        ("s LIKE '%c'", "s IN ('c', 'cb')", False),
        ("s LIKE '%b%'", "s LIKE 'ab%'", False),  # of a long text no pattern is sure, of its beginning one is
        ("s LIKE '_%'", "s LIKE 'ab%'", False),
        ("s LIKE '%_b%'", "s LIKE '%ab%'", True),
        ("s LIKE '__'", "s LIKE '_%'", False),
        ("s LIKE '%b%'", "s > 'b' AND s <= 'bz'", False),
        ("s LIKE 'a!%%c' ESCAPE '!'", "s LIKE 'a!%b%c' ESCAPE '!'", True),
        ("s NOT LIKE '%x'", "s LIKE '%y'", True),
        ("s NOT LIKE '%x'", "s NOT LIKE '%'", True),
        ("s NOT LIKE 'ab%x'", "s NOT LIKE 'a%x'", True),
        ("s NOT LIKE 'a%x'", "s NOT LIKE 'ab%x'", False),
        ("s NOT LIKE 'b%x'", "s > 'k'", False),
        ("s NOT LIKE 'b%x'", "s > 'k' AND s LIKE '%x'", True),
        ("s NOT LIKE 'b%x'", "s > 'a'", False),
        ("s LIKE '%x'", "s LIKE '%x' AND s NOT LIKE '%yx'", True),
        ("s LIKE 'ab%c'", "s LIKE 'ab%' AND s LIKE '%c'", False),  # it does, and is not said to
    ],
)
def test_patterns(general: str, special: str, expected: bool) -> None:
    assert covered(general, special) is expected


@pytest.mark.clause("F-52", "F-54")
def test_filters_that_are_apart() -> None:
    assert are_apart(predicates("temp > 30"), predicates("temp < 30 OR temp = 'hot'"))
    assert not are_apart(predicates("temp > 30"), predicates("site = 'north'"))
    assert common_example(predicates("temp > 30"), predicates("site LIKE '%_n'")) == {"temp": 31, "site": "_n"}
    assert common_example(predicates("$qos >= 0"), predicates("b = 1")) == {"$qos": 0, "b": 1}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("temp < 5 AND site = 'a'", "temp >= 5 AND temp < 8 AND site = 'a'", "temp < 8 AND site = 'a'"),
        ("temp < 5", "temp > 7", "temp < 5 OR temp > 7"),
        ("temp < 5", "temp < 7", "temp < 7"),
        ("temp = 6 AND site = 'a'", "temp < 7", "temp < 7"),
        ("temp IS NULL AND x = 1", "temp IS NOT NULL AND x = 1", "x = 1"),
        ("s LIKE '%x' AND a < 5", "s LIKE '%x' AND a >= 5 AND a < 6", "s LIKE '%x' AND a < 6"),
        ("a > 1 AND a < 1.0000000000000002", "x = 3", "x = 3"),
        ("x = 3", "a > 1 AND a < 1.0000000000000002", "x = 3"),
        ("temp < 5", "temp > 'a'", None),
        ("temp < 5 AND site = 'a'", "temp > 7 AND site = 'b'", None),
        ("temp < 5", "site = 'a'", None),
        ("s LIKE '%x'", "s LIKE '%y'", None),
    ],
)
def test_two_predicates_that_are_one(one: str, other: str, expected: str | None) -> None:
    whole = merged(*predicates(one), *predicates(other))
    if expected is None:
        assert whole is None
    else:
        assert whole is not None
        assert covers((whole,), predicates(expected))
        assert covers(predicates(expected), (whole,))


# -- topics -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("F-55")
@pytest.mark.parametrize(
    ("general", "special", "expected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/+/c", True),
        ("a/+", "a/#", False),
        ("+/#", "#", True),
        ("/+/#", "/#", True),
        ("a/+/#", "a/#", False),
        ("+", "a", True),
        ("a", "+", False),
        ("+", "$SYS", False),
        ("#", "$SYS/broker", False),
        ("$SYS/#", "$SYS/+", True),
        ("a/+", "a/$b", True),
        ("a/+", "a/", True),
    ],
)
def test_topic_filters(general: str, special: str, expected: bool) -> None:
    assert TopicFilter.parse(general).covers(TopicFilter.parse(special)) is expected


# -- announcements ----------------------------------------------------------------------------------------------------


def interest(topic: str, text: str | None = None) -> Interest:
    (predicate,) = ((),) if text is None else predicates(text)
    return Interest(TopicFilter.parse(topic), predicate)


class Neighbour:
    """One neighbour, and subscriptions written as texts."""

    def __init__(self, shadows: bool = False) -> None:
        self.announced = CoveringAnnouncer(shadows)

    def add(self, number: int, topic: str, text: str | None = None) -> InterestDelta:
        return self.announced.add(number, TopicFilter.parse(topic), ((),) if text is None else predicates(text))


@pytest.mark.clause("F-56")
def test_what_is_covered_is_not_announced() -> None:
    neighbour = Neighbour()
    assert neighbour.add(1, "plant/#", "temp > 30") == InterestDelta((interest("plant/#", "temp > 30"),))
    assert not neighbour.add(2, "plant/a", "temp > 40")
    assert not neighbour.add(3, "plant/+", "temp = 31 AND site = 'n'")
    assert neighbour.add(4, "+/a", "temp > 40") == InterestDelta((interest("+/a", "temp > 40"),))
    assert neighbour.announced.interests == (interest("plant/#", "temp > 30"), interest("+/a", "temp > 40"))
    assert len(neighbour.announced) == 4
    assert 3 in neighbour.announced


@pytest.mark.clause("F-56")
@pytest.mark.parametrize("shadows", [False, True])
def test_a_wider_one_that_comes_and_goes_leaves_those_it_covers_announced(shadows: bool) -> None:
    neighbour = Neighbour(shadows)
    narrow = [interest("plant/a", "temp > 40"), interest("plant/b", "temp > 50"), interest("+/b", "temp > 60")]
    for number, (topic, text) in enumerate((("plant/a", "temp > 40"), ("plant/b", "temp > 50"), ("+/b", "temp > 60"))):
        neighbour.add(number, topic, text)
    wide = interest("plant/#", "temp > 30")
    for _ in range(2):
        assert neighbour.add(9, "plant/#", "temp > 30") == InterestDelta((wide,))
        assert neighbour.announced.interests == (*narrow, wide)
        assert [neighbour.announced.is_shadowed(one) for one in (*narrow, wide)] == [shadows, shadows, False, False]
        assert not neighbour.add(10, "plant/c", "temp > 41"), "it came later"
        assert not neighbour.announced.remove(10)
        assert neighbour.announced.remove(9) == InterestDelta((), (wide,))
        assert not any(map(neighbour.announced.is_shadowed, narrow))


@pytest.mark.clause("F-56", "F-57")
def test_what_loses_the_one_that_covers_it_may_have_another() -> None:
    neighbour = Neighbour(True)
    neighbour.add(1, "plant/a/x", "temp > 40")
    neighbour.add(2, "plant/#", "temp > 30")
    neighbour.add(3, "#", "temp > 20")
    neighbour.add(4, "+/a/#", "temp > 35")
    narrow = interest("plant/a/x", "temp > 40")
    assert neighbour.announced.remove(3) == InterestDelta(
        (interest("+/a/#", "temp > 35"),), (interest("#", "temp > 20"),)
    )
    assert neighbour.announced.is_shadowed(narrow)
    neighbour.announced.remove(2)
    assert neighbour.announced.is_shadowed(narrow), "by the other one"
    neighbour.announced.remove(4)
    assert not neighbour.announced.is_shadowed(narrow)
    assert neighbour.announced.interests == (narrow,)


@pytest.mark.clause("F-56")
def test_identical_interests_are_announced_once_and_withdrawn_with_the_last() -> None:
    neighbour = Neighbour()
    assert neighbour.add(1, "t", "a = 1 OR b = 2") == InterestDelta((interest("t", "a = 1"), interest("t", "b = 2")))
    assert not neighbour.add(2, "t", "1.0 = a")
    assert not neighbour.announced.remove(2)
    neighbour.add(3, "t", "a = 1")
    assert neighbour.announced.remove(1) == InterestDelta((), (interest("t", "b = 2"),))
    assert neighbour.announced.remove(3) == InterestDelta((), (interest("t", "a = 1"),))


@pytest.mark.clause("F-56")
def test_of_two_that_say_the_same_the_oldest_is_announced() -> None:
    neighbour = Neighbour()
    neighbour.add(1, "#", "a > 1")
    assert not neighbour.add(2, "+/#", "a >= 1.0000000000000002")
    assert neighbour.announced.remove(1) == InterestDelta(
        (interest("+/#", "a >= 1.0000000000000002"),), (interest("#", "a > 1"),)
    )


@pytest.mark.clause("F-56", "F-57")
def test_the_oldest_comes_forward_in_whatever_order_they_were_hidden() -> None:
    neighbour = Neighbour()
    neighbour.add(1, "t", "z > 0")
    neighbour.add(2, "t", "b = 1 AND z > 1")
    neighbour.add(3, "t", "b = 1")
    neighbour.add(4, "t", "b = 1 AND z >= 1.0000000000000002")
    assert neighbour.announced.remove(1) == InterestDelta((), (interest("t", "z > 0"),))
    assert neighbour.announced.remove(3) == InterestDelta(
        (interest("t", "b = 1 AND z > 1"),), (interest("t", "b = 1"),)
    )


@pytest.mark.clause("F-56")
def test_what_accepts_nothing_is_not_announced() -> None:
    neighbour = Neighbour()
    assert not neighbour.add(1, "t", "a > 1 AND a < 1.0000000000000002")
    assert not neighbour.add(2, "t", "a = 1 AND a = 2")
    assert not neighbour.announced.remove(1)


@pytest.mark.clause("F-57")
def test_what_a_leaving_subscription_hid_comes_forward() -> None:
    neighbour = Neighbour()
    neighbour.add(1, "plant/#", "temp > 30")
    neighbour.add(2, "plant/a/x", "temp > 40")
    neighbour.add(3, "plant/a/x", "temp > 50")
    neighbour.add(4, "plant/b", "temp > 45")
    neighbour.add(5, "#", "temp > 44")
    assert neighbour.announced.interests == (interest("plant/#", "temp > 30"), interest("#", "temp > 44"))
    assert neighbour.announced.remove(1) == InterestDelta(
        (interest("plant/a/x", "temp > 40"),), (interest("plant/#", "temp > 30"),)
    )
    assert neighbour.announced.remove(5) == InterestDelta(
        (interest("plant/b", "temp > 45"),), (interest("#", "temp > 44"),)
    )


@pytest.mark.clause("F-57")
def test_numbers_are_taken_once_and_leave_once() -> None:
    neighbour = Neighbour()
    neighbour.add(1, "t", "a = 1")
    with pytest.raises(ValueError, match="subscription 1 is announced already"):
        neighbour.add(1, "t", "a = 2")
    assert neighbour.announced.interests == (interest("t", "a = 1"),)
    neighbour.announced.remove(1)
    with pytest.raises(KeyError):
        neighbour.announced.remove(1)


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.clause("F-58")
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("30 < temp", "both accept the same events"),
        ("temp > 31", "this filter accepts every event that the other one accepts"),
        ("temp >= 30", "only the other accepts temp = 30"),
        ("pos IS NULL", "only this one accepts temp = 31 and pos = 0"),
    ],
)
def test_explain_compares_two_filters(other: str, expected: str) -> None:
    result = CliRunner().invoke(main, ["explain", "temp > 30", "--covers", other])
    assert result.exit_code == 0, result.output
    assert expected in result.stdout


@pytest.mark.clause("F-58")
def test_explain_says_what_is_not_decided() -> None:
    result = CliRunner().invoke(main, ["explain", "s LIKE 'ab%c'", "--covers", "s LIKE 'ab%' AND s LIKE '%bc'"])
    assert "not decided for s" in result.stdout
