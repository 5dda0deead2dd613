"""A file of the operator that was refused: every problem, for people or for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import click

from edgebroker.cli.complaint import complain
from edgebroker.world.settings import SettingsRefused


def refuse(file: Path, refused: SettingsRefused, as_json: bool) -> NoReturn:
    """Tell all that is wrong with *file*, and end with exit code 2."""
    if as_json:
        problems = [asdict(problem) for problem in refused.problems]
        click.echo(json.dumps({"ok": False, "file": str(file), "problems": problems}))
    else:
        complain(str(refused))
    sys.exit(2)
