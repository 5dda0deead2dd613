"""The report of an experiment: its progress, its findings beside the published ones, and line charts in SVG.

The exit code shows whether all findings are as required.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import inf
from pathlib import Path
from typing import Final

import click

from edgebroker.cli import Refused


class StatusLine:
    """A line on stderr with the current step, if stderr is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._shown:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.show("")


@dataclass(frozen=True, slots=True)
class ExperimentFigure:
    """A quantity with its descriptions. A finding is judged if `measured` must lie between `low` and `high`."""

    name: str
    published: str
    measured: float
    style: str = "{:,.4g}"
    """Format of a figure."""
    low: float = -inf
    high: float = inf

    @property
    def is_judged(self) -> bool:
        """Return whether the figure has bounds."""
        return (self.low, self.high) != (-inf, inf)

    @property
    def is_met(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def accepted(self) -> str:
        """Return the accepted range as text."""
        low, high = self.style.format(self.low), self.style.format(self.high)
        if not self.is_judged:
            return ""
        if self.low == self.high:
            return low
        if self.low == -inf:
            return f"<= {high}"
        return f">= {low}" if self.high == inf else f"{low} .. {high}"

    @property
    def text(self) -> str:
        """Return the figure as text."""
        return self.style.format(self.measured)


def unmet(findings: Iterable[ExperimentFigure]) -> list[ExperimentFigure]:
    """Return the findings outside their bounds."""
    return [finding for finding in findings if not finding.is_met]


OTHERWISE = 1  # exit code: the outcome differs from the published one


def report(
    head: str,
    about: Mapping[str, object],
    judged: Sequence[ExperimentFigure],
    beyond: Sequence[ExperimentFigure],
    as_json: bool,
) -> None:
    """Print the findings that decide and those that go *beyond* the source; exit with OTHERWISE if one is not met."""
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


def table(findings: Sequence[ExperimentFigure]) -> Iterator[str]:
    """Yield plain text, legible without colour and when pasted into a document."""
    yield f"{'':<44}{'published':>12}{'accepted':>22}{'found':>12}"
    for finding in findings:
        mark = "" if not finding.is_judged else "  ok" if finding.is_met else "  NO"
        yield f"{finding.name:<44}{finding.published:>12}{finding.accepted:>22}{finding.text:>12}{mark}"


def _as_object(finding: ExperimentFigure) -> dict[str, object]:
    bounds = {"low": finding.low, "high": finding.high} if finding.is_judged else {}
    finite = {name: bound for name, bound in bounds.items() if abs(bound) != float("inf")}
    return {
        "name": finding.name.strip(),
        "published": finding.published,
        "accepted": finite,
        "found": finding.measured,
        "met": finding.is_met,
    }


WIDTH: Final = 720
HEIGHT: Final = 440
LEFT, RIGHT, TOP, BOTTOM = 56, 116, 44, 48
"""Margins in pixels; the right one has room for the names of the lines."""
NAME_HEIGHT: Final = 14
"""The least distance between two legible names."""
TICKS: Final = 6

STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}"
    ".grid{stroke:#e4e4e4}.axis{stroke:#888}polyline{fill:none;stroke-width:2}.end{text-anchor:end}.mid{text-anchor:middle}"
)


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A named series of points, x -> y."""

    name: str
    points: Mapping[float, float]
    colour: str
    reference: Mapping[float, float] = field(default_factory=dict)
    """Points to compare with, drawn as rings."""


def line_chart(title: str, note: str, x_name: str, y_name: str, lines: Sequence[ChartLine]) -> str:
    """Return the chart as one SVG document. Both axes begin at 0; there must be a point above 0 on each.

    note: the small text beside the title.
    """
    every = [point for line in lines for points in (line.points, line.reference) for point in points.items()]
    x_step = tick_step(max(x for x, _ in every))
    y_step = tick_step(max(y for _, y in every))
    x_max = x_step * math.ceil(max(x for x, _ in every) / x_step)
    y_max = y_step * math.ceil(max(y for _, y in every) / y_step)

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (WIDTH - LEFT - RIGHT) * x / x_max
        return round(right, 1), round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / y_max, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        f'<text class="end" x="{WIDTH - 12}" y="24">{escape(note)}</text>',
    ]
    left, base = place(0, 0)
    right, top = place(x_max, y_max)
    for tick in range(round(y_max / y_step) + 1):
        _, y = place(0, tick * y_step)
        parts.append(f'<line class="grid" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts.append(f'<text class="end" x="{left - 6}" y="{y + 4}">{tick * y_step:,g}</text>')
    for tick in range(round(x_max / x_step) + 1):
        x, _ = place(tick * x_step, 0)
        parts.append(f'<text class="mid" x="{x}" y="{base + 18}">{tick * x_step:,g}</text>')
    parts.append(f'<line class="axis" x1="{left}" y1="{base}" x2="{right}" y2="{base}"/>')
    parts.append(f'<text class="mid" x="{(left + right) / 2}" y="{base + 38}">{escape(x_name)}</text>')
    middle = (top + base) / 2
    parts.append(f'<text class="mid" transform="rotate(-90 14 {middle})" x="14" y="{middle}">{escape(y_name)}</text>')
    for line in lines:
        points = [place(x, y) for x, y in sorted(line.points.items())]
        joined = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{joined}" stroke="{line.colour}"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{line.colour}"/>' for x, y in points]
        rings = [place(x, y) for x, y in sorted(line.reference.items())]
        parts += [f'<circle cx="{x}" cy="{y}" r="6" fill="none" stroke="{line.colour}"/>' for x, y in rings]
    ends = {line.name: place(*max(line.points.items())) for line in lines}
    for name, y in spread({name: y for name, (_, y) in ends.items()}):
        parts.append(f'<text x="{ends[name][0] + 12}" y="{y + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def write_chart(path: Path | None, chart: str) -> None:
    """Write *chart* to *path*, unless it is None. Raises Refused."""
    if path is None:
        return
    try:
        path.write_text(chart, encoding="utf-8")
    except OSError as error:
        raise Refused(f"cannot write the chart: {error}") from None


def tick_step(largest: float) -> float:
    """Return the distance between ticks, 1, 2 or 5 times a power of ten, so that about TICKS of them reach
    *largest*.
    """
    rough = largest / TICKS
    power: float = 10 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def spread(heights: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield every name with its height, moved down if it would cover the one above."""
    lowest = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        lowest = max(height, lowest + NAME_HEIGHT)
        yield name, round(lowest, 1)
