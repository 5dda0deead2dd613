"""`edgebroker check FILE`: would a gateway take these settings, and what would then hold?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from edgebroker.world.settings import Settings, SettingsRefused


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def command(file: Path, as_json: bool) -> None:
    """Check a settings file and show what it says.

    Exit code 0 if a gateway would take it, 2 if not; then every problem is shown with its line.
    """
    try:
        settings = Settings.load(file)
    except SettingsRefused as refused:
        if as_json:
            problems = [asdict(problem) for problem in refused.problems]
            click.echo(json.dumps({"ok": False, "file": str(file), "problems": problems}))
        else:
            click.echo(str(refused), err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps({"ok": True, "file": str(file), "settings": settings.values()}))
    else:
        click.echo(f"{file}: OK")
        click.echo(effective(settings))


def effective(settings: Settings) -> str:
    """Every value that holds, as a settings file would say it; `# default` marks what was not set."""
    defaults = Settings.defaults().values()
    lines = []
    for section, values in settings.values().items():
        lines += ["", f"[{section}]"]
        for key, value in values.items():
            shown = f"# {key} is not set" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}"
            lines.append(shown if value != defaults[section][key] or value is None else f"{shown}  # default")
    return "\n".join(lines)
