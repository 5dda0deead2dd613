"""Files and folders on the command line that must be there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import click


class Existing(click.Path):
    """Of what lies behind a closed door click says that it does not exist; here that raises OSError, which says why."""

    def __init__(self, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(value)
        return super().convert(value, param, ctx)
