"""The rules of the house for the sources of all packages: size of files and functions, names of classes, construction.

docs/decisions.md gives the reasons. Every rule has a list of exceptions beside it, each with its reason. An exception
that is no longer needed is a failure too, so the lists shrink with the work. What a rule would catch is shown by the
made-up breaches at the end. tests/test_layers.py has the rule about imports between folders.
"""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.test_layers import Import, ImportReader, folder_of, module_of, read_imports

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "edgebroker",
    "bridge/edgebridge",
    "firmware-sim/edgedevices",
    "firmware-sim/edgelab",
    "analytics/edgeanalytics",
)

# -- the numbers ---------------------------------------------------------------------------------------------------
LINES_MIN = 60
LINES_MAX = 700
SHORT_FILES_MAX = 40
"""Entries of SIZES for files under LINES_MIN. The number only goes down."""
FUNCTION_LINES_MAX = 70
COLLABORATORS_MAX = 6
LONE_LINES_MAX = 100
"""A module under so many lines with one importer belongs into that importer."""

# -- the exceptions ------------------------------------------------------------------------------------------------
SIZES: dict[str, str] = {
    # values and errors that many rooms share: in any larger module they would bring its imports with them
    "edgebroker/digests.py": "hash functions of floor 0, used by all rooms",
    "edgebroker/instants.py": "units of time of floor 0, used by all rooms",
    "edgebroker/interest.py": "a value of floor 0: matching, federation and overlay exchange it",
    "edgebroker/tokenbucket.py": "a rate limit of floor 0, for clients, bridges and links",
    "edgebroker/overlay/link/options.py": "options that settings and the simulation build without the link",
    "edgebroker/overlay/link/codec/errors.py": "every module of the codec raises it",
    "edgebroker/overlay/id_allocator.py": "one counter of identifiers for four kinds of messages",
    "bridge/edgebridge/session/credentials.py": "what listeners, access files and handlers exchange on authentication",
    "bridge/edgebridge/session/durability.py": "what settings, sessions and the journal exchange on durability",
    "bridge/edgebridge/wire/dialect.py": "the differences of the protocol versions, as one table",
    "firmware-sim/edgedevices/__init__.py": "the errors of the package",
    # compiled modules: what is beside them is interpreted
    "edgebroker/matching/interned.py": "compiled, and its users are the two kernels",
    "bridge/edgebridge/wire/head.py": "compiled, and used by the encoder, which is not",
    "bridge/edgebridge/session/journal/requeue.py": "compiled; recovery calls it from another room",
    "edgebroker/files/gear/boundaries.pyx": "compiled twin of a few lines in Python",
    "edgebroker/storage/deliverylog/planes/numbers.pyx": "compiled twin of a few lines in Python",
    "bridge/edgebridge/frontend/journal/transactions.py": "interpreted, beside the compiled session journal",
    "bridge/edgebridge/frontend/journal/promote.py": "interpreted, beside the compiled session journal",
    "bridge/edgebridge/frontend/job.py": "interpreted, and used by the compiled input and by handlers",
    "bridge/edgebridge/frontend/sparkplug_rebirth.py": "interpreted, beside the compiled front end",
    "edgebroker/matching/kernel.py": "chooses the kernel, for the compiled tree and for tests",
    # the two kernels are laid out alike, file by file
    "edgebroker/matching/compiled/members.pyx": "the kernel is cut by its C types",
    "edgebroker/matching/compiled/nodes.pyx": "the twin of reference/nodes.py",
    "edgebroker/matching/reference/nodes.py": "the twin of compiled/nodes.pyx",
    "edgebroker/matching/reference/surveys.py": "the twin of compiled/surveys.pyx",
    # what is imported only when it is asked for, or must be imported before everything else
    "bridge/edgebridge/session/queue/factory.py": "imports the policy queue only for sessions that have a policy",
    "edgebroker/runtime/leftover_bridges.py": "every gateway asks it whether the package of bridges is needed",
    "edgebroker/runtime/loop/asyncio_without_ssl.py": "must run before anything imports asyncio",
    # commands: one module each, imported when it is called
    "edgebroker/cli/reload.py": "a command that makes one request",
    "firmware-sim/edgelab/bench/__init__.py": "the group of the benchmarks, which imports none of them",
    "firmware-sim/edgelab/bench/generator.py": "a process of its own, apart from what it measures",
    "firmware-sim/edgelab/experiment/__init__.py": "the group of the experiments, which imports none of them",
    # handlers and measures: one each, as the folder's list of contents promises
    "bridge/edgebridge/frontend/handlers/ack.py": "four handlers answer with it",
    "analytics/edgeanalytics/measures/measure.py": "the algebra that all measures share",
    "analytics/edgeanalytics/measures/selectivity.py": "one measure, one file",
}
"""File -> why it may have fewer than LINES_MIN lines, or more than LINES_MAX."""

