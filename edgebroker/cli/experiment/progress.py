"""What is being done, for a person who waits."""

from __future__ import annotations

import sys

import click


class Progress:
    """One line on stderr that says what is being done, if a person is watching."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._shown:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")
