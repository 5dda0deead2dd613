"""Every command and option that the documentation, the example settings and the help name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from edgeanalytics.__main__ import main as edgeanalytics
from edgebroker.cli import main
from edgedevices.__main__ import main as edgedevices

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS: dict[str, click.Command] = {"edgebroker": main, "edgedevices": edgedevices, "edgeanalytics": edgeanalytics}
FILES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "edgebroker").rglob("*.py")),
)
NAMED = re.compile(r"(?:`|^\$ )edgebroker ([a-z][^`|>&\n]*)", re.MULTILINE)
COLUMNS = 78  # of help at a terminal of 80
TOLD = re.compile(r"Level\.(?:ERROR|WARNING|INFO), \"([a-z-]+)\"")


def wrong(text: str, program: click.Command = main) -> str:
    """What in `edgebroker TEXT` there is not; empty: nothing."""
    command = program
    context = click.Context(program)
    words = text.split()
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        known = command.get_command(context, name)
        if known is None:
            return f"the command {name}"
        command = known
    options = {one for parameter in command.params for one in parameter.opts}
    said = (word.strip("[](),.").partition("=")[0] for word in words)
    return next((f"the option {one}" for one in said if one.startswith("--") and one not in {*options, "--help"}), "")


SHOWN = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
TYPED = re.compile(r"^(?:\$ |sudo )*(edgebroker|edgedevices|edgeanalytics) ([a-z].*?)(?: {2,}.*)?$", re.M)
"""A command in a block that is not executed; two blanks begin what is said of it."""


def test_what_is_shown_and_not_executed_exists_too() -> None:
    pages = [(file, file.read_text()) for file in FILES if file.suffix == ".md"]
    typed = [(file, *found) for file, page in pages for block in SHOWN.findall(page) for found in TYPED.findall(block)]
    assert len(typed) > 20
    found = [(file.name, program, text, wrong(text, PROGRAMS[program])) for file, program, text in typed]
    assert [one for one in found if one[-1]] == []


def mistakes() -> Iterator[str]:
    for file in FILES:
        for found in NAMED.finditer(file.read_text()):
            if found[1].startswith("version "):  # what it answers to --version
                continue
            if what := wrong(found[1]):
                yield f"{file.relative_to(ROOT)}: `edgebroker {found[1]}`: there is not {what}"


def test_every_command_that_is_named_is_there() -> None:
    assert wrong("log show x") == "the command show"
    assert wrong("bridge list --htpp 1") == "the option --htpp"
    assert not list(mistakes())


def test_every_code_that_an_operator_may_be_told_stands_in_the_documentation() -> None:
    sources = [file.read_text() for file in (ROOT / "edgebroker" / "runtime").rglob("*.py")]
    codes = {code for source in sources for code in TOLD.findall(source)}
    page = (ROOT / "docs" / "operations.md").read_text()
    assert len(codes) > 15
    assert not sorted(code for code in codes if f"`{code}`" not in page)


def groups(command: click.Command, name: str) -> Iterator[tuple[str, click.Group]]:
    """*command* and all below it that have commands themselves."""
    if isinstance(command, click.Group):
        yield name, command
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from groups(found, f"{name} {below}")


def test_no_description_of_a_command_is_cut() -> None:
    found = dict(groups(main, "edgebroker"))
    assert {"edgebroker", "edgebroker journal", "edgebroker bench"} <= set(found)
    for name, group in found.items():
        help_ = group.get_help(click.Context(group, info_name=name, terminal_width=COLUMNS))
        commands = help_.partition("\nCommands:\n")[2].splitlines()
        assert len(commands) >= len(group.list_commands(click.Context(group))), name
        assert not [line for line in commands if line.endswith("...") or len(line) > COLUMNS], name
        if group is not main:  # which has a list of its own, with lines that go on
            assert len(commands) == len(group.list_commands(click.Context(group))), name


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """*command*, or all commands below it that have none themselves."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for below in command.list_commands(context):
        found = command.get_command(context, below)
        assert found is not None
        yield from leaves(found, f"{name} {below}")


LEAVES = {name: leaf for program, command in PROGRAMS.items() for name, leaf in leaves(command, program)}


@pytest.mark.parametrize("name", LEAVES)
def test_the_help_of_every_command_ends_with_examples_that_are_right(name: str) -> None:
    program, _, rest = name.partition(" ")
    help_ = LEAVES[name].get_help(click.Context(LEAVES[name], info_name=name, terminal_width=COLUMNS))
    examples = [line.strip() for line in help_.splitlines()[1:] if line.strip().startswith(f"{name}")]
    assert examples, rest
    for example in examples:
        text = re.split(r" [|<>] ", re.sub(r"'[^']*'|\"[^\"]*\"", "x", example))[0]
        assert not wrong(text.removeprefix(f"{program} "), PROGRAMS[program]), example


COMMON = {
    "--ca": "--cafile",
    "--event": "--payload",
    "--every": "--interval",
    "--log": "--log-dir",
    "--mqtt": "--protocol-version",
    "--node": "--name",
    "--out": "--output",
    "--to": "--broker",
    "--topic-prefix": "--prefix",
    "--user": "--username",
    "--wait": "--seconds",
    "--config": "-c",
}
"""A name that some commands had for a thing -> the one that all of them have."""
OTHER_MEANINGS = {
    ("edgebroker bench abuse", "--config"): "what it measures with, not where a gateway is found",
    ("edgebroker client move", "--to"): "the name of a gateway, not the address of a broker",
}


@pytest.mark.parametrize("name", LEAVES)
def test_an_option_has_the_same_name_in_every_command(name: str) -> None:
    for option in LEAVES[name].params:
        for special, common in COMMON.items():
            if special in option.opts and (name, special) not in OTHER_MEANINGS:
                assert common in option.opts, f"{name} {special}"


WITHOUT_JSON = {
    "edgebroker topology plan": "it prints a file",
    "edgebroker topology show": "it draws; `check` has the facts",
    "edgebroker token key": "it prints nothing",
    "edgebroker token make": "it prints a token and nothing else",
    **dict.fromkeys(
        [f"edgebroker certificate {name}" for name in ("client", "gateway", "server", "revoke")],
        "it makes files whose names follow from what was asked",
    ),
}


@pytest.mark.parametrize("name", LEAVES)
def test_what_answers_has_the_answer_for_programs_too(name: str) -> None:
    has_json = any("--json" in option.opts for option in LEAVES[name].params)
    assert has_json != (name in WITHOUT_JSON), WITHOUT_JSON.get(name, "--json is missing")
