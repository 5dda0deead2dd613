"""Proves that a move of code changed nothing but places and names.

python tools/compare_trees.py OLD NEW PLAN...    OLD and NEW are checkouts, each PLAN a TOML file:

[modules]   "new/path.py" = ["old/path.py", ...]      which files became which
[names]     "package.module.Name" = "NewName"         module-level names
[members]   "package.module.Class.member" = "new"     methods, properties and attributes
[words]     "old" = "new"                             parameters and local variables
[strings]   "old text" = "new text"                   constants that name modules

Every statement of every old module is compared with the one that bears its new name: the syntax trees must be equal
but for identifiers that the plans rename. Two names that were different must not have become one inside a function.
Docstrings, comments and the places of imports are not compared; that imports still work is what running shows. Types
declared for Cython are compared word by word. Exit code 1 if anything differs.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("bridge/", "firmware-sim/", "analytics/")
SOURCES = ("edgebroker", "bridge", "firmware-sim", "analytics")
IDENTIFIERS = {
    ast.Name: ("id",),
    ast.Attribute: ("attr",),
    ast.arg: ("arg",),
    ast.keyword: ("arg",),
    ast.FunctionDef: ("name",),
    ast.AsyncFunctionDef: ("name",),
    ast.ClassDef: ("name",),
    ast.ExceptHandler: ("name",),
    ast.MatchAs: ("name",),
    ast.MatchStar: ("name",),
    ast.MatchClass: ("kwd_attrs",),
    ast.Global: ("names",),
    ast.Nonlocal: ("names",),
}
DOTTED = re.compile(r"\b(edge\w+(?:[./]\w+)+)")


def module_of(path: str) -> str:
    """bridge/edgebridge/wire/head.py -> edgebridge.wire.head"""
    for folder in FOLDERS:
        path = path.removeprefix(folder)
    return path.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")


class Plan:
    """All plans together: where files went, and what each identifier may have become."""

    def __init__(self, paths: list[str]) -> None:
        self.modules: dict[str, list[str]] = {}
        self.allowed: defaultdict[str, set[str]] = defaultdict(set)
        self.top: dict[str, str] = {}
        self.strings: dict[str, str] = {}
        for path in paths:
            plan = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            self.modules.update(plan.get("modules", {}))
            self.top.update(plan.get("names", {}))
            self.strings.update(plan.get("strings", {}))
            for table in ("names", "members", "words"):
                for old, new in plan.get(table, {}).items():
                    self.allowed[old.rpartition(".")[2]].add(new)
        for new, olds in self.modules.items():
            for old in olds:
                self.allowed[module_of(old).rpartition(".")[2]].add(module_of(new).rpartition(".")[2])

    def allows(self, old: str | None, new: str | None) -> bool:
        return old == new or (old is not None and new in self.allowed.get(old, ()))


def is_import(node: ast.AST) -> bool:
    """Whether *node* imports something."""
    return isinstance(node, ast.Import | ast.ImportFrom)


def is_text(node: ast.AST) -> bool:
    """Whether *node* is a docstring, or a text that stands alone as one does."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """*body* without docstrings, imports, and what only guards imports."""
    kept = []
    for node in body:
        if is_import(node) or is_text(node) or isinstance(node, ast.Pass):
            continue
        if isinstance(node, ast.If) and not node.orelse and all(map(is_import, node.body)):
            continue
        kept.append(node)
    return kept


def keys(node: ast.stmt) -> tuple[str, ...]:
    """By what a statement of a module is found again."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    stored = (x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store))
    return tuple(dict.fromkeys(stored)) or (type(node).__name__,)


