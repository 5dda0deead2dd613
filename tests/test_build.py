"""What is tested is what was promised: all kernels compiled, or none, and none compiled from an older source."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
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


CDEF = re.compile(
    r"^cdef class (?P<owner>\w+)|@cython\.locals\((?P<typed>(?:[^()]|\([^()]*\))*)\)"
    r"|^(?P<indent> *)(?:cdef|cpdef) [^\n(:=]*?(?P<function>\w+)\(",
    re.M,
)
"""The beginning of a class, the types of a function's locals, or a function."""


def stale_locals(declarations: str, source: str) -> list[str]:
    """`function: name` for each name in a `cython.locals` of a .pxd that its function in the .py does not have."""
    functions: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(source).body:
        owned = [(f"{node.name}.", each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        functions |= {owner + each.name: each for owner, each in owned if isinstance(each, ast.FunctionDef)}
    stale, owner, typed = [], "", list[str]()
    for found in CDEF.finditer(re.sub(r"#.*", "", declarations)):
        if found["typed"] is not None:
            typed = re.findall(r"(\w+)\s*=", found["typed"])
        elif found["function"]:
            name = (f"{owner}." if found["indent"] else "") + found["function"]
            known = set(locals_of(functions[name])) if name in functions else set()
            stale += [f"{name}: {each}" for each in typed if each not in known]
            typed = []
        elif found["owner"]:
            owner = found["owner"]
    return stale


def locals_of(function: ast.FunctionDef) -> Iterator[str]:
    """The names of parameters, and all that are assigned to."""
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def test_every_typed_local_is_one_of_its_function(root: Path) -> None:
    declared = [path for name in ("edgebroker", "bridge") for path in sorted((root / name).rglob("*.pxd"))]
    pairs = {path: path.with_suffix(".py") for path in declared if path.with_suffix(".py").exists()}
    assert len(pairs) > 20
    stale = {
        str(path.relative_to(root)): stale_locals(path.read_text(), source.read_text())
        for path, source in pairs.items()
    }
    assert {name: found for name, found in stale.items() if found} == {}, "declared in vain: renamed, or gone"


def test_a_typed_local_that_is_gone_is_found() -> None:
    source = "def f(a):\n  b = a\nclass A:\n  def f(self):\n    for c in d:\n      pass\n"
    declarations = (
        "@cython.locals(a=int, b=dict[int],\n  c=int)\ncdef f(a)\n"
        "cdef class A:\n    @cython.locals(c=cython.longlong, d=int)\n    cpdef bint f(self)\n"
        "    cpdef bint g(self)\n@cython.locals(e=int)\ncdef inline int gone(int a)\n"
    )
    assert stale_locals(declarations, source) == ["f: c", "A.f: d", "gone: e"]


def test_what_is_installed_on_gateways_and_for_builds_is_known_by_its_hash(root: Path) -> None:
    for name in ("gateway", "build", "all"):
        entries = re.split(r"\n(?=\S)", (root / f"requirements/{name}.txt").read_text())
        packages = [entry for entry in entries if not entry.startswith("#")]
        assert packages
        assert [entry for entry in packages if "--hash=sha256:" not in entry] == []
    pages = (root / "docs/operations.md").read_text()
    assert "pip install --require-hashes -r requirements/build.txt -r requirements/gateway.txt" in pages


def test_32_bit_boards_get_only_packages_with_wheels_or_of_pure_python(root: Path) -> None:
    """cbor2 6 is written in Rust and has no wheel for armv7; 5.9.0 has one for every machine."""
    pinned = (root / "requirements/all.txt").read_text()
    assert re.search(r"^cbor2==5\.\S+ ; platform_machine == 'armv7l'", pinned, re.M)
    assert re.search(r"^cbor2==\S+ ; platform_machine != 'armv7l'", pinned, re.M)
    assert "cbor2" not in (root / "requirements/gateway.txt").read_text(), "a gateway has a CBOR module of its own"
