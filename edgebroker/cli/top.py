"""`edgebroker top`: shows the status of a gateway, again and again."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from edgebroker.cli.http_client import GatewayNoAnswer, GatewayOptions, gateway_options, get_json
from edgebroker.cli.parameters import WordChoice, examples
from edgebroker.cli.status import SORTS, Status, overview, table

# the alternate screen without a cursor, and back
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
ROWS_MAX = 100


@click.command("top", epilog=examples("edgebroker top --sort bytes", "edgebroker top --once --config gateway.toml"))
@gateway_options("For programs: the answers of /status, one a line.")
@click.option("--sort", type=WordChoice(list(SORTS)), default="queue", show_default=True, help="Clients by this.")
@click.option("--interval", type=click.FloatRange(0.1, 3_600), default=2.0, show_default=True, help="Seconds between.")
@click.option("--count", type=click.IntRange(1), help="End after so many pictures.")
@click.option("--once", is_flag=True, help="Two looks one interval apart, so that there are rates; one picture.")
def command(gateway: GatewayOptions, sort: str, interval: float, count: int | None, once: bool, as_json: bool) -> None:
    """Watch a running gateway: rates, what waits, and the clients that stand out. End it with Ctrl-C.

    On a terminal the picture is drawn anew; elsewhere pictures follow each other. Exit code 2 if nobody answers.
    """
    endpoint = gateway.endpoint()
    is_interactive = sys.stdout.isatty() and not once and not as_json
    shown, before = 0, None
    if once:
        before = get_json(endpoint, "/status", sort=sort, limit=0)
        time.sleep(interval)
        count = 1
    with _alternate_screen(is_interactive):
        while True:
            width, height = shutil.get_terminal_size()
            try:
                now = get_json(endpoint, "/status", sort=sort, limit=ROWS_MAX)
            except GatewayNoAnswer as error:
                if not is_interactive or before is None:
                    raise
                # It may be restarting, which the user wants to see.
                _draw([str(error)[:width], f"asking again every {interval:g} s; Ctrl-C ends"])
                time.sleep(interval)
                continue
            if as_json:
                click.echo(json.dumps(now))
            else:
                lines = screen_lines(now, before, width, height if is_interactive else ROWS_MAX, sort)
                _draw(lines) if is_interactive else click.echo("\n".join(lines) + "\n")
            before, shown = now, shown + 1
            if shown == count:
                return
            time.sleep(interval)


def screen_lines(now: Status, before: Status | None, width: int, height: int, sort: str) -> list[str]:
    """Returns the lines that fit on a screen of *width* columns and *height* lines."""
    head = overview(now, before, width)
    rows = max(height - len(head) - 3, 0)  # an empty line, the heading, and the last line, which stays empty
    return [*head, "", *table(now, width, rows, sort)][: height - 1]


def _draw(lines: list[str]) -> None:
    text = "".join(f"{line}{END_OF_LINE}\n" for line in lines)
    sys.stdout.write(f"{HOME}{text}{END_OF_SCREEN}")
    sys.stdout.flush()


@contextmanager
def _alternate_screen(is_interactive: bool) -> Iterator[None]:
    """Shows the terminal's alternate screen, and in any case the normal one afterwards."""
    if is_interactive:
        sys.stdout.write(ENTER_SCREEN)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        if is_interactive:
            sys.stdout.write(LEAVE_SCREEN)
            sys.stdout.flush()
