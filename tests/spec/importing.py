"""What the tests of `edgebroker import` share: a configuration as text in, a translation out, and questions to it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgebroker.cli.moving.translation import Translation, translate

Importer = Callable[[str], Translation]


def importer(folder: Path) -> Importer:
    """Translates the text of a configuration that lies in *folder*."""

    def translated(text: str) -> Translation:
        path = folder / "mosquitto.conf"
        path.write_text(text)
        translation = translate(path)
        assert translation.problems == [], translation.text
        lines = [line for line in text.splitlines() if line and line.strip()[0] != "#"]
        assert len(translation.findings) >= len(lines), "every line has an answer"
        return translation

    return translated


def settings(translation: Translation) -> dict[str, Any]:
    """What was written, as TOML says it."""
    return tomllib.loads(translation.text)


def verdicts(translation: Translation) -> dict[str, str]:
    """Option -> verdict; of one that stands twice, the last."""
    return {finding.line.name: finding.verdict.name for finding in translation.findings}


def note(translation: Translation, name: str) -> str:
    """What was said of an option."""
    return next(finding.note for finding in translation.findings if finding.line.name == name)