NOUNS = frozenset({"Binding", "Ping", "Setting", "String"})
"""Nouns that end in -ing."""
PARTICIPLES = frozenset("Begun Broken Chosen Drawn Given Gone Held Kept Known Lost Made Said Sent Taken Told".split())
"""Participles that do not end in -ed."""
CLASS_NAMES: dict[str, str] = {
    "Refused": "click shows the error, and users meet its sentence instead of its name",
}
"""Class -> why it may have a name that is no noun."""

LONG_FUNCTIONS: dict[str, str] = {
    "edgebroker/like/segments.pyx: _pass": "two tables on the C stack, and every call costs",
    "bridge/edgebridge/frontend/fast_path/input.py: InputFastPath.receive": "one loop over the packets of a chunk: "
    "a call for each step costs a third of the time",
    "bridge/edgebridge/frontend/frontend.py: Frontend.__init__": "builds all parts of the front end, in order",
    "bridge/edgebridge/frontend/handlers/connect.py: ConnectHandler.complete_connect": "the steps of a CONNECT in the "
    "order of the standard, still in one piece",
}
"""`file: function` -> why it may have more than FUNCTION_LINES_MAX lines."""

CONSTRUCTORS: dict[str, str] = {
    "InputFastPath": "the compiled input calls the parts itself; to reach them through another object costs time",
    "ConnectHandler": "a CONNECT touches every part of the front end; to be cut together with complete_connect",
    "SysTopics": "$SYS shows figures of every part of the front end",
    "FederationMember": "joins the node, the sessions and the links of a gateway; to be cut",
}
"""Class -> why it may be given more than COLLABORATORS_MAX objects."""

TO_PASS = "to be passed at construction"
WATCHED = "a device is made before the object that watches it"
LATE_WIRING: dict[str, str] = {
    "edgebroker/runtime/loop/poller.py: self.on_batch_served": "the loop is made before the reactor",
    "edgebroker/runtime/peers/tls.py: self.server_context.sni_callback": "a callback of the ssl module",
    "firmware-sim/edgedevices/population.py: session.publish_handler": WATCHED,
    "edgebroker/cli/serving.py: gateway.view.reload": "the HTTP pages are made before the process knows how to reload",
    "edgebroker/runtime/loop/reactor.py: self._loop.poller.on_batch_served": "the loop is made before the reactor",
    "edgebroker/runtime/peers/peers.py: self._reactor.before_flush": TO_PASS,
    "firmware-sim/edgedevices/station.py: self.session.publish_handler": WATCHED,
    "firmware-sim/edgedevices/traffic/recorder.py: session.subscribed_handler": WATCHED,
    "firmware-sim/edgedevices/traffic/recorder.py: modem.state_handler": WATCHED,
    "firmware-sim/edgedevices/traffic/recorder.py: session.publish_handler": WATCHED,
    "firmware-sim/edgelab/demo/federation/listener.py: client.on_connect": "a callback of the paho library",
    "firmware-sim/edgelab/demo/federation/listener.py: client.on_subscribe": "a callback of the paho library",
    "firmware-sim/edgelab/demo/federation/listener.py: client.on_message": "a callback of the paho library",
    "firmware-sim/edgelab/demo/federation/placement_act.py: client.on_connect": "a callback of the paho library",
    "firmware-sim/edgelab/demo/federation/placement_act.py: client.on_disconnect": "a callback of the paho library",
    "firmware-sim/edgelab/demo/federation/placement_act.py: client.on_message": "a callback of the paho library",
    "firmware-sim/edgelab/simworld/disk.py: image.watch": "a disk of the simulation is copied with who watches it",
}
"""`file: attribute` -> why a function may be assigned to it after its object was made."""

