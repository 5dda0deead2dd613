"""Output of the commands: standard output that a full disk refuses, and errors on standard error."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final, TextIO

import click

from edgebroker.errors import EdgebrokerError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a disk says that takes nothing."""


class Unwritable(EdgebrokerError):
    """What was printed is lost; the message says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror}")


def say(text: str) -> None:
    """Print *text*. Raises Unwritable, for who has more to say then than that."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(sys.stdout)
        raise Unwritable(error) from error


def finish() -> None:
    """Print what waits to be printed. Raises Unwritable."""
    try:
        if sys.stdout is not None:  # closed: `>&-`
            sys.stdout.flush()
    except BrokenPipeError:
        return
    except OSError as error:
        give_up(sys.stdout)
        raise Unwritable(error) from error


def give_up(stream: TextIO) -> None:
    """Let go of what *stream* could not write: Python would try again at the end, complain, and end with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def complain(text: str) -> None:
    """Write *text*, of one or more lines. Where systemd started us, the journal learns that they are errors."""
    prefix = ""
    if "JOURNAL_STREAM" in os.environ:
        from edgebroker.runtime.nonblocking_writer import is_journal  # asyncio, 3 MiB, for services alone

        prefix = "<3>" if is_journal() else ""
    try:
        for line in text.splitlines():
            click.echo(prefix + line, err=True)
    except BrokenPipeError:
        raise
    except OSError:  # the disk that is full may be the one of standard error: the exit code still tells
        give_up(sys.stderr)
