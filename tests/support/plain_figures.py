"""The figures of `edgeanalytics.figures` in plain Python and without Spark: what these are compared with.

It shares the file reader and the constants with the Spark side, and no computation. It keeps everything in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from edgeanalytics import ingest
from edgeanalytics.figures import TABLES, Figures, Row, Shown
from edgeanalytics.measures.audit import NAMED_MAX
from edgeanalytics.measures.latency import PERCENTILES, STEPS_US
from edgeanalytics.measures.throughput import SHOWN, width_for
from edgeanalytics.schemas import ORIGIN, READ
from edgebroker.log_schema import SUM_MODULUS, Cause, Fate

ENDS = (Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED, Fate.QUEUED)
Run = tuple[str, str]
FLOW_COLUMNS = (
    *("node", "boot", "state", "publisher", "subscriber", "qos"),
    *("made", "ended", "lost", "duplicated", "message", "total"),
)
MESSAGE_COLUMNS = (
    *("node", "boot", "state", "finding", "message", "count"),
    *("publisher", "topic", "subscribers", "total"),
)


def read(folder: Path) -> Figures:
    """Read every row of every table of `schemas.READ` below *folder*."""
    rows: Figures = {table.name: [] for table in READ}
    for path in ingest.paths(folder):
        for part in ingest.parts(path.relative_to(folder).as_posix(), ingest.content(path)):
            origin = dict(zip((column.name for column in ORIGIN), part.origin, strict=True))
            names = list(part.columns)
            rows[part.table.name] += (
                origin | dict(zip(names, values, strict=True)) for values in zip(*part.columns.values(), strict=True)
            )
    return rows


def figures(rows: Figures) -> Figures:
    """Compute the same tables, in the same order, as `figures.compute`."""
    runs = runs_of(rows["segment"], rows["anchor"])
    flows = flows_of(rows["digest"])
    messages = messages_of(rows["delivery"])
    found: Figures = {
        "segments": rows["segment"],
        "damage": rows["damage"],
        "audit": audit_of(runs, flows, messages),
        "flows": differing(runs, flows),
        "messages": named(runs, messages),
        "fates": totals(rows["digest"], ("qos", "fate", "cause"), ("count",)),
        "latency": latency_of(rows["delivery"]),
        "latency_shape": latency_shape_of(rows["delivery"]),
        "throughput": throughput_of(rows, runs),
        "selectivity": selectivity_of(rows["filter"]),
        "publishers": parties_of(rows["digest"], "publisher", tuple(Fate)),
        "subscribers": parties_of(
            [row for row in rows["digest"] if row["fate"] not in (Fate.PUBLISHED, Fate.FILTERED)],
            "subscriber",
            (Fate.MATCHED, *ENDS),
        ),
    }
    return {name: in_order(found[name], shown) for name, shown in TABLES.items()}


def in_order(rows: list[Row], shown: Shown) -> list[Row]:
    """Sort *rows*, largest first by the columns of *shown*, then by all columns, None last; and cut them."""

    def place(row: Row) -> tuple[object, ...]:
        return (*(-row[name] for name in shown.largest), *((value is None, value) for value in row.values()))

    return sorted(rows, key=place)[: shown.rows_max]


def totals(rows: Iterable[Row], keys: tuple[str, ...], counted: tuple[str, ...]) -> list[Row]:
    """Return the sums of *counted* by *keys*."""
    sums: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * len(counted))
    for row in rows:
        total = sums[tuple(row[key] for key in keys)]
        for at, name in enumerate(counted):
            total[at] += row[name]
    return [dict(zip(keys, key, strict=True)) | dict(zip(counted, total, strict=True)) for key, total in sums.items()]


def runs_of(segments: list[Row], anchors: list[Row]) -> dict[Run, Row]:
    """Return the runs by node and boot: see `measures.runs`."""
    runs: dict[Run, Row] = {}
    for key in sorted({(row["node"], row["boot"]) for row in segments}):
        files = [row for row in segments if (row["node"], row["boot"]) == key]
        clocks = [row for row in (*files, *anchors) if (row["node"], row["boot"]) == key]
        there, end = sum(row["blocks"] for row in files), max(row["last_block"] for row in files) + 1
        damages = sum(row["damages"] for row in files)
        if there > end:
            state = "overlapping"
        elif damages or there < end:
            state = "incomplete"
        else:
            state = "complete" if any(row["final"] for row in files) else "open"
        runs[key] = {
            "node": key[0],
            "boot": key[1],
            "state": state,
            "sample_qos0": max(row["sample_qos0"] for row in files),
            "files": len(files),
            "bytes": sum(row["bytes"] for row in files),
            "records": sum(row["records"] for row in files),
            "damages": damages,
            "blocks_missing": max(0, end - there),
            "ahead_us": max((row["t_us"], row["unix_us"] - row["t_us"]) for row in clocks)[1],
        }
    return runs


def flows_of(digests: list[Row]) -> list[Row]:
    """Compare copies made with copies ended per flow: see `measures.flows`."""
    by_flow: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in digests:
        by_flow[row["node"], row["boot"], row["publisher"], row["subscriber"], row["qos"]].append(row)
    flows: list[Row] = []
    for (node, boot, publisher, subscriber, qos), rows in by_flow.items():
        made, made_sum, made_xor = digest([row for row in rows if row["fate"] == Fate.MATCHED])
        ended, ended_sum, ended_xor = digest([row for row in rows if row["fate"] in ENDS])
        difference, message, masked = made - ended, None, 0
        if abs(difference) <= 1 and (made, made_sum, made_xor) != (ended, ended_sum, ended_xor):
            number = difference * (made_sum - ended_sum) % SUM_MODULUS
            if difference and number == made_xor ^ ended_xor:
                message = number
            else:
                masked = 1
        flows.append(
            {
                "node": node,
                "boot": boot,
                "publisher": publisher,
                "subscriber": subscriber,
                "qos": qos,
                "published": digest([row for row in rows if row["fate"] == Fate.PUBLISHED])[0],
                "filtered": digest([row for row in rows if row["fate"] == Fate.FILTERED])[0],
                "made": made,
                "ended": ended,
                "lost": max(0, difference) + masked,
                "duplicated": max(0, -difference) + masked,
                "message": message,
            }
        )
    return flows


def digest(rows: list[Row]) -> tuple[int, int, int]:
    """Return count, sum and xor of *rows* together."""
    xor = 0
    for row in rows:
        xor ^= row["xor"]
    return sum(row["count"] for row in rows), sum(row["sum"] for row in rows) % SUM_MODULUS, xor


def messages_of(delivery: list[Row]) -> list[Row]:
    """Return the findings per message: see `measures.messages`."""
    by_message: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in delivery:
        by_message[row["node"], row["boot"], row["message"]].append(row)
    findings: list[Row] = []
    for (node, boot, message), rows in by_message.items():
        published = [row for row in rows if row["fate"] == Fate.PUBLISHED]
        filtered = sum(row["fate"] == Fate.FILTERED for row in rows)
        ends = Counter(
            (row["subscriber"], row["filter"])
            for row in rows
            if row["fate"] in ENDS and row["cause"] != Cause.HANDED_OVER
        )
        copies = sum(row["copies"] for row in rows)
        step = rows[0]["sample_qos0"]
        sampled = step > 0 and message % step == 0
        uncopied = bool(published) and copies == 0
        found = {"lost": 0, "unaccounted": 0, "duplicate": 0, "spurious": 0}
        if published and sampled:
            found["lost"] = max(0, copies - len(ends))
            found["unaccounted"] = int(uncopied and not filtered)
        found["duplicate"] = sum(ends.values()) - len(ends) + max(0, len(published) - 1)
        found["spurious"] = max(0, len(ends) - copies) + max(0, filtered - uncopied)
        twice = ", ".join(sorted(subscriber for (subscriber, _), count in ends.items() if count > 1))
        findings += (
            {
                "node": node,
                "boot": boot,
                "message": message,
                "finding": finding,
                "count": count,
                "publisher": max(row["publisher"] for row in rows),
                "topic": max(row["topic"] for row in rows),
                "subscribers": twice if finding == "duplicate" else "",
            }
            for finding, count in found.items()
            if count
        )
    return findings


def audit_of(runs: dict[Run, Row], flows: list[Row], messages: list[Row]) -> list[Row]:
    """Return runs with their losses and duplicates: see `measures.audit`."""
    audited: list[Row] = []
    for key, run in runs.items():
        mine = [flow for flow in flows if (flow["node"], flow["boot"]) == key]
        found: Counter[str] = Counter()
        for finding in messages:
            if (finding["node"], finding["boot"]) == key:
                found[finding["finding"]] += finding["count"]
        missing = max(sum(flow["lost"] for flow in mine), found["lost"] + found["unaccounted"])
        surplus = max(sum(flow["duplicated"] for flow in mine), found["duplicate"] + found["spurious"])
        complete = run["state"] == "complete"
        proven = 0 if run["state"] == "overlapping" else found["duplicate"]
        audited.append(
            run
            | {name: sum(flow[name] for flow in mine) for name in ("published", "filtered", "made", "ended")}
            | {
                "lost": missing if complete else 0,
                "duplicated": surplus if complete else proven,
                "open": 0 if complete else missing,
            }
        )
    return audited


def first_of(rows: list[Row], runs: dict[Run, Row], group: tuple[str, ...], order: tuple[str, ...]) -> list[Row]:
    """Return the first `NAMED_MAX` rows of every group, with the state of their run and the size of the group."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in order)):
        groups[tuple(row[name] for name in group)].append(row)
    return [
        row | {"state": runs[row["node"], row["boot"]]["state"], "total": len(members)}
        for members in groups.values()
        for row in members[:NAMED_MAX]
    ]