LONE_MODULES: dict[str, str] = {
    "bridge/edgebridge/frontend/federation/gateway_events.py": "federation.py is as long as a file may be",
    "analytics/edgeanalytics/schemas.py": "the tables as Spark has them, beside how they are read",
    "bridge/edgebridge/frontend/sparkplug_rebirth.py": "a part of the front end; assembly.py constructs all of them",
    "analytics/edgeanalytics/measures/parties.py": "one measure, one file; figures.py lists them",
    "analytics/edgeanalytics/measures/selectivity.py": "one measure, one file; figures.py lists them",
    "analytics/edgeanalytics/stylesheet.py": "CSS, and no Python, of the report",
    "edgebroker/overlay/link/peer_boots.py": "the identity of a peer over its restarts, which link.py only asks",
}
"""File -> why it stays apart from its one importer."""


# -- what is read of a source --------------------------------------------------------------------------------------
@dataclass
class Definition:
    """A class. `is_value`: a dataclass, a tuple or an enumeration. `given`: the classes that `__init__` takes."""

    name: str
    place: str
    is_value: bool
    methods: set[str] = field(default_factory=set)
    given: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Assignment:
    """`target` = `value`, in the method or function `function`. `near`: names of functions that are defined in it."""

    path: str
    line: int
    target: ast.Attribute
    value: ast.expr
    function: str
    owner: Definition | None
    near: frozenset[str]


@dataclass
class Sources:
    """What the rules ask of a tree of sources."""

    lines: dict[str, int] = field(default_factory=dict)
    contents: set[str] = field(default_factory=set)
    """`__init__.py` that are tables of contents: a docstring, imports and constants."""
    classes: list[Definition] = field(default_factory=list)
    functions: list[tuple[str, int]] = field(default_factory=list)
    """`file: function`, and its lines."""
    assignments: list[Assignment] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    """Names that stand for more than methods: fields, properties, and attributes that any `__init__` assigns."""
    callables: set[str] = field(default_factory=set)
    """Names of attributes that are declared as functions."""
    imports: list[Import] = field(default_factory=list)
    compiled: frozenset[str] = frozenset()
    """Files that are compiled."""


