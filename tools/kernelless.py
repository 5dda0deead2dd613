"""The tests in which no kernel takes part: they mean the same in pure Python, so the pure run leaves them out.

python tools/kernelless.py    print `--ignore=tests/...` for each such file, as pytest wants it

A kernel is a module that pyproject.toml lists as compiled. It takes part in a file of tests if the file imports one,
directly or through others, wherever in them the import stands; or if a conftest.py does that defines something the file
names; or if the file asks which build is tested. Commands that are imported when they are called count for who imports
their group's `main` or `command`. What a test starts as a process of its own does not count.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [ROOT, ROOT / "bridge", ROOT / "firmware-sim", ROOT / "analytics"]
ASKS = frozenset({"kernel_files", "EDGEBROKER_EXPECT"})
"""Whoever names one of these asks which build is tested."""
STARTS = ("main", "command")
SUFFIXES = ("/__init__.py", ".py", ".pyx", "")
"""What a module's path may end with; a folder without an `__init__.py` is a package too."""


def dotted(path: Path) -> str:
    """bridge/edgebridge/wire/head.py -> edgebridge.wire.head"""
    folder = next(folder for folder in reversed(FOLDERS) if path.is_relative_to(folder))
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
KERNELS = frozenset(dotted(ROOT / path) for path in TOOL["edgebroker"]["compiled"])


@cache
def source_of(name: str) -> Path | None:
    """The source of the module *name*; its folder if it has none; None if it is none of ours."""
    for folder in FOLDERS:
        for suffix in SUFFIXES:
            path = Path(f"{folder / name.replace('.', '/')}{suffix}")
            if path.exists():
                return path
    return None


@cache
def named_by(path: Path) -> frozenset[str]:
    """All that the module at *path* may import; names of what is no module are among them."""
    if path.suffix != ".py":
        return frozenset()
    tree = ast.parse(path.read_bytes(), str(path))
    package = dotted(path.parent / "__init__.py").split(".")
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found.update(one.name for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                found.add(base)
                found.update(f"{base}.{one.name}" for one in names)
    return frozenset(found)


@cache
def called_by(group: str) -> frozenset[str]:
    """What may be imported when *group*, a name like `edgebroker.cli.main`, is called: all in its folder."""
    module, _, called = group.rpartition(".")
    source = source_of(module) if called in STARTS else None
    if source is None or source.name != "__init__.py" or "import_module(" not in source.read_text(encoding="utf-8"):
        return frozenset()
    return frozenset(map(dotted, source.parent.rglob("*.py")))


@cache
def names_in(path: Path) -> frozenset[str]:
    """The identifiers in the file at *path*: among them the fixtures it asks for, as arguments or by a mark's text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
                found.add(name)
    return frozenset(found)


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The functions and classes that the conftest.py at *path* defines."""
    tree = ast.parse(path.read_bytes(), str(path))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))


@cache
def reached_from(path: Path) -> frozenset[str]:
    """The modules of ours that are imported when everything in *path* is run."""
    reached: set[str] = set()
    waiting = set(named_by(path))
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        source = source_of(name)
        if name.rpartition(".")[0]:
            waiting.add(name.rpartition(".")[0])
        waiting |= called_by(name) - reached
        if source is not None:
            reached.add(name)
            waiting |= named_by(source) - reached
    return frozenset(reached)


def takes_part(conftest: Path, path: Path) -> bool:
    """Whether *conftest* has a fixture that the tests at *path* ask for, or one for all."""
    return "autouse=True" in conftest.read_text(encoding="utf-8") or not defined_in(conftest).isdisjoint(names_in(path))


def has_kernel(path: Path) -> bool:
    """Whether a kernel takes part in the tests of the file at *path*."""
    if not ASKS.isdisjoint(names_in(path)):
        return True
    around = [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT / "tests")]
    asked = [one for one in around if one.exists() and takes_part(one, path)]
    return any(not KERNELS.isdisjoint(reached_from(one)) for one in (path, *asked))


def kernelless() -> Iterator[str]:
    """The paths of the files of tests in which no kernel takes part."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if not has_kernel(path):
            yield path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    print(*(f"--ignore={path}" for path in kernelless()))
