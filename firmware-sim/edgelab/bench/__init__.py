"""`edgebroker bench`: measure this broker, on this machine, side by side with another.

Every benchmark is a subcommand in a module of its own, imported only when it is called: a benchmark may need what a
gateway does not have, and `edgebroker --help` must not pay for it.
"""

from __future__ import annotations

from importlib import import_module

import click

# subcommand -> module or folder of this folder; each calls its click command `command`
BENCHMARKS = {
    "abuse": "abuse",
    "bridge": "bridge",
    "churn": "churn",
    "durable": "durable",
    "federation": "federation",
    "filters": "filters",
    "match": "match",
    "mqtt": "mqtt",
    "overlay": "overlay",
}


class Benchmarks(click.Group):
    """The benchmarks by name, each imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(BENCHMARKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in BENCHMARKS:
            return None
        found = import_module(f"{__name__}.{BENCHMARKS[cmd_name]}").command
        assert isinstance(found, click.Command)
        return found


@click.group(name="bench", cls=Benchmarks)
def command() -> None:
    """Measure the broker on this machine."""


__all__ = ["command"]
