"""`edgebroker bench churn` counts and queues as it says. Nothing here looks at a speed."""

import json
from itertools import islice, pairwise

from click.testing import CliRunner

from edgebroker.filters import Filter
from edgelab.bench import command
from edgelab.bench.churn.report import HistogramBucket, bar, buckets, drawn
from edgelab.bench.churn.trial import ATTRIBUTES, NS_PER_S, ChurnPlan, RangeLoad, ServiceQueue, arrivals

SMALL = ["churn", "--subscriptions=150", "--leaving=50", "--seconds=0.2", "--selectivity=0.05"]


def test_the_object_counts_what_happened():
    done = CliRunner().invoke(command, [*SMALL, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["subscriptions"], found["leaving"], found["seconds"]) == (150, 50, 0.2)
    assert 150 < found["changes"] < 250
    assert 300 < found["events"] < 500
    assert sum(bucket["waits"] for bucket in found["histogram"]) == found["events"]
    assert sum(bucket["holds"] for bucket in found["histogram"]) == found["changes"]
    assert found["matches"] > 0
    assert found["left"] == 50
    for name in ("longest_pause_ms", "longest_hold_ms", "leave_ms"):
        assert found[name] >= 0
        assert found[name.replace("_ms", "_cpu_ms")] >= 0


def test_the_same_seed_brings_the_same_subscriptions_and_events():
    first, again = (json.loads(CliRunner().invoke(command, [*SMALL, "--json"]).stdout) for _ in range(2))
    other = json.loads(CliRunner().invoke(command, [*SMALL, "--json", "--seed=2"]).stdout)
    counted = ("changes", "events", "matches")
    assert [first[name] for name in counted] == [again[name] for name in counted]
    assert [first[name] for name in counted] != [other[name] for name in counted]


def test_people_get_a_picture():
    done = CliRunner().invoke(command, SMALL)
    assert done.exit_code == 0, done.output
    assert "longest pause of an event" in done.output
    assert "##" in done.output


def test_an_event_waits_for_what_came_before_it():
    queue = ServiceQueue()
    for at, spent, is_event in [(0, 10, False), (4, 3, True), (5, 20, False), (40, 1, True), (40, 1, True)]:
        queue.serve(at, spent, is_event)
    # served from 0 to 10, to 13, to 33; then idle; from 40 to 41, to 42
    assert list(queue.waits) == [6, 0, 1]
    assert list(queue.holds) == [10, 20]
    assert queue.busy_ns == 35


def test_arrivals_come_in_order_and_as_often_as_planned(chance):
    plan = ChurnPlan(changes_per_s=1_000, events_per_s=3_000, seconds=2)
    found = list(arrivals(plan, chance))
    assert all(one <= next_ for (one, _), (next_, _) in pairwise(found))
    assert found[0][0] >= 0
    assert found[-1][0] < 2 * NS_PER_S
    events = sum(is_event for _, is_event in found)
    assert 5_600 < events < 6_400
    assert 1_750 < len(found) - events < 2_250


def test_buckets_are_powers_of_two():
    found = buckets([0, 999, 1_000, 1_999, 2_000, 7_999], [4_000])
    assert found == [
        HistogramBucket(0, 1, 2, 0),
        HistogramBucket(1, 2, 2, 0),
        HistogramBucket(2, 4, 1, 0),
        HistogramBucket(4, 8, 1, 1),
    ]
    assert buckets([], []) == [HistogramBucket(0, 1, 0, 0)]
    assert len(list(drawn(found))) == 5


def test_a_single_one_among_a_million_has_a_bar():
    assert (len(bar(0, 10**6)), len(bar(1, 10**6)), len(bar(10**6, 10**6))) == (0, 2, 24)


def test_a_range_load_matches_as_often_as_it_says(seed):
    for selectivity in (0.01, 0.1):
        load = RangeLoad(seed, selectivity)
        filters = [Filter.parse(load.where()) for _ in range(150)]
        readings = [load.reading() for _ in range(150)]
        share = sum(one.accepts(reading) for one in filters for reading in readings) / 150**2
        assert 0.5 * selectivity < share < 2 * selectivity
        assert all(3 <= len(one.attributes) <= 5 for one in filters)
        assert all(tuple(reading) == ATTRIBUTES for reading in readings)


def test_a_range_load_is_the_same_for_the_same_seed(chance):
    seed = chance.randrange(10**6)
    first, again, other = (RangeLoad(number, 0.01) for number in (seed, seed, seed + 1))
    filters = [list(islice(iter(load.where, None), 20)) for load in (first, again, other)]
    assert filters[0] == filters[1] != filters[2]
    assert first.reading() == again.reading() != other.reading()


def test_popular_attributes_are_asked_for_more_often(seed):
    load = RangeLoad(seed, 0.01)
    filters = [load.where() for _ in range(300)]
    asked = [sum(f"{name} " in where for where in filters) for name in ATTRIBUTES]
    assert asked[0] > 1.5 * asked[-1]
    assert min(asked) > 30