class SourceReader:
    """Visits the statements of one source; rules ask nothing about expressions but what is assigned."""

    def __init__(self, path: str, modules: frozenset[str], found: Sources) -> None:
        self.path = path
        self.found = found
        self.imports = ImportReader(path, modules)

    def read(self, body: Iterable[ast.stmt], names: str = "", owner: Definition | None = None) -> None:
        """*body* of the module, of a class (`owner`), or of a block in them; *names*: where it stands, with a dot."""
        for node in body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    self.imports.visit(node)
                case ast.ClassDef():
                    self.read_class(node, names)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.read_function(node, names, owner)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if owner is not None:
                    self.found.attributes.add(name)
                    if ast.unparse(annotation).startswith("Callable"):
                        self.found.callables.add(name)
                case _:
                    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
                    self.imports.optional += is_for_types
                    for block in blocks(node):
                        self.read(block, names, owner)
                    self.imports.optional -= is_for_types

    def read_class(self, node: ast.ClassDef, names: str) -> None:
        marks = [ast.unparse(mark) for mark in (*node.decorator_list, *node.bases)]
        is_value = any(re.match(r"(standard\.)?dataclass\b|NamedTuple\b|\w*(Enum|Flag)\b", mark) for mark in marks)
        made = Definition(node.name, f"{self.path}:{node.lineno}", is_value)
        self.found.classes.append(made)
        self.read(node.body, f"{names}{node.name}.", made)

    def read_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, names: str, owner: Definition | None) -> None:
        assert node.end_lineno is not None
        self.found.functions.append((f"{self.path}: {names}{node.name}", node.end_lineno - node.lineno + 1))
        if owner is not None:
            marks = " ".join(map(ast.unparse, node.decorator_list))
            is_property = "property" in marks or "setter" in marks
            (self.found.attributes if is_property else owner.methods).add(node.name)
            if node.name == "__init__":
                takes = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs][1:]
                owner.given = [found for one in takes if (found := type_of(one.annotation)) is not None]
        inner = [one for one in statements(node.body) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
        near = frozenset(one.name for one in inner)
        for one in statements(node.body):
            match one:
                case ast.Assign(targets=targets, value=value):
                    self.read_assignments(targets, value, node.name, owner, near)
                case ast.AnnAssign(target=target, value=value, annotation=annotation):
                    if isinstance(target, ast.Attribute) and ast.unparse(annotation).startswith("Callable"):
                        self.found.callables.add(target.attr)
                    self.read_assignments([target], value, node.name, owner, near)
        self.imports.optional += 1
        self.read(node.body, f"{names}{node.name}.")
        self.imports.optional -= 1

    def read_assignments(
        self,
        targets: Iterable[ast.expr],
        value: ast.expr | None,
        function: str,
        owner: Definition | None,
        near: frozenset[str],
    ) -> None:
        for target in targets:
            if isinstance(target, ast.Attribute) and value is not None:
                made = Assignment(self.path, target.lineno, target, value, function, owner, near)
                self.found.assignments.append(made)
                if is_self(target.value) and function == "__init__" and not isinstance(value, ast.Lambda):
                    self.found.attributes.add(target.attr)


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of statements in an `if`, `for`, `while`, `with`, `try` or `match`."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of *body* and of its blocks, without those of the functions and classes in it."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for block in blocks(node):
                yield from statements(block)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def type_of(annotation: ast.expr | None) -> str | None:
    """The class that an annotation names: `Node`, `session.Session` and `Node | None`, but not `list[Node]`."""
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            return type_of(left)
        case ast.Constant(value=str(text)):
            return type_of(ast.parse(text, mode="eval").body)
    return None


CYTHON_FUNCTION = re.compile(r"( *)(?:cdef|cpdef|def) (?!class |extern ).*?(\w+)\(")


def cython_functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and lines of the functions of a .pyx: each ends where a line is indented no more than its first."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if (found := CYTHON_FUNCTION.match(line)) and "=" not in line.partition("(")[0]:
            last = number
            for after in range(number + 1, len(lines)):
                text = lines[after].strip()
                if text and not text.startswith(")"):
                    if len(lines[after]) - len(lines[after].lstrip()) <= len(found[1]):
                        break
                    last = after
            yield found[2], last - number + 1


def read(tree: Mapping[str, str], compiled: Iterable[str] = ()) -> Sources:
    """What the rules ask of *tree* (path -> source of a .py, .pyx or .pxd), of which the files *compiled* are."""
    found = Sources(compiled=frozenset(compiled))
    modules = frozenset(module_of(path) for path in tree if not path.endswith(".pxd"))
    gc.disable()  # it would look at every node again and again
    try:
        for path, source in tree.items():
            if not path.endswith(".pxd"):
                found.lines[path] = source.count("\n")
            if not path.endswith(".py"):
                found.functions += [(f"{path}: {name}", lines) for name, lines in cython_functions(source)]
                found.imports += read_imports(path, source, modules).imports
                continue
            body = ast.parse(source, path).body
            if all(isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr) for node in body):
                found.contents.add(path)
            reader = SourceReader(path, modules, found)
            reader.read(body)
            found.imports += reader.imports.imports
    finally:
        gc.enable()
    return found


@cache
def project() -> Sources:
    """The sources of the packages."""
    tree = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.p*"))
        if path.suffix in (".py", ".pyx", ".pxd")
    }
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return read(tree, tool["edgebroker"]["compiled"])


# -- the rules -----------------------------------------------------------------------------------------------------
def sizes(sources: Sources) -> dict[str, str]:
    """Files of unusual size: path -> what is wrong. Tables of contents and a `__main__.py` may be short."""
    wrong = {}
    for path, lines in sources.lines.items():
        may_be_short = path.endswith("__main__.py") or (path.endswith("__init__.py") and path in sources.contents)
        if lines > LINES_MAX or (lines < LINES_MIN and not may_be_short):
            wrong[path] = f"{lines} lines, not {LINES_MIN} to {LINES_MAX}"
    return wrong


