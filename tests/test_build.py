"""What is tested is what was promised: all kernels compiled, or none, and none compiled from an older source."""

from __future__ import annotations

import os
from pathlib import Path
from runpy import run_path


def test_the_kernels_are_of_the_kind_that_this_run_is_for(kernel_files: dict[str, str], root: Path) -> None:
    interpreted = [name for name, file in kernel_files.items() if file.endswith((".py", ".pyx"))]
    expected = os.environ.get("EDGEBROKER_EXPECT", "")
    if expected == "pure":
        assert interpreted == list(kernel_files)
        assert not [path for path in root.glob("*/**/*.so") if ".venv" not in path.parts]
    elif expected == "compiled":
        assert not interpreted, "run `make setup`"
    else:
        assert interpreted in ([], list(kernel_files)), "half compiled; run `make setup`"


def test_the_kernels_are_those_of_this_checkout(kernel_files: dict[str, str], root: Path) -> None:
    elsewhere = [file for file in kernel_files.values() if not Path(file).resolve().is_relative_to(root)]
    assert not elsewhere


def test_no_compiled_module_is_older_than_its_source(kernel_files: dict[str, str]) -> None:
    stale = []
    for name, file in kernel_files.items():
        folder, stem = Path(file).parent, name.rpartition(".")[2]
        sources = [path for path in (folder / f"{stem}{suffix}" for suffix in (".py", ".pyx", ".pxd")) if path.exists()]
        built = Path(file).stat().st_mtime
        if not file.endswith((".py", ".pyx")) and any(path.stat().st_mtime > built for path in sources):
            stale.append(name)
    assert not stale, "run `make setup`"


def test_every_source_with_c_types_is_listed_as_compiled(kernel_files: dict[str, str], root: Path) -> None:
    found = [path for name in ("edgebroker", "bridge") for path in (root / name).rglob("*.p[xy]*")]
    # A .pxd alone has inline functions for others to use.
    sources = {path.with_suffix("") for path in found if path.suffix in (".py", ".pyx")}
    typed = [
        path.relative_to(root)
        for path in found
        if path.suffix == ".pyx" or (path.suffix == ".pxd" and path.with_suffix("") in sources)
    ]
    names = {str(path.with_suffix("")).removeprefix("bridge/").replace("/", ".") for path in typed}
    assert names <= set(kernel_files), "a .pxd without effect; list its module in pyproject.toml"


def test_the_pure_run_has_all_tests_that_a_kernel_takes_part_in(root: Path) -> None:
    has_kernel = run_path(str(root / "tools" / "kernelless.py"))["has_kernel"]
    for name in (
        "test_build.py",  # it asks which build is tested
        "laws/test_topictree_laws.py",  # it imports one
        "spec/test_http_pages.py",  # through another file of tests
        "stories/test_stories_wills.py",  # through a fixture
        "spec/test_matching_steps.py",  # through a command that is imported when it is called
    ):
        assert has_kernel(root / "tests" / name), name
    for name in ("spec/test_trits.py", "spec/test_scram.py"):
        assert not has_kernel(root / "tests" / name), name