class Comparison:
    """Compares two trees and keeps what differs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.differences: list[str] = []
        self.functions = 0
        self.forward_references: defaultdict[str, set[str]] = defaultdict(set)
        for name, renamed in plan.top.items():
            if (short := name.rpartition(".")[2])[0].isupper():  # a class in quotes, as annotations have it
                self.forward_references[short].add(renamed)

    def compare_modules(self, old: Path, new: Path, olds: list[str], path: str) -> None:
        """The statements of the files *olds* together are those of the file *path*."""
        tree = ast.parse((new / path).read_text(encoding="utf-8"))
        waiting: defaultdict[tuple[str, ...], list[ast.stmt]] = defaultdict(list)
        for node in statements(tree.body):
            waiting[keys(node)].append(node)
        for source in olds:
            module = module_of(source)
            for node in statements(ast.parse((old / source).read_text(encoding="utf-8")).body):
                wanted = tuple(self.plan.top.get(f"{module}.{key}", key) for key in keys(node))
                if not waiting[wanted]:
                    self.differences.append(f"{source}:{node.lineno}: {wanted} is not in {path}")
                    continue
                self.compare(node, waiting[wanted].pop(0), f"{source}:{node.lineno}", {})
        for left in waiting.values():
            self.differences += [f"{path}:{node.lineno}: stands in no old file" for node in left]

    def compare(self, old: object, new: object, place: str, names: dict[str, str]) -> None:
        """*names*: what the names of the function around became."""
        if type(old) is not type(new):
            self.differences.append(f"{place}: {type(old).__name__} became {type(new).__name__}")
        elif isinstance(old, ast.AST):
            self.compare_nodes(
                old, new, f"{place.rpartition(':')[0]}:{getattr(old, 'lineno', place.rpartition(':')[2])}", names
            )
        elif isinstance(old, list) and isinstance(new, list):
            if old and isinstance(old[0], ast.stmt):
                old, new = statements(old), statements(new)
            if len(old) != len(new):
                self.differences.append(f"{place}: {len(old)} parts became {len(new)}")
                return
            for one, other in zip(old, new, strict=True):
                self.compare(one, other, place, names)
        elif old != new and not (isinstance(old, str) and isinstance(new, str) and self.same_text(old, new)):
            self.differences.append(f"{place}: {old!r} became {new!r}")

    def compare_nodes(self, old: ast.AST, new: ast.AST, place: str, names: dict[str, str]) -> None:
        if isinstance(old, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self.functions += 1
            names = {}
        identifiers = IDENTIFIERS.get(type(old), ())
        for field in old._fields:
            one, other = getattr(old, field), getattr(new, field)
            if field in ("ctx", "type_comment", "kind"):
                continue
            if field in identifiers:
                pairs = list(zip(one, other, strict=True)) if isinstance(one, list) else [(one, other)]
                for before, after in pairs:
                    if not self.plan.allows(before, after):
                        self.differences.append(f"{place}: {before} became {after}")
                    if isinstance(old, ast.Name | ast.arg):
                        self.note(before, after, place, names)
            elif isinstance(old, ast.Assign) and field == "value" and self.is_slots(old):
                self.compare_slots(one, other, place)
            else:
                self.compare(one, other, place, names)

    def note(self, before: str, after: str, place: str, names: dict[str, str]) -> None:
        """Two names of a function stay two."""
        if names.setdefault(after, before) != before:
            self.differences.append(f"{place}: {before} and {names[after]} both became {after}")

    @staticmethod
    def is_slots(node: ast.Assign) -> bool:
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id in ("__slots__", "__match_args__")

    def compare_slots(self, old: ast.expr, new: ast.expr, place: str) -> None:
        """Slots are a set: they are sorted by name."""
        left = [x.value for x in ast.walk(new) if isinstance(x, ast.Constant)]
        for value in (x.value for x in ast.walk(old) if isinstance(x, ast.Constant)):
            found = next((x for x in left if x == value), None) or next(
                (x for x in left if self.plan.allows(value, x)), None
            )
            if found is None:
                self.differences.append(f"{place}: the slot {value} is gone")
            else:
                left.remove(found)
        if left:
            self.differences.append(f"{place}: slots {left} are new")

    def same_text(self, old: str, new: str) -> bool:
        """Constants may name modules and files, which are left out, and classes; any other may be a key of JSON."""
        if self.plan.strings.get(old) == new or new in self.forward_references.get(old, ()):
            return True
        return bool(DOTTED.search(old)) and DOTTED.sub("*", old) == DOTTED.sub("*", new)

    def compare_words(self, old: Path, new: Path, olds: list[str], path: str) -> None:
        """C types: the words of all old files, in any order of the files, are those of the new one."""
        before = sorted(chunk for source in olds for chunk in self.chunks((old / source).read_text(encoding="utf-8")))
        after = list(self.chunks((new / path).read_text(encoding="utf-8")))
        for chunk in before:
            found = next((x for x in after if self.same_words(chunk, x)), None)
            if found is None:
                self.differences.append(f"{olds}: not in {path}: {' '.join(chunk)[:100]}")
            else:
                after.remove(found)
        self.differences += [f"{path}: new: {' '.join(chunk)[:100]}" for chunk in after]

    def chunks(self, text: str) -> Iterator[tuple[str, ...]]:
        """The words of each top-level declaration, without comments, docstrings and imports."""
        text = re.sub(r'"""(?:.|\n)*?"""', "", text)
        text = re.sub(r"^\s*(?:from\s.*?\s)?c?import\b(?:[^\n(]*\([^)]*\)|[^\n]*)", "", text, flags=re.M)
        text = re.sub(r"#[^\n]*", "", text)
        for chunk in re.split(r"\n(?=\S)", text):
            words = tuple(re.findall(r"\w+|[^\w\s]", chunk))
            if words:
                yield words

    def same_words(self, old: tuple[str, ...], new: tuple[str, ...]) -> bool:
        return len(old) == len(new) and all(map(self.plan.allows, old, new))


def main(old: Path, new: Path, plans: list[str]) -> int:
    """Compare the checkouts, print what differs, and return the exit code."""
    plan = Plan(plans)
    comparison = Comparison(plan)
    planned = {source for olds in plan.modules.values() for source in olds}
    count = 0
    for path in sorted(x.relative_to(old).as_posix() for folder in SOURCES for x in (old / folder).rglob("*.py*")):
        if path.endswith((".py", ".pyx")) and path not in planned:
            plan.modules[path] = [path]
    for path, olds in sorted(plan.modules.items()):
        if not olds:
            continue
        count += len(olds)
        if path.endswith(".py"):
            comparison.compare_modules(old, new, olds, path)
        else:
            comparison.compare_words(old, new, olds, path)
        types = [x for x in (source.rpartition(".")[0] + ".pxd" for source in olds) if (old / x).exists()]
        if types and not path.endswith(".pxd"):
            comparison.compare_words(old, new, types, path.rpartition(".")[0] + ".pxd")
    for difference in comparison.differences:
        print(difference)
    print(
        f"{count} files became {len(plan.modules)}: {comparison.functions} functions compared, "
        f"{len(comparison.differences)} differences"
    )
    return bool(comparison.differences)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
