"""The figures of `edgeanalytics.figures` in plain Python and without Spark: what these are compared with.

It shares the decoding of blocks and the constants with the Spark side, and no computation: neither the choice of the
files and blocks that are read, nor an order or a limit of a table. It keeps everything in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from edgeanalytics.figures import Figures, Row
from edgeanalytics.measures.latency import PERCENTILES, STEPS_US
from edgeanalytics.measures.throughput import SHOWN, width_for
from edgebroker.errors import LogDamaged
from edgebroker.log_schema import SUM_MODULUS, TABLES, Cause, Fate, MessageOrigin
from edgebroker.storage.deliverylog.format import decode_footer
from edgebroker.storage.deliverylog.reader import Block, LogCorruption, iter_blocks, read_header

ENDS = (Fate.DELIVERED, Fate.EXPIRED, Fate.DROPPED, Fate.QUEUED)
FIRST = (MessageOrigin.CLIENT, MessageOrigin.WILL, MessageOrigin.BRIDGE)
NAMED = 20
MINUTE_US = 60_000_000
SET_SINCE_US = 1_577_836_800_000_000  # 2020-01-01
ALWAYS_US = 2**62
Run = tuple[str, str]
FLOW_COLUMNS = (
    *("node", "boot", "state", "publisher", "subscriber", "qos"),
    *("made", "ended", "lost", "duplicated", "message", "total"),
)
MESSAGE_COLUMNS = (
    *("node", "boot", "state", "finding", "message", "count"),
    *("publisher", "topic", "subscribers", "total"),
)
LARGEST = {
    "segments": ("damages",),
    "audit": ("lost", "duplicated", "open"),
    "selectivity": ("evaluated",),
    "publishers": ("published",),
    "subscribers": ("made",),
}


def read(folder: Path) -> Figures:
    """Read every file below *folder*, and each block of a run once: table -> rows."""
    rows: Figures = {table.name: [] for table in TABLES} | {"segment": [], "damage": [], "copied": []}
    blocks: dict[tuple[str, str, str, int], list[tuple[tuple[object, ...], str, Block]]] = defaultdict(list)
    by_file: dict[str, list[Block]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith((".edl", ".edl.part"))):
        data, file = path.read_bytes(), path.relative_to(folder).as_posix()
        segment = read_file(file, data, rows["damage"], by_file)
        rows["segment"].append(segment)
        for block in by_file[file]:
            unknown = file if (segment["node"], segment["boot"]) == ("", "") else ""
            rank = (segment["is_part"], segment["damages"], file)
            blocks[segment["node"], segment["boot"], unknown, block.head.sequence].append((rank, file, block))
    counted: defaultdict[str, list[Block]] = defaultdict(list)
    for key, copies in blocks.items():
        closed = [copy for copy in copies if not copy[2].head.is_provisional]
        if not closed and any(
            other[:3] == key[:3] and other[3] > key[3] and any(not copy[2].head.is_provisional for copy in found)
            for other, found in blocks.items()
        ):
            continue
        newest = max(copies, key=lambda copy: (copy[2].head.t_last_us, copy[0][2]))
        counted[(min(closed)[1] if closed else newest[1])].append((min(closed) if closed else newest)[2])
        rows["copied"] += [{}] * max(0, len(closed) - 1)
    for segment in rows["segment"]:
        mine = counted[segment["file"]]
        segment["counted"] = len(mine)
        segment["records"] = sum(block.head.rows for block in mine if block.table)
        segment["t_last_us"] = max([segment["t_us"], *(block.head.t_first_us for block in mine if block.table)])
        origin = {name: segment[name] for name in ("node", "boot", "file", "sample_qos0")}
        for block in mine:
            names = list(block.columns)
            if block.table:
                rows[block.table] += (
                    origin | dict(zip(names, values, strict=True))
                    for values in zip(*block.columns.values(), strict=True)
                )
    return rows


def read_file(file: str, data: bytes, damaged: list[Row], by_file: dict[str, list[Block]]) -> Row:
    """Return the row of a file, without what is counted of it; add its damage and its blocks."""
    is_part = file.endswith(".part")
    by_file[file] = []
    try:
        header, damage = read_header(data)
    except LogDamaged as reason:
        header, damage = None, [LogCorruption(-1, 0, str(reason))]
    for item in [] if header is None else iter_blocks(data, growing=is_part):
        if isinstance(item, Block):
            by_file[file].append(item)
        else:
            damage.append(item)
    footer = None if is_part else decode_footer(data)
    at_end = [item for item in damage if header is not None and item.offset >= len(data)]
    origin = {
        "node": header.node if header else "",
        "boot": header.boot if header else "",
        "file": file,
        "sample_qos0": header.sample_qos0 if header else 0,
    }
    damaged += [
        origin
        | {
            "block": item.block,
            "offset": item.offset,
            "reason": item.reason,
            "records_lost": -1 if item.rows_lost is None else item.rows_lost,
            "table": item.table,
        }
        for item in damage
    ]
    numbers = [block.head.sequence for block in by_file[file]]
    known = [*numbers, *(entry[2] for entry in (footer.blocks if footer else ()))]
    return origin | {
        "unclosed": int(is_part or bool(at_end)),
        "final": int(bool(footer and footer.final)),
        "died": int(bool(footer and footer.died)),
        "damages": len(damage) - len(at_end),
        "t_us": header.t_us if header else 0,
        "unix_us": header.unix_us if header else 0,
        "t_last_us": 0,
        "bytes": len(data),
        "records": 0,
        "blocks": len(numbers),
        "counted": 0,
        "first_block": numbers[0] if numbers else 0,
        "last_block": numbers[-1] if numbers else -1,
        "blocks_end": max([footer.blocks_end if footer else 0, *(number + 1 for number in known)]),
        "is_part": is_part,
    }


def figures(rows: Figures) -> Figures:
    """Compute the same tables as `figures.compute`, in the same order, but whole."""
    segments = [{name: value for name, value in row.items() if name != "is_part"} for row in rows["segment"]]
    runs = runs_of(segments)
    flows = flows_of(rows["digest"])
    messages = messages_of(rows["delivery"])
    digests = fuller(rows, runs)
    subscribers = parties_of([row for row in digests if row["subscriber"]], "subscriber", (Fate.MATCHED, *ENDS))
    audit = audit_of(runs, digests, flows, messages)
    found: Figures = {
        "extent": [
            {"files": len(segments), "damages": len(rows["damage"]), "copied_blocks": len(rows["copied"])},
        ],
        "states": states_of(audit),
        "segments": segments,
        "damage": rows["damage"],
        "audit": audit,
        "flows": differing(runs, flows),
        "messages": named(runs, messages),
        "fates": totals(
            (row | {"to_peer": int(row["subscriber"].startswith("gateway:"))} for row in digests),
            ("qos", "fate", "cause", "origin", "to_peer"),
            ("count",),
        ),
        "waiting": totals(
            (row | {"to_peer": int(row["subscriber"].startswith("gateway:"))} for row in subscribers),
            ("to_peer",),
            ("queued",),
        ),
        "latency": latency_of(rows["delivery"]),
        "latency_shape": latency_shape_of(rows["delivery"]),
        "throughput": throughput_of(rows, runs, clocks_of(segments, rows["anchor"])),
        "selectivity": selectivity_of(rows["filter"]),
        "publishers": parties_of(digests, "publisher", tuple(Fate)),
        "subscribers": subscribers,
    }
    return {name: in_order(name, table) for name, table in found.items()}


def in_order(name: str, rows: list[Row]) -> list[Row]:
    """Sort the *rows* of the table *name*: what matters most first, then by all columns, None last."""

    def place(row: Row) -> tuple[object, ...]:
        judged = name in ("flows", "messages") and row["state"] != "complete"
        return (
            judged,
            *(-row[key] for key in LARGEST.get(name, ())),
            *((value is None, value) for value in row.values()),
        )

    return sorted(rows, key=place)


def totals(rows: Iterable[Row], keys: tuple[str, ...], counted: tuple[str, ...]) -> list[Row]:
    """Return the sums of *counted* by *keys*."""
    sums: dict[tuple[object, ...], list[int]] = defaultdict(lambda: [0] * len(counted))
    for row in rows:
        total = sums[tuple(row[key] for key in keys)]
        for at, name in enumerate(counted):
            total[at] += row[name]
    return [dict(zip(keys, key, strict=True)) | dict(zip(counted, total, strict=True)) for key, total in sums.items()]


def runs_of(segments: list[Row]) -> dict[Run, Row]:
    """Return the runs by node and boot: see `measures.runs`."""
    runs: dict[Run, Row] = {}
    for key, files in sorted(grouped(segments).items()):
        there, end = sum(row["counted"] for row in files), max(row["blocks_end"] for row in files)
        damages = sum(row["damages"] for row in files if row["counted"] or not row["blocks"])
        ahead_us = max((row["t_us"], row["unix_us"] - row["t_us"]) for row in files)[1]
        is_final = any(row["final"] for row in files)
        if key == ("", "") or there < end or (damages and not is_final):
            state = "incomplete"
        elif is_final:
            state = "complete"
        else:
            state = "died" if any(row["died"] for row in files) else "open"
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
            "began_us": min(row["t_us"] for row in files) + ahead_us,
            "ended_us": max(row["t_last_us"] for row in files) + ahead_us,
        }
    for key, after in successors(runs).items():
        if runs[key]["state"] == "open" and after["began_us"] >= runs[key]["ended_us"]:
            runs[key]["state"] = "died"
    return runs


def successors(runs: dict[Run, Row]) -> dict[Run, Row]:
    """Return, for each run but the last of its node, the next run of that node."""
    in_time = sorted(runs.values(), key=lambda row: (row["node"], row["began_us"], row["boot"]))
    return {(run["node"], run["boot"]): after for run, after in pairwise(in_time) if run["node"] == after["node"]}


def fuller(rows: Figures, runs: dict[Run, Row]) -> list[Row]:
    """Return the digests, and of each minute of a run that is not complete its rows, if there are more of them."""
    by_minute: defaultdict[tuple[str, str, int], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    kept = []
    for row in rows["digest"]:
        if runs[row["node"], row["boot"]]["state"] == "complete":
            kept.append(row)
        else:
            by_minute[row["node"], row["boot"], row["minute"]][0].append(row)
    for row in rows["delivery"]:
        if runs[row["node"], row["boot"]]["state"] != "complete":
            by_minute[row["node"], row["boot"], row["t_us"] // MINUTE_US][1].append(row)
    for digests, delivery in by_minute.values():
        if len(delivery) <= sum(row["count"] for row in digests if row["fate"] != Fate.MATCHED):
            kept += digests
            continue
        kept += [row | {"count": 1} for row in delivery]
        kept += [
            row | {"fate": Fate.MATCHED, "cause": 0, "count": row["copies"]}
            for row in delivery
            if row["fate"] == Fate.PUBLISHED
        ]
    return [row for row in kept if row["count"]]


def clocks_of(segments: list[Row], anchors: list[Row]) -> dict[Run, list[tuple[int, int]]]:
    """Return the pieces of every run's clock: the monotonic instant they begin, and how far Unix time is ahead."""
    clocks: dict[Run, list[tuple[int, int]]] = {}
    readings: defaultdict[Run, dict[int, int]] = defaultdict(dict)
    for row in (*segments, *anchors):
        clock = readings[row["node"], row["boot"]]
        clock[row["t_us"]] = max(row["unix_us"], clock.get(row["t_us"], row["unix_us"]))
    for run, found in readings.items():
        usable = sorted(reading for reading in found.items() if reading[1] >= SET_SINCE_US) or sorted(found.items())
        pieces = [(-ALWAYS_US, usable[0][1] - usable[0][0])]
        for (before_us, unix_before_us), (t_us, unix_us) in pairwise(usable):
            ahead_us = unix_us - t_us
            if abs(ahead_us - (unix_before_us - before_us)) > 500_000:
                pieces.append((before_us + (t_us - before_us + 1) // 2, ahead_us))
        clocks[run] = pieces
    return clocks


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
            if row["fate"] in ENDS[:-1] and row["cause"] != Cause.HANDED_OVER
        )
        ended = set(ends) | {(row["subscriber"], row["filter"]) for row in rows if row["fate"] == Fate.QUEUED}
        copies = sum(row["copies"] for row in rows)
        step = rows[0]["sample_qos0"]
        sampled = step > 0 and message % step == 0
        uncopied = bool(published) and copies == 0
        found = {"lost": 0, "unaccounted": 0, "duplicate": 0, "spurious": 0}
        if published and sampled:
            found["lost"] = max(0, copies - len(ended))
            found["unaccounted"] = int(uncopied and not filtered)
        found["duplicate"] = sum(ends.values()) - len(ends) + max(0, len(published) - 1)
        found["spurious"] = max(0, len(ended) - copies) + max(0, filtered - uncopied)
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


def audit_of(runs: dict[Run, Row], digests: list[Row], flows: list[Row], messages: list[Row]) -> list[Row]:
    """Return runs with their losses and duplicates: see `measures.audit`."""
    by_run: defaultdict[Run, Counter[str]] = defaultdict(Counter)
    for row in digests:
        fate, count, counts = row["fate"], row["count"], by_run[row["node"], row["boot"]]
        counts["published"] += count * (fate == Fate.PUBLISHED)
        counts["filtered"] += count * (fate == Fate.FILTERED)
        counts["made"] += count * (fate == Fate.MATCHED)
        counts["ended"] += count * (fate in ENDS)
        counts["resumed"] += count * (fate == Fate.MATCHED and row["origin"] == MessageOrigin.RESUMED)
    following = successors(runs)
    flows_by_run, messages_by_run = grouped(flows), grouped(messages)
    audited: list[Row] = []
    for key, run in runs.items():
        mine = flows_by_run[key]
        counts = by_run[key]
        found: Counter[str] = Counter()
        for finding in messages_by_run[key]:
            found[finding["finding"]] += finding["count"]
        missing = max(sum(flow["lost"] for flow in mine), found["lost"] + found["unaccounted"])
        surplus = max(sum(flow["duplicated"] for flow in mine), found["duplicate"] + found["spurious"])
        complete = run["state"] == "complete"
        proven = 0 if key == ("", "") else found["duplicate"]
        after = following.get(key) if run["state"] == "died" else None
        resumed = 0 if after is None else by_run[after["node"], after["boot"]]["resumed"]
        audited.append(
            run
            | {name: counts[name] for name in ("published", "filtered", "made", "ended", "resumed")}
            | {
                "lost": missing if complete else 0,
                "duplicated": surplus if complete else proven,
                "open": 0 if complete else max(0, max(0, counts["made"] - counts["ended"]) - resumed),
            }
        )
    return audited


def grouped(rows: list[Row]) -> defaultdict[Run, list[Row]]:
    """Return *rows* by run."""
    runs: defaultdict[Run, list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["node"], row["boot"]].append(row)
    return runs


def states_of(audit: list[Row]) -> list[Row]:
    """Return the sums over all runs by state."""
    sums = ("records", "lost", "duplicated", "open")
    return [
        {"state": state, "runs": sum(row["state"] == state for row in audit)}
        | {name: sum(row[name] for row in audit if row["state"] == state) for name in sums}
        for state in {row["state"] for row in audit}
    ]


def first_of(rows: list[Row], runs: dict[Run, Row], group: tuple[str, ...], order: tuple[str, ...]) -> list[Row]:
    """Return the first `NAMED` rows of every group, with the state of their run and the size of the group."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: tuple(row[name] for name in order)):
        groups[tuple(row[name] for name in group)].append(row)
    return [
        row | {"state": runs[row["node"], row["boot"]]["state"], "total": len(members)}
        for members in groups.values()
        for row in members[:NAMED]
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
        if row["fate"] == Fate.DELIVERED and not row["subscriber"].startswith("gateway:"):
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


def throughput_of(rows: Figures, runs: dict[Run, Row], clocks: dict[Run, list[tuple[int, int]]]) -> list[Row]:
    """Count events by time step: see `measures.throughput`."""
    sampled = any(run["sample_qos0"] != 1 for run in runs.values() if run["records"])
    if sampled:
        events = [(row, row["minute"] * 60_000_000, row["count"]) for row in rows["digest"]]
    else:
        events = [(row, row["t_us"], 1) for row in rows["delivery"]]
    timed = [
        ((t_us + ahead_at(clocks[row["node"], row["boot"]], t_us)) // 1_000_000, row["fate"], count)
        for row, t_us, count in events
        if row["fate"] in SHOWN
        and not row["subscriber"].startswith("gateway:")
        and (row["fate"] != Fate.PUBLISHED or row["origin"] in FIRST)
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


def ahead_at(pieces: list[tuple[int, int]], t_us: int) -> int:
    """Return how far Unix time was ahead at *t_us*."""
    return [ahead_us for begun_us, ahead_us in pieces if begun_us <= t_us][-1]


def selectivity_of(filters: list[Row]) -> list[Row]:
    """Return matched and evaluated messages per subscription: see `measures.selectivity`."""
    rows = totals(filters, ("node", "subscriber", "filter"), ("evaluated", "matched"))
    return [row | {"ratio": row["matched"] / row["evaluated"] if row["evaluated"] else None} for row in rows]


def parties_of(digests: list[Row], party: str, fates: tuple[Fate, ...]) -> list[Row]:
    """Return counts by fate, per client."""
    ordered = [fate for fate in (Fate.PUBLISHED, Fate.FILTERED, Fate.MATCHED, *ENDS) if fate in fates]
    names = {fate: "made" if fate is Fate.MATCHED else fate.name.lower() for fate in ordered}
    counted = [
        row
        | {
            name: row["count"]
            * (row["fate"] == fate and (fate not in (Fate.PUBLISHED, Fate.FILTERED) or row["origin"] in FIRST))
            for fate, name in names.items()
        }
        | {"resumed": row["count"] * (row["fate"] == Fate.MATCHED and row["origin"] == MessageOrigin.RESUMED)}
        for row in digests
    ]
    parties = totals(counted, ("node", party), (*names.values(), "resumed"))
    for row in parties:
        resumed = row.pop("resumed")
        row["queued"] = max(0, row["queued"] - resumed)
        row["made"] = max(row["made"] - resumed, row["delivered"] + row["expired"] + row["dropped"])
    return parties
