"""Parameters of commands that accept one of a few words."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from edgebroker.cli import main
from edgebroker.cli.parameters import WordChoice


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command there is, with the words that lead to it."""
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


def choices() -> Iterator[tuple[str, click.Parameter]]:
    for path, command in commands(main):
        for parameter in command.params:
            if isinstance(parameter.type, click.Choice):
                yield " ".join((*path, parameter.opts[0])), parameter


CHOICES = dict(choices())


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_says_what_may_be_meant(name: str) -> None:
    assert isinstance(CHOICES[name].type, WordChoice)


def test_another_word_is_refused_with_the_nearest() -> None:
    assert len(CHOICES) > 20
    answer = CliRunner().invoke(main, ["client", "list", "--sort", "bites"])
    assert (answer.exit_code, "Did you mean 'bytes'?" in answer.output) == (2, True), answer.output
