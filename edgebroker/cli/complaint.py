"""Why a program ends with exit code 2, on standard error."""

from __future__ import annotations

import os
import sys

import click

from edgebroker.cli.output import give_up


def complain(text: str) -> None:
    """Write *text*, of one or more lines. Where systemd started us, the journal learns that they are errors."""
    prefix = ""
    if "JOURNAL_STREAM" in os.environ:
        from edgebroker.world.outlet import is_journal  # asyncio, 3 MiB, for services alone

        prefix = "<3>" if is_journal() else ""
    try:
        for line in text.splitlines():
            click.echo(prefix + line, err=True)
    except BrokenPipeError:
        raise
    except OSError:  # the disk that is full may be the one of standard error: the exit code still tells
        give_up(sys.stderr)