def class_names(sources: Sources) -> dict[str, str]:
    """Classes named with a gerund or a participle, and classes of one name: name -> where, and what is wrong."""
    wrong: dict[str, str] = {}
    places: dict[str, str] = {}
    for made in sources.classes:
        words = re.findall(r"[A-Z][a-z0-9]*|[a-z0-9]+", made.name)
        if made.name in places:
            wrong[made.name] = f"{made.place}: there is another {made.name} at {places[made.name]}"
        elif words and words[-1].endswith("ing") and words[-1] not in NOUNS:
            wrong[made.name] = f"{made.place}: {made.name} is named with a gerund"
        elif len(words) == 1 and (words[0].endswith("ed") or words[0] in PARTICIPLES):
            wrong[made.name] = f"{made.place}: {made.name} is a participle"
        places.setdefault(made.name, made.place)
    return wrong


def long_functions(sources: Sources) -> dict[str, str]:
    """`file: function` -> its lines, where they are too many."""
    return {name: f"{lines} lines" for name, lines in sources.functions if lines > FUNCTION_LINES_MAX}


def constructors(sources: Sources) -> dict[str, str]:
    """Classes whose `__init__` takes too many objects of our own classes, values left out: name -> which."""
    objects = {made.name for made in sources.classes if not made.is_value}
    wrong = {}
    for made in sources.classes:
        given = [name for name in made.given if name in objects]
        if len(given) > COLLABORATORS_MAX:
            wrong[made.name] = f"{made.place}: {len(given)} collaborators: {', '.join(given)}"
    return wrong


def late_wiring(sources: Sources) -> dict[str, str]:
    """Functions that are assigned to an attribute of another object, and attributes that begin as a lambda.

    A function is a lambda, a function defined nearby, a method of `self`, and what has the name of methods alone. And
    whatever is assigned to an attribute that is declared as a Callable.
    """
    methods = {name for made in sources.classes for name in made.methods} - sources.attributes

    def is_function(made: Assignment) -> bool:
        match made.value:
            case ast.Lambda():
                return True
            case ast.Name(id=name):
                return name in made.near or made.target.attr in sources.callables
            case ast.Attribute(value=base, attr=name) if is_self(base):
                is_method = made.owner is not None and name in made.owner.methods
                return is_method or made.target.attr in sources.callables
            case ast.Attribute(attr=name):
                return name in methods or made.target.attr in sources.callables
        return False

    wrong = {}
    for made in sources.assignments:
        where = f"{made.path}: {ast.unparse(made.target)}"
        if is_self(made.target.value):
            if made.function == "__init__" and isinstance(made.value, ast.Lambda):
                wrong[where] = f"{made.path}:{made.line}: {made.target.attr} begins as a lambda"
        elif is_function(made):
            wrong[where] = f"{made.path}:{made.line}: {ast.unparse(made.target)} is given a function afterwards"
    return wrong


def lone_modules(sources: Sources) -> dict[str, str]:
    """Short modules with one importer, of the same floor and folder, that imports them at once: path -> what is wrong.

    Compiled and interpreted code stay in different files, so a pair of which one is compiled may stay; and a table of
    contents takes no code.
    """
    paths = {module_of(path): path for path in sources.lines}
    importers: dict[str, set[str]] = {}
    eager: set[tuple[str, str]] = set()
    for found in sources.imports:
        if found.importer != found.imported:
            importers.setdefault(found.imported, set()).add(found.importer)
            if not found.optional:
                eager.add((found.importer, found.imported))
    wrong = {}
    for module, path in paths.items():
        if len(importers.get(module, ())) != 1 or path.endswith(("__init__.py", "__main__.py")):
            continue
        (importer,) = importers[module]
        importing = paths.get(importer, importer)
        if (
            sources.lines[path] < LONE_LINES_MAX
            and folder_of(importer) == folder_of(module)
            and (importer, module) in eager
            and not importing.endswith("__init__.py")
            and not {path, importing} & sources.compiled
        ):
            wrong[path] = f"{sources.lines[path]} lines, and only {importer} imports it"
    return wrong


