"""The import rule of docs/decisions.md, "Floors", read from the sources of all four packages.

A module imports its own folder and lower floors. Imports inside functions and under TYPE_CHECKING count like any other:
they are knowledge, whenever they run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("", "bridge/", "firmware-sim/", "firmware-sim/", "analytics/")
PACKAGES = ("edgebroker", "edgebridge", "edgedevices", "edgelab", "edgeanalytics")

FLOORS = {
    "edgebroker": 0,  # the modules directly in it
    "edgebridge": 0,
    "edgebroker.dissemination": 1,
    "edgebroker.files": 1,
    "edgebroker.filters": 1,
    "edgebroker.matching": 1,
    "edgebroker.overlay": 1,
    "edgebroker.relocation": 1,
    "edgebridge.wire": 1,
    "edgebroker.storage": 2,
    "edgebridge.session": 2,
    "edgebroker.node": 3,
    "edgebroker.federation": 3,
    "edgebridge.frontend": 3,
    "edgebridge.bridge": 3,
    "edgebroker.runtime": 4,
    "edgelab.simworld": 4,
    "edgebroker.api": 5,
    "edgebroker.cli": 5,
    "edgebroker.__main__": 5,
    "edgedevices": 5,
    "edgelab": 5,
    "edgeanalytics": 5,
}
STANDS_ON = {
    ("edgebridge.frontend", "edgebroker.node"),  # the front end turns sessions into clients of the node
    ("edgebridge.frontend", "edgebroker.federation"),  # ... and into a part of a federation
    ("edgebroker.federation", "edgebroker.node"),  # deadlines are named as the node's are
    ("edgelab", "edgebroker.cli"),  # its commands look like all others
    ("edgebroker.__main__", "edgebroker.cli"),  # `python -m edgebroker` is the command line
}
ANALYTICS_READ = ("edgebroker.log_schema", "edgebroker.errors", "edgebroker.storage.deliverylog")

WORLDLY_FLOOR = 4
WORLDLY = frozenset(
    "asyncio concurrent datetime fcntl glob http logging mmap multiprocessing os pathlib queue random secrets select "
    "selectors shutil signal socket socketserver sqlite3 ssl subprocess tempfile threading time urllib uuid".split()
)
DYNAMIC_IMPORTS = frozenset({"import_module", "__import__"})
WORLDLY_CALLS = DYNAMIC_IMPORTS | {"open", "print", "input", "exec", "eval", "breakpoint"}
CALLS_ALLOWED = {("edgebroker.dataclasses", "exec")}
"""Methods of dataclasses are compiled from a source that names fields alone, as the standard library does it."""

STANDARD = sys.stdlib_module_names | {"_sha2"}  # which is in it from Python 3.12 on
REQUIRED = frozenset({"click", "h11", "wsproto"})
COMPILING = frozenset({"cpython", "cython", "libc"})
"""What only compiling needs."""
OPTIONAL = frozenset({"orjson", "rich", "sqlite_utils", "psutil", "paho", "aiomqtt"})


@dataclass(frozen=True)
class Import:
    """`importer` names `imported`. `optional`: inside a function, or where an ImportError is caught."""

    importer: str
    imported: str
    place: str
    optional: bool


def module_of(path: str) -> str:
    """bridge/edgebridge/wire/__init__.py -> edgebridge.wire."""
    for folder in FOLDERS[1:]:
        path = path.removeprefix(folder)
    return path.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")


def folder_of(module: str) -> str:
    """The entry of FLOORS a module belongs to: edgebroker.matching.pst -> edgebroker.matching."""
    name = module
    while name and name not in FLOORS:
        name = name.rpartition(".")[0]
    return name


class ImportReader(ast.NodeVisitor):
    """Collects the imports of one source, wherever they stand, and the calls that reach out of the core."""

    def __init__(self, path: str, modules: frozenset[str]) -> None:
        self.path = path
        self.module = module_of(path)
        self.package = self.module if path.endswith("__init__.py") else self.module.rpartition(".")[0]
        self.modules = modules
        self.optional = 0
        self.imports: list[Import] = []
        self.calls: list[tuple[str, str]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self.package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            self.add(whole if whole in self.modules else base, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        match node.args:
            case [ast.Constant(value=str(imported)), *_] if name in DYNAMIC_IMPORTS:
                self.add(imported, node.lineno)
            case _ if name in DYNAMIC_IMPORTS or isinstance(node.func, ast.Name):
                self.calls.append((name, self.place(node.lineno)))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.optional += 1
        self.generic_visit(node)
        self.optional -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Try(self, node: ast.Try) -> None:
        caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
        forgiving = "ImportError" in caught or "ModuleNotFoundError" in caught
        self.optional += forgiving
        for statement in node.body:
            self.visit(statement)
        self.optional -= forgiving
        for statement in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(statement)

    def add(self, imported: str, line: int) -> None:
        self.imports.append(Import(self.module, imported, self.place(line), self.optional > 0))

    def place(self, line: int) -> str:
        return f"{self.path}:{line}"


def read_imports(path: str, source: str, modules: frozenset[str]) -> ImportReader:
    """The imports of a .py, or the `cimport`s of a .pxd."""
    reader = ImportReader(path, modules)
    if path.endswith(".py"):
        reader.visit(ast.parse(source, path))
    else:
        for number, line in enumerate(source.splitlines(), 1):
            if found := re.match(r"\s*(?:from\s+(\S+)\s+)?c?import\s+(\S+)", line):
                reader.add(found[1] or found[2], number)
    return reader


def complaints_about_imports(found: Import) -> Iterator[str]:
    top = found.imported.partition(".")[0]
    importer, package = folder_of(found.importer), found.importer.partition(".")[0]
    broker = package in ("edgebroker", "edgebridge")
    if not importer:
        yield f"{found.place}: {found.importer} has no floor; give its folder one in FLOORS"
    elif top in PACKAGES:
        imported = folder_of(found.imported)
        allowed = importer == imported or FLOORS[imported] < FLOORS[importer] or (importer, imported) in STANDS_ON
        if not allowed:
            yield f"{found.place}: {importer} (floor {FLOORS[importer]}) imports {imported} (floor {FLOORS[imported]})"
        if package == "edgeanalytics" and top in ("edgebroker", "edgebridge"):
            readable = any(f"{found.imported}.".startswith(f"{name}.") for name in ANALYTICS_READ)
            if not readable and found.imported != "edgebroker":  # the package itself holds the version alone
                yield f"{found.place}: the analytics import {found.imported}; they may read {', '.join(ANALYTICS_READ)}"
    elif top in STANDARD:
        if FLOORS[importer] < WORLDLY_FLOOR and top in WORLDLY:
            yield f"{found.place}: {importer} imports {top}: no I/O, clock or chance below floor {WORLDLY_FLOOR}"
    elif broker and top not in REQUIRED | OPTIONAL | COMPILING:
        yield f"{found.place}: the broker imports {top}, which a gateway need not have"
    elif broker and top in OPTIONAL and not found.optional:
        yield f"{found.place}: {top} is optional; import it in the function that needs it, or catch the ImportError"


def complaints_about_calls(reader: ImportReader) -> Iterator[str]:
    floor = FLOORS.get(folder_of(reader.module), 0)
    for name, place in reader.calls:
        if floor < WORLDLY_FLOOR and name in WORLDLY_CALLS and (reader.module, name) not in CALLS_ALLOWED:
            yield f"{place}: {name}() in the core"


def cycles(imports: list[Import]) -> list[str]:
    """Every import cycle between modules, as `a -> b -> a`, each once."""
    edges: dict[str, set[str]] = {}
    for found in imports:
        if found.importer != found.imported:
            edges.setdefault(found.importer, set()).add(found.imported)
    finished: set[str] = set()
    cyclic: list[str] = []

    def walk(module: str, path: list[str]) -> None:
        if module in path:
            cyclic.append(" -> ".join([*path[path.index(module) :], module]))
        elif module not in finished:
            for imported in sorted(edges.get(module, ())):
                walk(imported, [*path, module])
            finished.add(module)

    for module in sorted(edges):
        walk(module, [])
    return cyclic


def complaints(tree: Mapping[str, str]) -> list[str]:
    """Everything in *tree* (path -> source) that breaks the import rule."""
    modules = frozenset(module_of(path) for path in tree if path.endswith(".py"))
    readers = [read_imports(path, source, modules) for path, source in tree.items()]
    imports = [found for reader in readers for found in reader.imports]
    return [
        *(text for found in imports for text in complaints_about_imports(found)),
        *(text for reader in readers for text in complaints_about_calls(reader)),
        *(f"import cycle: {cycle}" for cycle in cycles(imports)),
    ]


def project() -> dict[str, str]:
    """The sources of the four packages: path relative to the root -> text."""
    found = {}
    for folder, package in zip(FOLDERS, PACKAGES, strict=True):
        for path in sorted((ROOT / folder / package).rglob("*.p*")):
            if path.suffix in (".py", ".pxd"):
                found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    return found


def test_every_module_imports_its_own_folder_and_lower_floors_only() -> None:
    tree = project()
    assert len(tree) > 20, "the packages were not found"
    found = complaints(tree)
    assert not found, "\n".join(["", *found])


BREACHES = {
    "upwards": ({"edgebroker/matching/a.py": "import edgebroker.node.b"}, "imports edgebroker.node (floor 3)"),
    "sideways": ({"edgebroker/matching/a.py": "from edgebroker.filters import b"}, "edgebroker.filters (floor 1)"),
    "strangers of two packages": ({"bridge/edgebridge/wire/a.py": "import edgebroker.filters.b"}, "(floor 1)"),
    "the node knows the front end": ({"edgebroker/node/a.py": "import edgebridge.frontend.b"}, "edgebridge.frontend"),
    "one world knows the other": (
        {"firmware-sim/edgelab/simworld/a.py": "import edgebroker.runtime.b"},
        "edgebroker.runtime",
    ),
    "relative": ({"edgebroker/filters/a.py": "from ..node import b", "edgebroker/node/b.py": ""}, "edgebroker.node"),
    "in a function": ({"edgebroker/a.py": "def f():\n    import edgebroker.node.b"}, "edgebroker/a.py:2"),
    "for types": ({"edgebroker/a.py": "if TYPE_CHECKING:\n    from edgebroker.cli import b"}, "edgebroker.cli"),
    "in a .pxd": ({"edgebroker/matching/a.pxd": "from edgebroker.node.b cimport C"}, "edgebroker.node"),
    "by import_module": ({"edgebroker/a.py": "importlib.import_module('edgebroker.node.b')"}, "edgebroker.node"),
    "by a computed name": ({"edgebroker/node/a.py": "importlib.import_module(name)"}, "import_module()"),
    "an event loop": ({"bridge/edgebridge/frontend/a.py": "import asyncio"}, "imports asyncio"),
    "a clock": ({"edgebroker/node/a.py": "from time import monotonic"}, "imports time"),
    "a submodule of os": ({"edgebroker/storage/a.py": "import os.path"}, "imports os"),
    "opening a file": ({"edgebroker/storage/a.py": "x = open('f')"}, "open() in the core"),
    "a folder without a floor": ({"edgeelsewhere/a.py": "import edgebroker.limits"}, "has no floor"),
    "numpy": ({"edgebroker/cli/a.py": "def f():\n    import numpy as np"}, "the broker imports numpy"),
    "Spark": ({"edgebroker/runtime/a.py": "from pyspark.sql import Row"}, "the broker imports pyspark"),
    "rich at the top": ({"edgebroker/cli/a.py": "import rich.table"}, "rich is optional"),
    "the analytics know the node": ({"analytics/edgeanalytics/a.py": "import edgebroker.node.b"}, "analytics import"),
    "a name that begins alike": ({"analytics/edgeanalytics/a.py": "import edgebroker.records2"}, "analytics import"),
    "the commands know the devices": ({"edgebroker/cli/a.py": "import edgedevices.b"}, "imports edgedevices"),
    "a cycle": ({"edgebroker/a.py": "import edgebroker.b", "edgebroker/b.py": "from . import a"}, "a -> edgebroker.b"),
    "a longer cycle": ({f"edgebroker/{a}.py": f"from edgebroker.{b} import x" for a, b in ("xy", "yz", "zx")}, "cycle"),
}


@pytest.mark.parametrize(("tree", "expected"), BREACHES.values(), ids=BREACHES)
def test_the_checker_catches(tree: dict[str, str], expected: str) -> None:
    found = complaints(tree)
    assert len(found) == 1, found
    assert expected in found[0]


def test_the_checker_accepts_what_the_rule_allows() -> None:
    tree = {
        "edgebroker/limits.py": "import dataclasses",
        "edgebroker/matching/pst.py": "import cython\nfrom edgebroker.limits import X\nfrom . import cells",
        "edgebroker/matching/cells.py": "",
        "edgebroker/node/__init__.py": "from .node import Node",
        "edgebroker/node/node.py": "from edgebroker.matching.pst import Pst\nfrom ..limits import X",
        "bridge/edgebridge/frontend/a.py": "import edgebroker.node\nfrom edgebridge.wire import b",
        "edgebroker/runtime/a.py": "import asyncio\ntry:\n    import orjson\nexcept ImportError:\n    orjson = None",
        "edgebroker/cli/__init__.py": "import click\nimportlib.import_module(name)",
        "edgebroker/cli/log.py": "def f():\n    import rich.table",
        "edgebroker/__main__.py": "from edgebroker.cli import main",
        "analytics/edgeanalytics/a.py": "import pyspark\nfrom edgebroker.storage.deliverylog.reader import x",
        "firmware-sim/edgedevices/a.py": "import paho.mqtt.client, psutil",
    }
    assert complaints(tree) == []
