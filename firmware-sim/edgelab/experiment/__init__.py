"""`edgebroker experiment`: repeats published experiments and compares the results with the published ones.

Every experiment is a subcommand in a module of its own, imported when a user calls it. Networks and workloads are our
own; figures are compared with those of the sources [LM], [SCOT], [GRAPE] and [LBDD].
"""

from __future__ import annotations

from importlib import import_module

import click

# subcommand -> module in this folder, whose click command is `command`
EXPERIMENTS = {
    "grape": "grape",
    "idr": "idr",
    "lbdd": "lbdd",
    "link-matching": "link_matching",
    "network-loading": "network_loading",
    "scot": "scot",
}


class Experiments(click.Group):
    """The experiments by name, each imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(EXPERIMENTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in EXPERIMENTS:
            return None
        found = import_module(f"{__name__}.{EXPERIMENTS[cmd_name]}").command
        assert isinstance(found, click.Command)
        return found


@click.group(name="experiment", cls=Experiments)
def command() -> None:
    """Repeat published experiments."""


__all__ = ["command"]
