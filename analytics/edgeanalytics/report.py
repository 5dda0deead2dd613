"""One HTML page about the fates of all messages: without scripts, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from edgebroker.log_schema import Fate

from . import pictures
from .figures import ROWS_MAX, Figures, Row
from .measures.latency import PERCENTILES, STEPS_US
from .measures.throughput import SHOWN
from .stylesheet import STYLE
from .summary import Summary, duration

BARS_MAX = 25  # filters and clients drawn; the JSON output has more
KINDS = {Fate.PUBLISHED: "published", Fate.DELIVERED: "delivered", Fate.EXPIRED: "expired", Fate.DROPPED: "dropped"}
LABELS = {
    Fate.PUBLISHED: "messages accepted",
    Fate.DELIVERED: "copies delivered",
    Fate.EXPIRED: "copies expired",
    Fate.DROPPED: "copies dropped",
}

COPIES = ("made", "delivered", "expired", "dropped", "queued")
FINDING_COLUMNS = (
    *("node", "boot", "state", "finding", "message", "count"),
    *("publisher", "topic", "subscribers", "total"),
)
FLOW_COLUMNS = (
    *("node", "boot", "state", "publisher", "subscriber", "qos"),
    *("made", "ended", "lost", "duplicated", "message", "total"),
)


def render(figures: Figures, summary: Summary, source: str, product: str) -> str:
    """Return the page about the logs in *source*, made by *product* (name and version)."""
    sections = (
        verdict(summary),
        tiles(summary),
        fates_section(summary),
        throughput_section(figures["throughput"]),
        latency_section(figures),
        causes_section(summary),
        selectivity_section(figures["selectivity"]),
        audit_section(figures),
        parties_section(figures),
        damage_section(figures["damage"], summary.damages),
        files_section(figures["segments"], summary.files),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Delivery report: {escape(source)}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n"
        f'<header><h1>Delivery report</h1><p class="soft">{escape(source)} · '
        f"{summary.records:,} records in {count_of(summary.files, 'file')}</p></header>\n"
        + "\n".join(section for section in sections if section)
        + f'\n<footer><p>{escape(product)}. Copies are messages on their way to one subscriber. "sampled" and all other'
        " words are explained in docs/analytics.md.</p></footer>\n</main></body></html>\n"
    )


def count_of(count: int, noun: str) -> str:
    """Return a count with its noun: "1 file", "2 files"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def section(title: str, about: str, *content: str) -> str:
    """Return a card of the page."""
    return f'<section><h2>{escape(title)}</h2><p class="soft">{escape(about)}</p>{"".join(content)}</section>'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return the meanings of the colours: (class, text)."""
    items = "".join(f'<li><i class="{kind}"></i>{escape(words)}</li>' for kind, words in entries)
    return f'<ul class="legend">{items}</ul>'


def table(
    caption: str, rows: Sequence[Row], columns: Sequence[tuple[str, str]], kinds: Sequence[dict[str, str]] = ()
) -> str:
    """Return *rows* with *columns* (name, heading); *kinds* gives single cells a class, row by row."""
    heads, body = [], []
    for name, heading in columns:
        numeric = bool(rows) and all(isinstance(row[name], int | None) for row in rows)
        heads.append(f'<th scope="col" class="{"number" if numeric else ""}">{escape(heading)}</th>')
    for nth, row in enumerate(rows):
        kind = kinds[nth] if kinds else {}
        body.append("<tr>" + "".join(cell(row[name], kind.get(name, "")) for name, _ in columns) + "</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def headed(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return columns whose headings are their names."""
    return [(name, {"boot": "run", "qos": "QoS"}.get(name, name)) for name in names]


def cell(value: Any, kind: str) -> str:
    """Return one field of a table."""
    if isinstance(value, int):
        return f'<td class="number {kind}">{value:,}</td>'
    return f'<td class="text {kind}">{escape("" if value is None else str(value))}</td>'


def verdict(summary: Summary) -> str:
    """Return the verdict, the first line of the page."""
    unjudged = sum(count for state, count in summary.runs.items() if state != "complete")
    if not summary.sound:
        kind, mark, more = "bad", "✗", "The messages are named below, under Audit."
    elif unjudged:
        kind, mark = "care", "!"
        judged = f"{count_of(unjudged, 'run')} of {sum(summary.runs.values())} cannot be judged: see Audit."
        more = f"No loss or duplicate was found, but {judged}"
    else:
        kind, mark, more = "good", "✓", "Every copy that was made came to exactly one end."
    head = f"{summary.lost:,} lost, {count_of(summary.duplicated, 'duplicate')}"
    return f'<div class="verdict {kind}" role="status"><strong>{mark} {head}</strong><span>{escape(more)}</span></div>'