def differing(runs: dict[Run, Row], flows: list[Row]) -> list[Row]:
    """Return the flows whose two sides differ."""
    different = [flow for flow in flows if flow["lost"] or flow["duplicated"]]
    rows = first_of(different, runs, ("node", "boot"), ("publisher", "subscriber", "qos"))
    return [{name: row[name] for name in FLOW_COLUMNS} for row in rows]


def named(runs: dict[Run, Row], messages: list[Row]) -> list[Row]:
    """Return the messages with findings."""
    rows = first_of(messages, runs, ("node", "boot", "finding"), ("message",))
    return [{name: row[name] for name in MESSAGE_COLUMNS} for row in rows]


def waits_by_qos(delivery: list[Row]) -> dict[int, list[int]]:
    """Return the sorted waits of delivered copies."""
    waits: dict[int, list[int]] = defaultdict(list)
    for row in delivery:
        if row["fate"] == Fate.DELIVERED:
            waits[row["qos"]].append(row["wait_us"])
    return {qos: sorted(values) for qos, values in waits.items()}


def latency_of(delivery: list[Row]) -> list[Row]:
    """Compute percentiles by nearest rank: the value at position ceil(n * percent / 100), counted from 1."""
    return [
        {"qos": qos, "count": len(waits)}
        | {f"p{percent}_us": waits[-(-len(waits) * percent // 100) - 1] for percent in PERCENTILES}
        | {"max_us": waits[-1]}
        for qos, waits in waits_by_qos(delivery).items()
    ]


def latency_shape_of(delivery: list[Row]) -> list[Row]:
    """Count the copies that waited as long as each step, but not as long as the next."""
    shape = Counter(
        (qos, max((step for step in STEPS_US if step <= wait), default=0))
        for qos, waits in waits_by_qos(delivery).items()
        for wait in waits
    )
    return [{"qos": qos, "from_us": step, "count": count} for (qos, step), count in shape.items()]


def throughput_of(rows: Figures, runs: dict[Run, Row]) -> list[Row]:
    """Count events by time step: see `measures.throughput`."""
    sampled = any(run["sample_qos0"] != 1 for run in runs.values() if run["records"])
    if sampled:
        events = [(row, row["minute"] * 60_000_000, row["count"]) for row in rows["digest"]]
    else:
        events = [(row, row["t_us"], 1) for row in rows["delivery"]]
    timed = [
        ((t_us + runs[row["node"], row["boot"]]["ahead_us"]) // 1_000_000, row["fate"], count)
        for row, t_us, count in events
        if row["fate"] in SHOWN
    ]
    if not timed:
        return []
    # The span is in whole minutes if the events are.
    unit = 60 if sampled else 1
    width_s = width_for(min(timed)[0] // unit * unit, max(timed)[0] // unit * unit, sampled=sampled)
    counts: Counter[tuple[int, int]] = Counter()
    for at_s, fate, count in timed:
        counts[at_s // width_s * width_s, fate] += count
    return [{"at_s": at_s, "fate": fate, "count": count, "width_s": width_s} for (at_s, fate), count in counts.items()]


def selectivity_of(filters: list[Row]) -> list[Row]:
    """Return matched and evaluated messages per subscription: see `measures.selectivity`."""
    rows = totals(filters, ("node", "subscriber", "filter"), ("evaluated", "matched"))
    return [row | {"ratio": row["matched"] / row["evaluated"] if row["evaluated"] else None} for row in rows]


def parties_of(digests: list[Row], party: str, fates: tuple[Fate, ...]) -> list[Row]:
    """Return counts by fate, per client."""
    ordered = [fate for fate in (Fate.PUBLISHED, Fate.FILTERED, Fate.MATCHED, *ENDS) if fate in fates]
    names = {fate: "made" if fate is Fate.MATCHED else fate.name.lower() for fate in ordered}
    counted = [row | {name: row["count"] * (row["fate"] == fate) for fate, name in names.items()} for row in digests]
    return totals(counted, ("node", party), tuple(names.values()))
