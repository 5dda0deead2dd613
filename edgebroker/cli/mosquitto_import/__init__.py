"""`edgebroker import mosquitto.conf`: translates a configuration of Mosquitto into settings of a gateway.

The report names every line of the configuration, by verdict.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from edgebroker.cli import Refused, mosquitto_import
from edgebroker.cli.mosquitto_import.conf_file import LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.translation import ImportTranslation, translate
from edgebroker.cli.parameters import examples


def report_text(translation: ImportTranslation) -> str:
    """Return the report as text: the lines of the configuration, grouped by verdict."""
    return "\n".join(_lines(translation))


def report_json(translation: ImportTranslation) -> str:
    """Return settings and report as one JSON object."""
    return json.dumps(
        {
            "ok": translation.is_complete,
            "settings": translation.text,
            "findings": [_plain(finding) for finding in translation.findings],
            "unsaid": translation.unsaid,
            "problems": list(map(str, translation.problems)),
        },
        ensure_ascii=False,
    )


def _plain(finding: LineVerdict) -> dict[str, Any]:
    line = finding.line
    return {
        "file": line.file,
        "line": line.number,
        "option": line.name,
        "verdict": finding.verdict.name.lower(),
        "keys": finding.keys,
        "note": finding.note,
    }


def _lines(translation: ImportTranslation) -> Iterator[str]:
    for verdict in VerdictKind:
        found = [finding for finding in translation.findings if finding.verdict is verdict]
        if not found:
            continue
        yield f"{verdict.value} ({len(found)})"
        for finding in found:
            said = "; ".join(filter(None, (", ".join(finding.keys), finding.note)))
            yield f"  {finding.line.place}: {finding.line}" + (f"  ->  {said}" if said else "")
    if translation.unsaid:
        yield "not said, and different here"
        for name, note in translation.unsaid.items():
            yield f"  {name}: {note}"
    if translation.problems:
        yield "a gateway would refuse"
        for problem in translation.problems:
            yield f"  {problem}"


@click.command("import", epilog=examples("edgebroker import /etc/mosquitto/mosquitto.conf -o gateway.toml"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it there.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it is there.")
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if something has no equivalent.")
@click.option("--json", "as_json", is_flag=True, help="For programs: settings and report as one JSON object.")
def command(file: Path, output: Path | None, force: bool, check: bool, as_json: bool) -> None:
    """Translate FILE, a configuration of Mosquitto 2.0 or 2.1, into settings of a gateway.

    The settings go to standard output, or to the file after -o; the report, which says what became of every line, to
    standard error, or to standard output with -o. Password and access-control files stay as they are.

    Exit code 0 if it was translated, 1 if --check finds something without equivalent or a gateway would refuse the
    result, 2 if nothing could be done.
    """
    if check and output is not None:
        raise click.UsageError("--check writes nothing: leave -o out")
    if output is not None and output.exists() and output.samefile(file):
        raise Refused(f"{output} is the configuration itself: choose another name")
    if output is not None and output.exists() and not force:
        raise Refused(f"{output} is there already; --force overwrites it")
    translation = translate(file)
    if output is not None:
        try:
            output.write_text(translation.text, encoding="utf-8")
        except OSError as error:
            raise Refused(f"cannot write {output}: {error.strerror}") from error
    if as_json:
        click.echo(mosquitto_import.report_json(translation))
    elif output is None and not check:
        click.echo(translation.text, nl=False)
        click.echo(mosquitto_import.report_text(translation), err=True)
    else:
        click.echo(mosquitto_import.report_text(translation))
        if output is not None:
            click.echo(f"written: {output}")
    if translation.problems or (check and not translation.is_complete):
        sys.exit(1)


__all__ = ["command"]
