"""docs/fates.md has every cause that the code knows, and no other."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

import pytest

from edgebridge.bridge.counters import BridgeDropCause as BridgeCause
from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebroker.cli.why.account import SENTENCES
from edgebroker.log_schema import Cause

PAGE = (Path(__file__).parents[2] / "docs/fates.md").read_text(encoding="utf-8")
FILTERED = {Cause.NO_SUBSCRIBER, Cause.CONTENT, Cause.OWN_MESSAGE, Cause.NOT_ALLOWED}


def table(heading: str) -> dict[str, str]:
    """Cause -> when, of the section *heading*; what to do must not be missing."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    assert all(todo.strip() for _, _, todo in rows)
    assert len(rows) == len({cause for cause, _, _ in rows}), "a cause has two rows"
    return {cause: when for cause, when, _ in rows}


@pytest.mark.parametrize(
    ("heading", "causes"),
    [
        ("Not accepted", set(Refusal)),
        ("Filtered", FILTERED),
        ("Copies", set(Cause) - FILTERED - {Cause.NONE} | {Cause.NOT_ALLOWED}),
        ("Bridges", set(BridgeCause)),
    ],
)
def test_the_page_has_every_cause_and_no_other(heading: str, causes: set[Enum]) -> None:
    assert set(table(heading)) == {cause.name.lower() for cause in causes}


def test_why_says_what_the_page_says() -> None:
    page = table("Copies") | table("Filtered")
    assert {cause.name.lower(): sentence for cause, sentence in SENTENCES.items()} == page
