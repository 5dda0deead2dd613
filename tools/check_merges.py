"""Checks a plan of merges against the import graph before any code moves.

python tools/check_merges.py PLAN...    each PLAN is a TOML file: [modules] "new.py" = ["old.py", ...]

The graph of imports of this checkout (in functions and for types too) is contracted as the plans say. Reported are:
files that are planned twice or do not exist, cycles, modules that would become eager at the start of a gateway though
they are imported only when somebody asks for them, kernels that would be merged with interpreted code, two things of
one name in one module, and new files under 60 or over 700 lines. Exit code 1 if anything is reported.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("bridge/", "firmware-sim/", "analytics/")
PACKAGES = (
    "edgebroker",
    "bridge/edgebridge",
    "firmware-sim/edgedevices",
    "firmware-sim/edgelab",
    "analytics/edgeanalytics",
)
STARTED = ("edgebroker.cli", "edgebroker.cli.run", "edgebroker.cli.serving", "edgebroker.runtime.gateway")
"""What `edgebroker run` imports at once."""
LINES = range(60, 701)

Edges = dict[str, set[tuple[str, bool]]]
"""Module -> what it imports, and whether that is done when it is imported itself."""


def module_of(path: str) -> str:
    """bridge/edgebridge/wire/head.py -> edgebridge.wire.head"""
    for folder in FOLDERS:
        path = path.removeprefix(folder)
    return path.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")


def sources() -> dict[str, str]:
    """Module -> path."""
    found = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py*")))
    paths = (path.relative_to(ROOT).as_posix() for path in found if path.suffix in (".py", ".pyx"))
    return {module_of(path): path for path in paths}


def named_in(path: str, modules: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """The modules that the source at *path* imports."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".pyx"):
        for found in re.finditer(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", text, re.M):
            yield found[1] or found[2], True
        return
    package = module_of(path) if path.endswith("__init__.py") else module_of(path).rpartition(".")[0]

    def visit(node: ast.AST, is_eager: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, is_eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (whole if whole in modules else base), is_eager
        is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        for child in ast.iter_child_nodes(node):
            yield from visit(child, is_eager and not is_later)

    yield from visit(ast.parse(text), True)


def cycles(graph: Edges) -> Iterator[list[str]]:
    """The strongly connected components of more than one module (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def connect(node: str) -> Iterator[list[str]]:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other, _ in sorted(graph.get(node, ())):
            if other not in index:
                yield from connect(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                yield sorted(component)

    for node in sorted(graph):
        if node not in index:
            yield from connect(node)


def loaded(graph: Edges, started: Iterable[str]) -> set[str]:
    """What is imported when *started* are."""
    seen: set[str] = set()
    waiting = list(started)
    while waiting:
        module = waiting.pop()
        if module and module not in seen:
            seen.add(module)
            waiting += [other for other, is_eager in graph.get(module, ()) if is_eager]
            waiting.append(module.rpartition(".")[0])
    return seen


def defined_in(path: str) -> set[str]:
    """The classes and functions of a module."""
    if path.endswith(".pyx"):
        return set()
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def complaints(plan: dict[str, list[str]]) -> Iterator[str]:
    """What is wrong with *plan*."""
    paths = sources()
    target: dict[str, str] = {}
    for new, olds in plan.items():
        for old in olds:
            if not (ROOT / old).exists():
                yield f"{old}: there is no such file"
            elif target.setdefault(module_of(old), module_of(new)) != module_of(new):
                yield f"{old}: planned twice"
    graph = {module: set(named_in(path, paths)) for module, path in paths.items()}
    contracted: defaultdict[str, set[tuple[str, bool]]] = defaultdict(set)
    for module, edges in graph.items():
        here = target.get(module, module)
        contracted[here] |= {(target.get(other, other), eager) for other, eager in edges if other in paths}
        contracted[here] -= {(here, True), (here, False)}
    known = list(cycles(graph))
    for cycle in cycles(contracted):
        if cycle not in known:
            yield f"a cycle: {', '.join(cycle)}"
    before = loaded(graph, STARTED)
    after = loaded(contracted, [target.get(module, module) for module in STARTED])
    for module in sorted(paths):
        if module not in before and target.get(module, module) in after:
            yield f"{paths[module]} would be loaded at every start, in {target.get(module, module)}"
    compiled = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["edgebroker"]["compiled"])
    for new, olds in plan.items():
        if 0 < len(compiled.intersection(olds)) < len(olds):
            yield f"{new}: compiled and interpreted code together: {', '.join(olds)}"
        names = [name for old in olds if (ROOT / old).exists() for name in defined_in(old)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"{new}: defined twice: {', '.join(twice)}"
        lines = sum(len((ROOT / old).read_text(encoding="utf-8").splitlines()) for old in olds if (ROOT / old).exists())
        if lines not in LINES and not new.endswith("__init__.py"):
            yield f"{new}: {lines} lines"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    planned = [tomllib.loads(Path(path).read_text(encoding="utf-8"))["modules"] for path in sys.argv[1:]]
    found = list(complaints({new: olds for modules in planned for new, olds in modules.items()}))
    print("\n".join(found))
    sys.exit(bool(found))