RULES = {
    "size of a file": (sizes, SIZES),
    "name of a class": (class_names, CLASS_NAMES),
    "length of a function": (long_functions, LONG_FUNCTIONS),
    "collaborators of a constructor": (constructors, CONSTRUCTORS),
    "wiring at construction": (late_wiring, LATE_WIRING),
    "a module with one importer": (lone_modules, LONE_MODULES),
}


@pytest.mark.parametrize(("rule", "exceptions"), RULES.values(), ids=RULES)
def test_the_sources_keep_the_rule(rule: Callable[[Sources], dict[str, str]], exceptions: dict[str, str]) -> None:
    sources = project()
    assert len(sources.lines) > 500, "the packages were not found"
    wrong = rule(sources)
    breaches = [f"{name}: {text}" for name, text in wrong.items() if name not in exceptions]
    needless = [f"{name}: listed as an exception, and needs none" for name in exceptions if name not in wrong]
    assert not breaches + needless, "\n".join(["", *breaches, *needless])
    assert all(len(reason.split()) > 3 for reason in exceptions.values()), "an exception needs a reason"


def test_few_files_are_short() -> None:
    lines = project().lines
    assert sum(lines.get(path, 0) < LINES_MIN for path in SIZES) <= SHORT_FILES_MAX


def test_tests_and_tools_stay_under_700_lines() -> None:
    files = [path for name in ("tests", "tools") for path in (ROOT / name).rglob("*.py")]
    lines = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in files}
    assert len(files) > 300
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}


# -- the rules tested on made-up sources ----------------------------------------------------------------------------
LONG = "\n" * LINES_MIN
BREACHES = {
    "a short file": (sizes, {"edgebroker/a.py": "x = 1\n"}, "edgebroker/a.py"),
    "a long file": (sizes, {"edgebroker/a.py": "\n" * 701}, "edgebroker/a.py"),
    "a short __init__ with code": (sizes, {"edgebroker/a/__init__.py": "def f(): pass\n"}, "edgebroker/a/__init__.py"),
    "a name twice": (class_names, {"edgebroker/a.py": "class A: pass", "edgebroker/b.py": "class A: pass"}, "A"),
    "a name twice, one inside": (class_names, {"edgebroker/a.py": "class A: pass\nclass B:\n class A: pass"}, "A"),
    "a gerund": (class_names, {"edgebroker/a.py": "class PeerJoining: pass"}, "PeerJoining"),
    "a participle": (class_names, {"edgebroker/a.py": "class Crowded: pass"}, "Crowded"),
    "an irregular participle": (class_names, {"edgebroker/a.py": "class Held: pass"}, "Held"),
    "a long function": (
        long_functions,
        {"edgebroker/a.py": "class A:\n  def f(self):\n" + "    x = 1\n" * 70},
        "edgebroker/a.py: A.f",
    ),
    "a long function inside another": (
        long_functions,
        {"edgebroker/a.py": "if x:\n  def f():\n    pass\n  def g():\n" + "    x = 1\n" * 70},
        "edgebroker/a.py: g",
    ),
    "a long function in Cython": (
        long_functions,
        {
            "edgebroker/a.pyx": "cdef int f(\n    int x\n) except -1:\n"
            + "    x = 1\n" * 70
            + "\ncdef int g():\n    pass"
        },
        "edgebroker/a.pyx: f",
    ),
    "a large constructor": (
        constructors,
        {
            "edgebroker/a.py": "class A: pass\nclass B:\n  def __init__(self, a: A, b: A | None, c: a.A, d: 'A', e: A, "
            "*, f: A, g: A, h: list[A], i: int): pass"
        },
        "B",
    ),
    "a lambda from outside": (
        late_wiring,
        {"edgebroker/a.py": "def f(x):\n  x.wake = lambda: None"},
        "edgebroker/a.py: x.wake",
    ),
    "a method of self from outside": (
        late_wiring,
        {"edgebroker/a.py": "class A:\n  def f(self, x):\n    if x:\n      x.y.wake = self.f"},
        "edgebroker/a.py: x.y.wake",
    ),
    "a method of another": (
        late_wiring,
        {"edgebroker/a.py": "class A:\n  def go(self): pass\ndef f(x, z):\n  x.wake = z.go"},
        "edgebroker/a.py: x.wake",
    ),
    "a function defined nearby": (
        late_wiring,
        {"edgebroker/a.py": "def f(x):\n  def g(): pass\n  x.wake = g"},
        "edgebroker/a.py: x.wake",
    ),
    "an attribute declared as a function": (
        late_wiring,
        {"edgebroker/a.py": "class A:\n  wake: Callable[[], None]\ndef f(x, z):\n  x.wake = z.anything"},
        "edgebroker/a.py: x.wake",
    ),
    "an attribute that begins as a lambda": (
        late_wiring,
        {"edgebroker/a.py": "class A:\n  def __init__(self):\n    self.wake: Callable[[], None] = lambda: None"},
        "edgebroker/a.py: self.wake",
    ),
    "a lone module": (
        lone_modules,
        {"edgebroker/a.py": "", "edgebroker/b.py": "from edgebroker import a"},
        "edgebroker/a.py",
    ),
}


