"""The report's pictures: SVG written by hand, coloured by the page's style sheet, with descriptions for screen readers.

Sizes are in units of the view box; the page scales the picture to the available width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from .summary import duration

WIDTH = 920
LEFT = 56  # room for the numbers of the y axis
RIGHT = 12
DAY_S = 86_400
LABEL_CHARS_MAX = 68  # leaves room for the note at the bar's end


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a picture: `kind` is its class in the style sheet."""

    kind: str
    label: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One horizontal bar: `share` of the full width, 0 to 1."""

    label: str
    share: float
    figure: str
    note: str = ""
    kind: str = "delivered"


@dataclass(frozen=True, slots=True)
class Panel:
    """The histogram of one QoS: heights of its bars, and marks at waits."""

    label: str
    counts: Sequence[int]
    marks: Sequence[tuple[str, int]]
    figure: str


def svg(width: int, height: int, title: str, description: str, body: Iterable[str]) -> str:
    """Return a picture with its title and description."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}. {escape(description)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(body)}</svg>"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a text element at (*x*, *y*)."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def nice_ceiling(value: float) -> float:
    """Return the smallest round number that is at least *value* and whose quarters are round enough; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10) if step * power >= value)


def number(value: float) -> str:
    """Format a number as 12,000 or 0.25."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0")


def over_time(start_s: int, width_s: int, series: Sequence[Series], unit: str) -> str:
    """Draw steps over the wall clock; the first series is filled. All have one value per step of *width_s* seconds."""
    height, top, bottom = 260, 14, 230
    steps = len(series[0].values)
    high = nice_ceiling(max((max(one.values, default=0.0) for one in series), default=0.0))

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / steps

    def y(value: float) -> float:
        return bottom - (bottom - top) * value / high

    body = []
    for quarter in range(5):
        value = high * quarter / 4
        body += [
            line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid"),
            text(LEFT - 8, y(value) + 4, number(value), "axis", "end"),
        ]
    for one in series:
        points = "".join(f"H{x(at):.1f}V{y(value):.1f}" for at, value in enumerate(one.values))
        path = f"M{x(0):.1f} {y(one.values[0]):.1f}{points}H{x(steps):.1f}"
        if one is series[0]:
            body.append(f'<path d="{path}V{y(0):.1f}H{x(0):.1f}Z" class="area {one.kind}"/>')
        body.append(f'<path d="{path}" class="curve {one.kind}"/>')
    ticks = min(6, steps)
    for tick in range(ticks + 1):
        at = steps * tick / ticks
        anchor = "start" if tick == 0 else "end" if tick == ticks else "middle"
        body.append(text(x(at), bottom + 20, clock(start_s + at * width_s, steps * width_s), "axis", anchor))
    said = "; ".join(f"{one.label}: at most {number(max(one.values, default=0.0))} {unit}" for one in series)
    return svg(WIDTH, height, "Throughput over time", said, body)


def clock(unix_s: float, span_s: int) -> str:
    """Return the time of day, with the date if the span is longer than a day."""
    form = "%H:%M:%S" if span_s < 2 * 3_600 else "%H:%M" if span_s <= DAY_S else "%d %b %H:%M"
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return "?"  # a gateway's clock may be set to any value


def latency(panels: Sequence[Panel], edges_us: Sequence[int]) -> str:
    """Draw one histogram per QoS over one logarithmic axis. *edges_us*: the starts of the bars, and the end of the last
    one.
    """
    each, bars = 132, len(edges_us) - 1
    height = each * len(panels) + 26
    step = (WIDTH - LEFT - RIGHT) / bars

    def x(us: int) -> float:
        """Interpolate linearly between the edges around *us*: with three steps to a decade this is nearly
        logarithmic.
        """
        at = max((n for n in range(bars) if edges_us[n] <= us), default=0)
        inside = (us - edges_us[at]) / (edges_us[at + 1] - edges_us[at])
        return LEFT + step * (at + min(1.0, inside))

    body = []
    for nth, panel in enumerate(panels):
        bottom = each * (nth + 1) - 4
        high, room = max(panel.counts, default=0) or 1, each - 58
        body += [
            text(0, bottom - room - 26, panel.label, "strong"),
            text(WIDTH - RIGHT, bottom - room - 26, panel.figure, "axis", "end"),
        ]
        for at, count in enumerate(panel.counts):
            if count:
                tall = max(1.5, room * count / high)
                said = f"{duration(edges_us[at])} to {duration(edges_us[at + 1])}: {count:,}"
                body.append(
                    f'<rect x="{LEFT + step * at + 1:.1f}" y="{bottom - tall:.1f}" width="{step - 2:.1f}" '
                    f'height="{tall:.1f}" rx="2" class="bar delivered"><title>{said}</title></rect>'
                )
        body.append(line(LEFT, bottom, WIDTH - RIGHT, bottom, "base"))
        previous = -100.0
        for label, us in panel.marks:
            place = x(us)
            body.append(line(place, bottom - room - 4, place, bottom, "mark"))
            if place - previous > 28:  # else it would cover the label before it
                body.append(text(place, bottom - room - 8, label, "marked", "middle"))
                previous = place
    for at, edge in enumerate(edges_us[:-1]):
        if edge == 0 or str(edge)[0] == "1":
            body.append(text(LEFT + step * at, height - 8, round_duration(edge), "axis", "middle"))
    said = "; ".join(
        f"{panel.label}: " + ", ".join(f"{label} {duration(us)}" for label, us in panel.marks) for panel in panels
    )
    return svg(WIDTH, height, "Latency distribution", said, body)


def round_duration(us: int) -> str:
    """Format an edge of the axis: "0", "100 µs", "10 ms"."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000), ("µs", 1)):
        if us >= size:
            return f"{us // size} {unit}"
    return "0"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Draw horizontal bars with their figures; long labels are cut, with the full text in a tooltip."""
    each, wide = 40, WIDTH - 190
    body = []
    for nth, row in enumerate(rows):
        top = each * nth
        filled = max(4.0, wide * row.share) if row.share else 0.0
        label = row.label if len(row.label) <= LABEL_CHARS_MAX else row.label[: LABEL_CHARS_MAX - 1] + "…"
        body += [
            f"<g><title>{escape(row.label)}: {escape(row.figure)}</title>",
            text(0, top + 14, label, "label"),
            f'<rect y="{top + 20}" width="{wide}" height="10" rx="5" class="track"/>',
            f'<rect y="{top + 20}" width="{filled:.1f}" height="10" rx="5" class="bar {row.kind}"/>',
            text(wide + 12, top + 29, row.figure, "figure"),
            text(wide, top + 14, row.note, "axis", "end"),
            "</g>",
        ]
    said = "; ".join(f"{row.label}: {row.figure}" for row in rows)
    return svg(WIDTH, each * len(rows), title, said, body)


def whole(title: str, parts: Sequence[tuple[str, str, int]]) -> str:
    """Draw one bar divided into (class, label, count)."""
    total = sum(count for _, _, count in parts) or 1
    body, left = (
        ['<clipPath id="round"><rect width="920" height="28" rx="6"/></clipPath><g clip-path="url(#round)">'],
        0.0,
    )
    for kind, label, count in parts:
        wide = WIDTH * count / total
        body.append(
            f'<rect x="{left:.1f}" y="0" width="{wide:.1f}" height="28" class="bar {kind}">'
            f"<title>{escape(label)}: {count:,}</title></rect>"
        )
        left += wide
    body.append("</g>")
    return svg(WIDTH, 28, title, "; ".join(f"{label}: {count:,}" for _, label, count in parts), body)
