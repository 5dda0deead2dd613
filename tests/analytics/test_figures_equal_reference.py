"""The figures of Spark are those of the plain reference, and both are the truth of the simulated logs."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from click.testing import CliRunner

from edgeanalytics import figures
from edgeanalytics.__main__ import main
from edgeanalytics.summary import cause_name, fate_name
from tests.support import plain_figures as reference

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

Logs = tuple[Path, Any]


def silent(_: str) -> None:
    """Progress that nobody follows."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, gateway: Any, truth: Any) -> Logs:
    """Two nodes and six runs: broken promises, a clean run, an open one, damage, a missing file and a copied one."""
    folder = tmp_path_factory.mktemp("logs")
    known = truth()

    def run(name: str, boot: str, seed: int, messages: int, **more: Any) -> list[Path]:
        place = folder / name
        place.mkdir(exist_ok=True)
        close = more.pop("close", True)
        return gateway(place, name, boot, known, random.Random(seed), **more).run(messages, files=3, close=close)

    run("harbour", "b1", 1, 900, loss=0.02, duplication=0.02)
    run("harbour", "b2", 2, 300)
    run("mill", "b1", 3, 300, close=False, duplication=0.02)
    flipped = run("mill", "b2", 4, 300)[1]
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 0x10
    flipped.write_bytes(data)
    run("mill", "b3", 5, 300)[1].unlink()
    twice = run("mill", "b4", 6, 300)[2]
    (folder / "copy").mkdir()
    (folder / "copy" / twice.name).write_bytes(twice.read_bytes())
    (folder / "mill" / "notes.edl").write_bytes(b"this is no delivery log")
    return folder, known


@pytest.fixture(scope="module")
def computed(spark: Any, logs: Logs) -> figures.Figures:
    return figures.compute(spark, logs[0], silent)


@pytest.fixture(scope="module")
def expected(logs: Logs) -> figures.Figures:
    return reference.figures(reference.read(logs[0]))


@pytest.mark.parametrize("table", list(figures.TABLES))
def test_every_table_is_exactly_that_of_the_reference(
    table: str, computed: figures.Figures, expected: figures.Figures
) -> None:
    assert computed[table] == expected[table]  # the reference cuts nothing, and no table here has 1,000 rows
    assert computed[table]


def test_every_run_is_judged_by_how_much_of_it_was_read(computed: figures.Figures) -> None:
    states = {(row["node"], row["boot"]): row["state"] for row in computed["audit"]}
    assert states == {
        ("", ""): "incomplete",
        ("harbour", "b1"): "complete",
        ("harbour", "b2"): "complete",
        ("mill", "b1"): "open",
        ("mill", "b2"): "incomplete",
        ("mill", "b3"): "incomplete",
        ("mill", "b4"): "complete",
    }


def test_the_audit_finds_every_planted_loss_and_duplicate_and_no_other(logs: Logs, computed: figures.Figures) -> None:
    known = logs[1]
    for row in computed["audit"]:
        run = row["node"], row["boot"]
        if row["state"] == "complete":
            assert (row["lost"], row["duplicated"]) == (len(known.lost[run]), len(known.duplicated[run]))
            assert row["open"] == 0
        else:
            assert row["lost"] == 0
    assert known.lost["harbour", "b1"]
    assert known.duplicated["harbour", "b1"]


def test_the_audit_names_the_first_messages_and_counts_all(logs: Logs, computed: figures.Figures) -> None:
    known = logs[1]
    for finding, planted in (("lost", known.lost), ("duplicate", known.duplicated)):
        rows = [
            row
            for row in computed["messages"]
            if (row["node"], row["boot"], row["finding"]) == ("harbour", "b1", finding)
        ]
        numbers = sorted(set(planted["harbour", "b1"]))
        assert [row["message"] for row in rows] == numbers[:20]
        assert {row["total"] for row in rows} == {len(numbers)}
        assert [row["count"] for row in rows] == [planted["harbour", "b1"].count(number) for number in numbers[:20]]


def test_a_flow_that_misses_one_copy_names_it_from_the_digests_alone(logs: Logs, computed: figures.Figures) -> None:
    known = logs[1]
    named = [row for row in computed["flows"] if row["boot"] == "b1" and row["node"] == "harbour" and row["message"]]
    assert named
    for row in named:
        planted = known.lost if row["lost"] else known.duplicated
        assert row["message"] in planted["harbour", "b1"]


def test_duplicates_of_an_open_run_are_found_and_its_missing_copies_are_not_called_lost(
    computed: figures.Figures,
) -> None:
    (row,) = (row for row in computed["audit"] if row["state"] == "open")
    assert row["lost"] == 0
    assert row["duplicated"] > 0


def test_everything_wrong_with_a_file_is_reported(computed: figures.Figures) -> None:
    files = {row["file"] for row in computed["damage"]}
    assert "mill/notes.edl" in files
    assert sum(row["damages"] for row in computed["audit"]) == len(computed["damage"]) == len(files)


def test_the_command_reports_the_fates_that_happened_also_of_an_oddly_named_node(
    spark: Any, tmp_path: Path, gateway: Any, truth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = truth()
    gateway(tmp_path, "_100 % <odd>", "b", known, random.Random(7), loss=0.01, duplication=0.01).run(200)
    monkeypatch.setattr("edgeanalytics.session.spark_session", lambda *_, **_options: nullcontext(spark))
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--json"])
    assert done.exit_code == 1, done.output
    rows = json.loads(done.stdout)["tables"]["fates"]
    happened = {(qos, fate_name(fate), cause_name(cause)): count for (qos, fate, cause), count in known.fates.items()}
    assert {(row["qos"], row["fate"], row["cause"]): row["count"] for row in rows} == happened


def test_digests_are_exact_where_rows_are_sampled(spark: Any, tmp_path: Path, gateway: Any, truth: Any) -> None:
    known = truth()
    for node, sample_qos0 in (("some", 7), ("none", 0)):
        chance = random.Random(8)
        gateway(tmp_path, node, "b", known, chance, sample_qos0=sample_qos0, loss=0.004, duplication=0.004).run(400)
    computed = figures.compute(spark, tmp_path, silent)
    assert computed == reference.figures(reference.read(tmp_path))
    for row in computed["audit"]:
        run = row["node"], row["boot"]
        assert (row["lost"], row["duplicated"]) == (len(known.lost[run]), len(known.duplicated[run]))
        assert row["lost"] > 0
        assert row["duplicated"] > 0
    assert {row["width_s"] for row in computed["throughput"]} == {60}
