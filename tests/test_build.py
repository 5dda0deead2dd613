"""What is tested is what was promised: all kernels compiled, or none, and none compiled from an older source."""

from __future__ import annotations

import os
from pathlib import Path


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
