"""Tests use public names of the product, and make its objects by their constructors.

A test that uses a private name breaks when the inside of a class is rebuilt, although nothing that anybody relies on
has changed. PRIVATE_NAMES lists what no public name shows, file by file, each with its reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
SELF = frozenset({"self", "cls"})
NAMED_TUPLE = frozenset({"_replace", "_asdict", "_fields", "_make"})
"""Documented members of named tuples, which begin with an underscore so that no field has their name."""
PRIVATE = re.compile(r"_[A-Za-z]\w*\Z")

EXCEPTIONS_MAX = 27
"""Entries of PRIVATE_NAMES. The number only goes down."""
PRIVATE_NAMES: dict[str, tuple[str, str]] = {
    # faults: what is broken on purpose is the inside
    "laws/journal/faults.py": (
        "_batch _batch_failed _begins_intact _count _damage _next_replay_from _rotate_if_synced",
        "each fault replaces a step inside the journal",
    ),
    "laws/link/faults.py": (
        "_add_number _buffer _frames _open _reserve _take",
        "each fault replaces a step inside a link",
    ),
    # bounds of memory: nobody else asks how much a cache holds
    "laws/test_authorization_laws.py": ("_reads", "the size of a cache of decisions is nobody else's business"),
    "laws/test_covering_laws.py": (
        "_announcer _index _root",
        "whether an empty index still has nodes is not visible outside",
    ),
    "laws/test_link_codec_laws.py": ("_flows _slots", "the tables of both ends are bounded, which no byte shows"),
    "spec/test_bridge_poison.py": ("_beginning _buffer", "how much of a large packet is held shows in memory alone"),
    "spec/test_edl_writer.py": ("_making", "how many rows wait for a block shows in memory alone"),
    "spec/test_overlay_parts.py": ("_root", "empty nodes show in memory alone"),
    "spec/test_sparkplug.py": ("_nodes _sessions", "the memory that births without metrics take, and counted look-ups"),
    "spec/test_topic_cache_bounds.py": ("_reads _writes", "the size of a cache of decisions is nobody else's business"),
    # moments: a timer, a thread or a signal would call it, at a moment that a test cannot choose
    "laws/test_bridge_recovery.py": ("_outbound", "power fails between sending and acknowledgement of one message"),
    "spec/test_journal_store.py": ("_on_work_done", "the worker thread reports each batch, here one after the other"),
    "spec/test_peer_inbox.py": ("_reactor", "an error in the middle of a transaction cannot be provoked from outside"),
    "spec/test_scenarios.py": ("_wake_all", "the signal comes at a chosen instant of virtual time"),
    "spec/test_serving.py": ("_reload _serve", "a command of the process without its process"),
    "support/bridge_world.py": ("_plan_turn", "the world beside a simulated broker shares the broker's turns"),
    "support/restarted_gateway.py": ("_tick", "what a timer does every few seconds is done at once"),
    # conditions of a machine that this one does not have
    "spec/conftest.py": ("_fast_loads", "a machine without orjson, on one that has it"),
    "spec/test_journal_files.py": ("_close_file", "a file that is open would outlive its folder"),
    "spec/test_nonblocking_writer.py": ("_descriptor _must_poll", "a system without /dev/fd, on one that has it"),
    # settings that a running gateway does not change, as if it had been started anew with others
    "spec/test_bridges.py": ("_add", "a bridge is added without dialling"),
    "stories/clauses/test_clauses_connecting.py": ("_new_client_id", "chance gives an identifier that is taken"),
    "stories/test_stories_durability_modes.py": ("_options", "a session outlives a change of the mode"),
    # texts and bytes that are made in one place and used in another
    "bench/test_bench_abuse.py": ("_connect", "the bytes of an attack, which otherwise needs a victim"),
    "live/test_live_aiomqtt.py": ("_client", "the library aiomqtt has no other way to its socket"),
    "spec/test_overview.py": ("_cells", "one row of a table that a terminal shows whole"),
    "spec/test_recording.py": ("_timed_messages", "when a message is due, without waiting for it"),
}
"""File -> its private names of the product, and why it needs them."""


def private_uses(source: str) -> Iterator[str]:
    """The private names of other modules' objects that *source* reads, sets, imports or names for `setattr`."""
    tree = ast.parse(source)
    own: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                own.add(name)
            case ast.Import(names=names):
                modules |= {one.asname or one.name for one in names if one.name in sys.stdlib_module_names}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=base)) if base in SELF | modules:
                continue
            case ast.Attribute(attr=name) if PRIVATE.match(name) and name not in own | NAMED_TUPLE:
                yield name
            case ast.ImportFrom(names=names):
                yield from (one.name for one in names if PRIVATE.match(one.name))
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                if PRIVATE.match(name):
                    yield name
            case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(value=str(path)), *_]):
                if PRIVATE.match(name := path.rpartition(".")[2]):
                    yield name


def unconstructed(source: str) -> list[int]:
    """The lines of *source* that make an object by `__new__`; a class may call that of its base."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr == "__new__"
        and not (
            isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super"
        )
    ]


@cache
def sources() -> dict[str, str]:
    """The files of tests: path below this folder -> text."""
    found = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}
    assert len(found) > 300, "the tests were not found"
    return found


def test_tests_use_public_names() -> None:
    wrong = []
    for path, source in sorted(sources().items()):
        listed, used = set(PRIVATE_NAMES.get(path, ("", ""))[0].split()), set(private_uses(source))
        wrong += [f"{path}: {name} is private" for name in sorted(used - listed)]
        wrong += [f"{path}: {name} is listed as an exception, and not used" for name in sorted(listed - used)]
    wrong += [f"{path}: listed as an exception, and there is no such file" for path in PRIVATE_NAMES.keys() - sources()]
    assert not wrong, "\n".join(["", *wrong])


def test_each_exception_has_a_reason_and_their_number_only_goes_down() -> None:
    assert all(len(reason.split()) > 3 for _, reason in PRIVATE_NAMES.values())
    assert len(PRIVATE_NAMES) <= EXCEPTIONS_MAX


def test_objects_are_made_by_their_constructors() -> None:
    wrong = [f"{path}:{line}" for path, source in sources().items() for line in unconstructed(source)]
    assert not wrong


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("broker._terms = 1", ["_terms"]),
        ("a.b()._c.d", ["_c"]),
        ("from edgebroker.cli.clients import _cells", ["_cells"]),
        ('monkeypatch.setattr(Journal, "_write", None)', ["_write"]),
        ('monkeypatch.setattr("edgebroker.node._MOST", 1)', ["_MOST"]),
        ('monkeypatch.setattr("edgebroker.node._most", 1)', ["_most"]),
        ("self._mine", []),
        ("def f(self):\n  self._mine = 1\nother._mine", []),
        ("import os\nos._exit(0)", []),
        ("row._replace(x=1)", []),
        ("value.__class__", []),
    ],
)
def test_the_rule_catches_private_names(source: str, found: list[str]) -> None:
    assert list(private_uses(source)) == found


def test_the_rule_catches_objects_without_a_constructor() -> None:
    assert unconstructed("x = Outage.__new__(Outage)") == [1]
    assert unconstructed("class A(float):\n  def __new__(cls):\n    return super().__new__(cls)") == []
