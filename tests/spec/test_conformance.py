"""docs/conformance.md: the statements of the standards, the tests that say they hold them, and the page, agree."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "conformance.py"
# How many statements each chapter of each standard has.
CHAPTERS = {
    "3.1.1": {"1": 3, "2": 9, "3": 95, "4": 26, "6": 4, "7": 4},
    "5.0": {"1": 5, "2": 7, "3": 175, "4": 60, "6": 4},
}


@pytest.fixture(scope="module")
def conformance() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["conformance"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", CHAPTERS)
def test_the_list_is_complete_and_in_order(conformance: ModuleType, version: str) -> None:
    listed = conformance.statements(())[version]
    chapters = Counter(re.match(r"MQTT-(\d)", number)[1] for number in listed)  # type: ignore[index]
    assert dict(chapters) == CHAPTERS[version]
    keys = [tuple(int(part) for part in re.findall(r"\d+", number)) for number in listed]
    assert all(len(key) == 4 for key in keys)
    assert keys == sorted(keys)
    for one in listed.values():
        assert one.who in conformance.WHO, one
        assert one.text, one


@pytest.mark.parametrize("version", CHAPTERS)
def test_every_statement_that_binds_a_server_has_a_test_or_a_reason(conformance: ModuleType, version: str) -> None:
    listed = conformance.statements(conformance.claims())[version].values()
    bare = [f"{one.number} {one.text}" for one in listed if one.binds_server and not one.tests and not one.why]
    assert not bare, "neither a test that is marked with it nor a `why`"


@pytest.mark.parametrize("version", CHAPTERS)
def test_no_reason_outlives_the_want_of_a_test(conformance: ModuleType, version: str) -> None:
    listed = conformance.statements(conformance.claims())[version].values()
    assert not [one.number for one in listed if one.why and one.tests], "it has tests now: take its `why` away"


def test_the_page_is_up_to_date() -> None:
    checked = subprocess.run([sys.executable, str(TOOL), "--check"], check=False)
    assert checked.returncode == 0, "python tools/conformance.py"


def test_a_statement_that_does_not_exist_is_refused(conformance: ModuleType, tmp_path: Path) -> None:
    test = tmp_path / "tests" / "test_it.py"
    test.parent.mkdir()
    test.write_text('import pytest\n\n@pytest.mark.mqtt(v5="MQTT-3.1.3-13")\ndef test_it() -> None: ...\n', "utf-8")
    (claim,) = conformance.claims(test.parent)
    assert (claim.version, claim.number, claim.file, claim.test) == (
        "5.0",
        "MQTT-3.1.3-13",
        "tests/test_it.py",
        "test_it",
    )
    with pytest.raises(ValueError, match=r"test_it\.py: test_it: MQTT 5\.0 has no statement MQTT-3\.1\.3-13"):
        conformance.statements([claim])


def test_a_number_alone_means_both_versions(conformance: ModuleType, tmp_path: Path) -> None:
    test = tmp_path / "tests" / "test_it.py"
    test.parent.mkdir()
    mark = (
        '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.mqtt("MQTT-1", v311=("MQTT-2", "MQTT-3")))])'
    )
    test.write_text(f"import pytest\n\n{mark}\ndef test_it(a: int) -> None: ...\n", "utf-8")
    found = sorted((claim.version, claim.number) for claim in conformance.claims(test.parent))
    assert found == [("3.1.1", "MQTT-1"), ("3.1.1", "MQTT-2"), ("3.1.1", "MQTT-3"), ("5.0", "MQTT-1")]
