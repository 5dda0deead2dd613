"""The command line. Each command is a module of its own, imported when it is called and not before.

Exit codes: 0 success, 1 success with a negative answer, 2 failure (usage, settings, or the machine); 78 of `run` only:
its settings file is invalid, and to start it again does not help.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import IO, Any

import click

import edgebroker
from edgebroker.cli.output import FULL, Unwritable, complain, finish
from edgebroker.errors import EdgebrokerError

COMMANDS = {
    "init": "Make certificates, a first user and settings for a gateway.",
    "run": "Run a gateway.",
    "pub": "Publish a message, or the lines of standard input.",
    "sub": "Subscribe by topic and content, and print what arrives.",
    "file": "Publish files to a gateway, and look after them.",
    "announce": "Announce devices to Home Assistant.",
    "explain": "Show how a filter is understood and found.",
    "status": "Show how a running gateway is.",
    "links": "Show how a running gateway stands with its peers.",
    "place": "Show which publishers should be at another gateway, and move them.",
    "outbox": "Look at what waits for a peer of a running gateway, and discard it.",
    "bridge": "Look at the bridges of a running gateway, and change them.",
    "client": "Look at the clients of a running gateway, disconnect them, end sessions.",
    "retained": "Look at retained messages of a running gateway, and clear them.",
    "reload": "Have a running gateway read its settings again.",
    "top": "Watch a running gateway.",
    "trace": "Watch packets and fates of some clients or topics.",
    "check": "Check a settings file, or a running gateway.",
    "topology": "Check, draw and plan how sites and gateways are joined.",
    "token": "Make and check signed tokens, and keys for them.",
    "acl": "Check an access-control file, and ask what it allows.",
    "certificate": "Make more certificates, and new ones in time.",
    "passwd": "Add users to a password file, change or check their passwords.",
    "import": "Translate a configuration of Mosquitto into settings.",
    "journal": "Check and read what a gateway keeps, and acknowledge damage.",
    "log": "Read, sum up and export delivery logs.",
    "why": "Follow a message: who got it, where it waits, why not.",
    "bench": "Measure this broker, side by side with another.",
    "simulate": "Let storms blow over simulated federations, and check the promises.",
    "experiment": "Repeat published experiments.",
    "demo": "Gateways, devices, subscribers and audits, in one go.",
}
"""Name -> one line for --help. Each is `command` in the module of that name in this folder, or in that of `MODULES`."""
MODULES = {
    "import": "edgebroker.cli.mosquitto_import",
    "client": "edgebroker.cli.clients",  # `mqtt_client` is the MQTT client of `pub` and `sub`
    "bench": "edgelab.bench",
    "simulate": "edgelab.simulate",
    "experiment": "edgelab.experiment",
    "demo": "edgelab.demo",
}
"""Command -> module, where that is not the one of its name in this folder."""


class Refused(click.ClickException):
    """One line of error message and exit code 2: nothing was done."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        complain(f"Error: {self.format_message()}")


class Commands(click.Group):
    """The commands of `COMMANDS`. `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # imports create no garbage
        try:
            command = import_module(MODULES.get(cmd_name, f"{__name__}.{cmd_name}")).command
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib  # 0.2 MiB, only after a typing error

            nearest = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean '{nearest[0]}'?" if nearest else f"There are: {', '.join(COMMANDS)}."
            ctx.fail(f"No such command '{args[0]}'. {hint}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **options: Any) -> Any:
        """As click's, but output that cannot be written, click's own included, is one line and exit code 2."""
        try:
            try:
                return super().main(*args, **options)
            finally:
                finish()
        except Unwritable as unwritable:
            complain(f"Error: {unwritable}")
        except OSError as error:  # stdout is unbuffered, or the output is a file
            if error.errno not in FULL:
                raise
            complain(f"Error: what was to be written is lost: {error.strerror}")
        sys.exit(Refused.exit_code)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EdgebrokerError as error:
            raise Refused(str(error)) from error
        except OSError as error:  # of a file whose error no command handles: a folder above it may be unreadable
            if error.filename is None:
                raise
            raise Refused(f"{error.filename}: {error.strerror}") from error


def build() -> str:
    """Returns `compiled` or `pure Python`: whether the package has extension modules."""
    files = Path(edgebroker.__file__).parent.rglob("*")
    return "compiled" if any(path.name.endswith(tuple(EXTENSION_SUFFIXES)) for path in files) else "pure Python"


def commit() -> str:
    """Returns the commit of this build, or of the source tree that runs here; `unknown` without git."""
    tree = Path(edgebroker.__file__).parents[1]
    if edgebroker.__commit__ or not (tree / ".git").exists():
        return edgebroker.__commit__ or "unknown"
    import subprocess

    command = ["git", "-C", str(tree), "describe", "--always", "--exclude=*", "--abbrev=9", "--dirty=.changed"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def show_version(ctx: click.Context, _parameter: click.Parameter, is_requested: bool) -> None:
    """Prints product, commit, build and Python in one line, and exits."""
    if is_requested and not ctx.resilient_parsing:
        python = ".".join(map(str, sys.version_info[:3]))
        click.echo(f"edgebroker {edgebroker.__version__} (commit {commit()}, {build()}, Python {python})")
        ctx.exit()


@click.group("edgebroker", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Show the version."
)
def main() -> None:
    """Publish/subscribe for many small gateways and thin uplinks: MQTT, filtered by content."""
