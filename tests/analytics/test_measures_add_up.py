"""The law of measures: the states of the parts, merged, are the state of the whole."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from edgeanalytics import ingest
from edgeanalytics.inventory import take_inventory
from edgeanalytics.measures.fates import FATES
from edgeanalytics.measures.flows import FLOWS
from edgeanalytics.measures.latency import LATENCY
from edgeanalytics.measures.measure import Measure
from edgeanalytics.measures.messages import MESSAGES
from edgeanalytics.measures.parties import PUBLISHERS, SUBSCRIBERS
from edgeanalytics.measures.runs import RUNS
from edgeanalytics.measures.selectivity import SELECTIVITY
from edgeanalytics.measures.throughput import clocks, throughput, width_for
from edgebroker.log_schema import DIGEST, SUM_MODULUS, Fate

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory, gateway: Any, truth: Any) -> ingest.Tables:
    folder = tmp_path_factory.mktemp("parts")
    known = truth()
    for node in ("a", "b"):
        gateway(folder, node, "1", known, random.Random(9), loss=0.02, duplication=0.02).run(200, files=2)
    return ingest.read(spark, take_inventory(folder))


def test_there_are_two_parts_worth_merging(tables: ingest.Tables) -> None:
    assert all(part.segment.count() == 2 for part in halves(tables))


@pytest.mark.parametrize(
    "measure",
    [RUNS, FATES, FLOWS, MESSAGES, LATENCY, SELECTIVITY, PUBLISHERS, SUBSCRIBERS],
    ids=lambda measure: measure.name,
)
def test_merged_states_are_the_state_of_the_whole(measure: Measure, tables: ingest.Tables) -> None:
    whole = measure.state(tables)
    merged = measure.merge(*(measure.state(part) for part in halves(tables)))
    assert rows(merged) == rows(whole) != []


def test_throughput_adds_up_too(tables: ingest.Tables) -> None:
    measure = throughput(clocks(tables), 5, sampled=False)
    merged = measure.merge(*(measure.state(part) for part in halves(tables)))
    assert rows(merged) == rows(measure.state(tables)) != []


def halves(tables: ingest.Tables) -> list[ingest.Tables]:
    """The tables of the first file of every run, and those of the second."""
    first = {row["file"] for row in tables.segment.where("first_block = 0").collect()}
    frames = {field.name: getattr(tables, field.name) for field in fields(tables)}
    return [
        ingest.Tables(**{name: frame.where(frame["file"].isin(first) == chosen) for name, frame in frames.items()})
        for chosen in (True, False)
    ]


def rows(frame: Any) -> list[Any]:
    """The rows of *frame*, sorted."""
    return sorted(frame.collect())


def test_sums_of_message_numbers_wrap_as_the_broker_wraps_them(spark: Any, tables: ingest.Tables) -> None:
    high = SUM_MODULUS - 1  # what a broker writes after an astronomical number of messages
    names = [column.name for column in DIGEST.columns]
    digests = [
        (0, "p", "s", 1, int(Fate.MATCHED), 0, 1, high, high),
        (0, "p", "s", 1, int(Fate.MATCHED), 0, 1, high, high),
        (0, "p", "s", 1, int(Fate.MATCHED), 0, 1, 7, 7),
        (1, "p", "s", 1, int(Fate.DELIVERED), 0, 2, 2 * high % SUM_MODULUS, 0),
    ]
    data = [("n", "b", "f", 1, *digest, 0) for digest in digests]
    frame = spark.createDataFrame(data, ["node", "boot", "file", "sample_qos0", *names])
    (flow,) = FLOWS.compute(replace(tables, digest=frame)).collect()
    assert (flow["made"], flow["ended"], flow["lost"], flow["duplicated"], flow["message"]) == (3, 2, 1, 0, 7)


@pytest.mark.parametrize(
    ("span_s", "sampled", "width_s"),
    [(0, False, 1), (0, True, 60), (239, False, 1), (240, False, 2), (86_400, False, 600), (10**9, True, 49 * 86_400)],
)
def test_steps_are_as_fine_as_the_picture_allows(span_s: int, sampled: bool, width_s: int) -> None:
    assert width_for(1_000, 1_000 + span_s, sampled=sampled) == width_s
