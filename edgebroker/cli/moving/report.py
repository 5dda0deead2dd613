"""What the operator reads after an import: every line of the configuration, by verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .findings import Finding, Verdict
from .translation import Translation


def as_text(translation: Translation) -> str:
    """For people."""
    return "\n".join(_lines(translation))


def as_json(translation: Translation) -> str:
    """For programs."""
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


def _plain(finding: Finding) -> dict[str, Any]:
    line = finding.line
    return {
        "file": line.file,
        "line": line.number,
        "option": line.name,
        "verdict": finding.verdict.name.lower(),
        "keys": finding.keys,
        "note": finding.note,
    }


def _lines(translation: Translation) -> Iterator[str]:
    for verdict in Verdict:
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
