"""`edgebroker check FILE`: would a gateway take these settings, and what would then hold?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from edgebroker.world.doors.listeners import expiries, load_all
from edgebroker.world.settings import Settings, SettingsRefused, default_of


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def command(file: Path, as_json: bool) -> None:
    """Check a settings file and show what it says.

    Exit code 0 if a gateway would take it, 2 if not; then every problem is shown with its line.
    """
    try:
        settings = Settings.load(file)
        loaded = load_all(settings.listeners)
    except SettingsRefused as refused:
        if as_json:
            problems = [asdict(problem) for problem in refused.problems]
            click.echo(json.dumps({"ok": False, "file": str(file), "problems": problems}))
        else:
            click.echo(str(refused), err=True)
        sys.exit(2)
    if as_json:
        certificates = [
            {"listener": one.label, "file": str(one.tls_certificate), "expires": tls.validity.end.isoformat()}
            for one, tls in zip(settings.listeners, loaded, strict=True)
            if tls is not None
        ]
        told = {"ok": True, "file": str(file), "settings": settings.values(), "certificates": certificates}
        click.echo(json.dumps(told))
    else:
        click.echo(f"{file}: OK")
        for line in expiries(settings.listeners, loaded):
            click.echo(f"{file}: {line}")
        click.echo(effective(settings))


def effective(settings: Settings) -> str:
    """Every value that holds, as a settings file would say it; `# default` marks what was not set."""
    lines: list[str] = []
    for section, values in settings.values().items():
        several = values if isinstance(values, list) else [values]
        header = f"[[{section}]]" if len(several) > 1 else f"[{section}]"
        for one in several:
            lines += ["", header, *_lines(section, one)]
    return "\n".join(lines)


def _lines(section: str, values: dict[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if value is None:
            yield f"# {key} is not set"
        else:
            shown = f"{key} = {json.dumps(value, ensure_ascii=False)}"
            yield shown if value != default_of(section, key) else f"{shown}  # default"