def tiles(summary: Summary) -> str:
    """Return the headline figures."""
    slowest = max(summary.latency_us.items(), default=("", {}))
    figures = [
        ("messages", f"{summary.published:,}"),
        ("filtered", f"{summary.filtered:,}"),
        ("copies made", f"{summary.copies:,}"),
        ("delivered", f"{summary.delivered:,}"),
        ("dropped", f"{summary.dropped:,}"),
        ("expired", f"{summary.expired:,}"),
    ]
    if slowest[1]:
        figures.append((f"p99, QoS {slowest[0]}", duration(slowest[1]["p99"])))
    items = "".join(
        f'<div class="tile"><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>' for name, value in figures
    )
    return f'<dl class="tiles">{items}</dl>'


def fates_section(summary: Summary) -> str:
    """Show the shares of the fates of all copies."""
    parts = [
        ("delivered", "delivered", summary.delivered),
        ("dropped", "dropped", summary.dropped),
        ("expired", "expired", summary.expired),
        ("queued", "queued when the log was closed", summary.queued),
        (
            "open",
            "open or lost",
            max(0, summary.copies - summary.delivered - summary.dropped - summary.expired - summary.queued),
        ),
    ]
    shown = [part for part in parts if part[2]]
    if not shown:
        return ""
    made = summary.copies or 1
    words = [(kind, f"{label} {count:,} ({100 * count / made:.1f} %)") for kind, label, count in shown]
    about = "Counted by the audit digests: complete even where rows are sampled."
    return section(
        "What became of the copies", about, pictures.whole("What became of the copies", shown), legend(words)
    )


