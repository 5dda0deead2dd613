"""The fixtures of `edgebroker import`: a configuration as text, its translation, and what is read of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgebroker.cli.mosquitto_import.translation import ImportTranslation, translate

Importer = Callable[[str], ImportTranslation]


def importer(folder: Path) -> Importer:
    """Translates the text of a configuration that lies in *folder*."""

    def translated(text: str) -> ImportTranslation:
        path = folder / "mosquitto.conf"
        path.write_text(text)
        translation = translate(path)
        assert translation.problems == [], translation.text
        lines = [line for line in text.splitlines() if line and line.strip()[0] != "#"]
        assert len(translation.findings) >= len(lines), "every line has an answer"
        return translation

    return translated


def settings(translation: ImportTranslation) -> dict[str, Any]:
    """What was written, as TOML says it."""
    return tomllib.loads(translation.text)


def verdicts(translation: ImportTranslation) -> dict[str, str]:
    """Option -> verdict; of one that stands twice, the last."""
    return {finding.line.name: finding.verdict.name for finding in translation.findings}


def note(translation: ImportTranslation, name: str) -> str:
    """What was said of an option."""
    return next(finding.note for finding in translation.findings if finding.line.name == name)
