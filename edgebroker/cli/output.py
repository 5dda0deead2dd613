"""Output of the commands: standard output on a disk that may be full, and errors on standard error."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final, TextIO

import click

from edgebroker.errors import EdgebrokerError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a disk that accepts no more data."""


class Unwritable(EdgebrokerError):
    """Output is lost; the message says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror}")


def say(text: str) -> None:
    """Prints *text*. Raises Unwritable, so that the caller can add what the loss means."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(sys.stdout)
        raise Unwritable(error) from error


def finish() -> None:
    """Flushes standard output. Raises Unwritable."""
    try:
        if sys.stdout is not None:  # closed: `>&-`
            sys.stdout.flush()
    except BrokenPipeError:
        return
    except OSError as error:
        give_up(sys.stdout)
        raise Unwritable(error) from error


def give_up(stream: TextIO) -> None:
    """Discards what *stream* could not write: Python would try again at the end, print an error, and exit with code
    120.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def complain(text: str) -> None:
    """Writes *text*, of one or more lines, to standard error. Under systemd each line is marked as an error for the
    journal.
    """
    prefix = ""
    if "JOURNAL_STREAM" in os.environ:
        from edgebroker.runtime.nonblocking_writer import is_journal  # asyncio, 3 MiB, only as a service

        prefix = "<3>" if is_journal() else ""
    try:
        for line in text.splitlines():
            click.echo(prefix + line, err=True)
    except BrokenPipeError:
        raise
    except OSError:  # standard error may be on the full disk: the exit code still tells
        give_up(sys.stderr)