def throughput_section(rows: Sequence[Row]) -> str:
    """Show the rates over time."""
    if not rows:
        return ""
    width_s, first_s = rows[0]["width_s"], min(row["at_s"] for row in rows)
    steps = (max(row["at_s"] for row in rows) - first_s) // width_s + 1
    rates = {fate: [0.0] * steps for fate in SHOWN}
    for row in rows:
        rates[Fate(row["fate"])][(row["at_s"] - first_s) // width_s] += row["count"] / width_s
    # The filled series comes first; series without events are not drawn.
    order = sorted((fate for fate in SHOWN if any(rates[fate])), key=lambda fate: fate is not Fate.DELIVERED)
    series = [pictures.Series(KINDS[fate], LABELS[fate], rates[fate]) for fate in order]
    day = (
        datetime.fromtimestamp(first_s, UTC).strftime("%d %B %Y") if 0 <= first_s < 253_402_300_800 else "unknown date"
    )
    about = f"Per second, in steps of {count_of(width_s, 'second')}, from {day}. UTC, by the gateways' own clocks."
    picture = pictures.over_time(first_s, width_s, series, "per second")
    return section("Throughput", about, picture, legend([(one.kind, one.label) for one in series]))


def latency_section(figures: Figures) -> str:
    """Show histograms and percentiles."""
    if not figures["latency"]:
        return ""
    edges = (0, *STEPS_US, STEPS_US[-1] * 2)
    filled = [edges.index(row["from_us"]) for row in figures["latency_shape"]]
    low, high = max(0, min(filled) - 1), min(len(edges) - 1, max(filled) + 2)
    panels = []
    for row in figures["latency"]:
        counts = dict.fromkeys(edges[low:high], 0)
        for bar in figures["latency_shape"]:
            if bar["qos"] == row["qos"]:
                counts[bar["from_us"]] = bar["count"]
        marks = [(f"p{percent}", row[f"p{percent}_us"]) for percent in PERCENTILES]
        said = " · ".join(f"{label} {duration(us)}" for label, us in marks) + f" · max {duration(row['max_us'])}"
        panels.append(
            pictures.Panel(f"QoS {row['qos']}", list(counts.values()), marks, f"{row['count']:,} copies · {said}")
        )
    about = (
        "From acceptance to delivery: with QoS 0 the hand-over to the subscriber's socket, with QoS 1 and 2 its"
        " acknowledgement. Logarithmic; every panel to its own height."
    )
    return section("Latency", about, pictures.latency(panels, edges[low : high + 1]))


def causes_section(summary: Summary) -> str:
    """Show why copies were dropped and messages filtered."""
    content = []
    for title, kind, causes in (
        ("Copies dropped", "dropped", summary.dropped_by_cause),
        ("Messages that nobody got", "published", summary.filtered_by_cause),
    ):
        if causes:
            most = max(causes.values())
            rows = [pictures.Bar(cause, count / most, f"{count:,}", kind=kind) for cause, count in causes.items()]
            content.append(f"<h3>{title}</h3>{pictures.bars(title, rows)}")
    return section("Drops and filtered messages by cause", "From the audit digests.", *content) if content else ""


def selectivity_section(rows: Sequence[Row]) -> str:
    """Show the share of messages that each filter accepts."""
    if not rows:
        return ""
    drawn = [
        pictures.Bar(
            row["filter"],
            row["ratio"] or 0.0,
            f"{row['matched']:,} of {row['evaluated']:,} ({100 * (row['ratio'] or 0.0):.1f} %)",
            f"{row['subscriber']} at {row['node']}",
        )
        for row in rows[:BARS_MAX]
    ]
    about = "Of the messages whose topic matched, how many the content filter let pass. The busiest first."
    return section("Filters", about, pictures.bars("Selectivity of filters", drawn), omitted(len(rows), BARS_MAX))


def omitted(rows: int, shown: int) -> str:
    """Return a note on the rows that are not shown, empty if there are none."""
    if rows <= shown:
        return ""
    more = f"{rows - shown:,}" + (" or more" if rows >= ROWS_MAX else "")
    return f'<p class="soft">and {more} others; --json has up to {ROWS_MAX:,}.</p>'


def unlisted(total: int, listed: int, noun: str) -> str:
    """Return a note on the rows of a table that was cut, empty if it was not."""
    return f'<p class="soft">{total - listed:,} more {noun} are counted and not listed.</p>' if total > listed else ""


def audit_section(figures: Figures) -> str:
    """Show the runs, and their findings."""
    columns = [
        *(("node", "node"), ("boot", "run"), ("state", "state"), ("published", "messages"), ("filtered", "filtered")),
        *(
            ("made", "copies made"),
            ("ended", "ended"),
            ("lost", "lost"),
            ("duplicated", "duplicated"),
            ("open", "open"),
        ),
    ]
    kinds = [
        {
            "state": "good" if row["state"] == "complete" else "care",
            "lost": "bad" if row["lost"] else "",
            "duplicated": "bad" if row["duplicated"] else "",
            "open": "care" if row["open"] else "",
        }
        for row in figures["audit"]
    ]
    # A file without a readable header, or that is no log at all, belongs to no run.
    runs = [row if row["node"] or row["boot"] else row | {"node": "(not known)"} for row in figures["audit"]]
    every = sum(row["runs"] for row in figures["states"])
    content = [table("Runs of brokers, losers first", runs, columns, kinds), unlisted(every, len(runs), "runs")]
    if figures["messages"]:
        caption = "Messages whose rows do not add up: the first 20 of every finding, and the total"
        content.append(table(caption, figures["messages"], headed(FINDING_COLUMNS)))
    if figures["flows"]:
        caption = "Flows whose digests differ: a single missing or surplus message is named"
        content.append(table(caption, figures["flows"], headed(FLOW_COLUMNS)))
    about = (
        "Of every copy made, one end is expected. Only complete runs are judged; in an open run the broker is still"
        " at work, a died one lacks its last records, and in an incomplete one blocks are missing or damaged."
    )
    return section("Audit", about, *content)


def parties_section(figures: Figures) -> str:
    """Show the busiest clients."""
    content = []
    for name, columns in (
        ("publishers", ("node", "publisher", "published", "filtered", *COPIES)),
        ("subscribers", ("node", "subscriber", *COPIES)),
    ):
        rows = figures[name]
        if rows:
            caption = f"{name.capitalize()}, the busiest first"
            content += [table(caption, rows[:BARS_MAX], headed(columns)), omitted(len(rows), BARS_MAX)]
    return section("Clients", "Counted by the audit digests.", *content) if content else ""


def damage_section(rows: Sequence[Row], damages: int) -> str:
    """Show the damage that was found in the files."""
    if not rows:
        return ""
    shown = [row | {"records_lost": None if row["records_lost"] < 0 else row["records_lost"]} for row in rows]
    columns = [
        ("file", "file"),
        ("block", "block"),
        ("offset", "offset"),
        ("reason", "what is wrong"),
        ("records_lost", "records lost"),
        ("table", "of table"),
    ]
    about = "Everything else in these files was read; what was lost here is not counted anywhere."
    more = unlisted(damages, len(rows), "places")
    return section("Damaged files", about, table("Damage", shown, columns), more)


def files_section(rows: Sequence[Row], files: int) -> str:
    """Show the files that were read."""
    shown = [row | {"ended": "no" if row["unclosed"] else "with the run" if row["final"] else "yes"} for row in rows]
    columns = [
        ("file", "file"),
        ("node", "node"),
        ("boot", "run"),
        ("records", "records"),
        ("bytes", "bytes"),
        ("sample_qos0", "QoS 0 sample: 1 in"),
        ("ended", "closed"),
    ]
    listed = table("Files", shown, columns) + unlisted(files, len(rows), "files")
    return f"<section><details><summary>What was read</summary>{listed}</details></section>"