@pytest.mark.parametrize(("rule", "tree", "name"), BREACHES.values(), ids=BREACHES)
def test_the_rule_catches(rule: Callable[[Sources], dict[str, str]], tree: dict[str, str], name: str) -> None:
    assert list(rule(read(tree))) == [name]


ALLOWED = {
    "a table of contents": (sizes, {"edgebroker/a/__init__.py": '"""Doc."""\nfrom b import c\n__all__ = ["c"]\n'}),
    "a command": (sizes, {"edgebroker/__main__.py": "from a import main\nif x:\n  main()\n"}),
    "nouns": (class_names, {"edgebroker/a.py": "class Ping: pass\nclass Settings: pass\nclass LogDamaged: pass"}),
    "functions beside each other": (
        long_functions,
        {"edgebroker/a.pyx": "def f(x):\n" + "    x = 1\n" * 50 + "def g(x):\n" + "    x = 1\n" * 50},
    ),
    "values": (
        constructors,
        {
            "edgebroker/a.py": "@dataclass(frozen=True)\nclass A: pass\nclass E(IntEnum): pass\nclass B:\n"
            "  def __init__(self, a: A, b: A, c: A, d: A, e: E, f: E, g: E, h: E): pass"
        },
    ),
    "own attributes and values": (
        late_wiring,
        {
            "edgebroker/a.py": "class A:\n  def __init__(self, x, wake):\n    self.wake = wake\n    self.size = 0\n"
            "    self.on = lambda: None if x else x\n    x.size = self.size\n  def f(self): pass\n".replace(
                "    self.on = lambda: None if x else x\n", ""
            )
        },
    ),
    "a name of fields and of methods": (
        late_wiring,
        {"edgebroker/a.py": "class A:\n  size: int\nclass B:\n  def size(self): pass\ndef f(x, z):\n  x.size = z.size"},
    ),
    "a module imported when it is needed": (
        lone_modules,
        {"edgebroker/a.py": "", "edgebroker/b.py": "def f():\n  from edgebroker import a"},
    ),
    "a module of another folder": (
        lone_modules,
        {"edgebroker/a.py": "", "edgebroker/node/b.py": "from edgebroker import a"},
    ),
    "a command that nobody imports": (lone_modules, {"edgebroker/cli/a.py": ""}),
    "a long module": (lone_modules, {"edgebroker/a.py": "\n" * 100, "edgebroker/b.py": "from edgebroker import a"}),
    "two importers": (
        lone_modules,
        {f"edgebroker/{name}.py": "from edgebroker import a" if name != "a" else "" for name in "abc"},
    ),
}


@pytest.mark.parametrize(("rule", "tree"), ALLOWED.values(), ids=ALLOWED)
def test_the_rule_accepts(rule: Callable[[Sources], dict[str, str]], tree: dict[str, str]) -> None:
    assert rule(read(tree)) == {}


def test_a_module_beside_a_compiled_one_may_stay() -> None:
    tree = {"edgebroker/a.py": "", "edgebroker/b.py": "from edgebroker import a"}
    assert lone_modules(read(tree))
    assert not lone_modules(read(tree, ["edgebroker/b.py"]))
