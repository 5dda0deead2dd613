"""Findings as a table for people and as objects for programs; and the exit code that says whether all are as asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import click

from edgebroker.simworld.experiments.finding import Finding, unmet

OTHERWISE = 1  # exit code: the outcome is not the published one


def report(
    head: str, about: Mapping[str, object], judged: Sequence[Finding], beyond: Sequence[Finding], as_json: bool
) -> None:
    """Print the findings that decide and those that go *beyond* the source; end with OTHERWISE if one does not hold."""
    wrong = unmet(judged)
    if as_json:
        objects = {"findings": [*map(_as_object, judged)], "beyond": [*map(_as_object, beyond)]}
        click.echo(json.dumps({**about, **objects, "reproduced": not wrong}, indent=2))
    else:
        lines = [head, "", *table(judged)]
        if beyond:
            lines += ["", "what a product should reach", *table(beyond)]
        names = ", ".join(finding.name.strip() for finding in wrong)
        lines += ["", f"not as published: {names}" if wrong else "reproduced"]
        click.echo("\n".join(lines))
    if wrong:
        raise SystemExit(OTHERWISE)


def table(findings: Sequence[Finding]) -> Iterator[str]:
    """Plain text, legible without colour and when pasted into a document."""
    yield f"{'':<44}{'published':>12}{'accepted':>22}{'found':>12}"
    for finding in findings:
        mark = "" if not finding.is_judged else "  ok" if finding.is_met else "  NO"
        yield f"{finding.name:<44}{finding.published:>12}{finding.accepted:>22}{finding.text:>12}{mark}"


def _as_object(finding: Finding) -> dict[str, object]:
    bounds = {"low": finding.low, "high": finding.high} if finding.is_judged else {}
    finite = {name: bound for name, bound in bounds.items() if abs(bound) != float("inf")}
    return {
        "name": finding.name.strip(),
        "published": finding.published,
        "accepted": finite,
        "found": finding.measured,
        "met": finding.is_met,
    }
