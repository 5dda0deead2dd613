"""`edgebroker links`: shows the links of a running gateway to its peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from edgebroker.cli.display import count, octets
from edgebroker.cli.http_client import GatewayOptions, gateway_options, get_json
from edgebroker.cli.parameters import examples

HEADING = ("PEER", "STATE", "LINKS", "ROUND TRIP", "CLOCK", "WAITING", "BYTES", "INDEX", "WANTS", "DROPPED")


ALL_HEADING = ("GATEWAY", "PEER", "STATE", "ROUND TRIP", "CLOCK", "WAITING", "BYTES", "DROPPED")


@click.command(
    "links", epilog=examples("edgebroker links", "edgebroker links --http gateway-3:9883", "edgebroker links --all")
)
@click.option("--all", "is_all", is_flag=True, help="Show the links of every gateway of the federation.")
@gateway_options("For programs: the answer of /links as it is.")
def command(gateway: GatewayOptions, as_json: bool, is_all: bool) -> None:
    """Show the links of a running gateway to its peers: which are up, what waits for each, and what was dropped.

    INDEX is the congestion index since somebody last asked: (1 + entered) / (1 + left), times what waits. WANTS is what
    the peer is sent: the filters behind it in the same site, and how many of our topic prefixes another site wants. A
    line below tells of peers that send us more than our site wants, because not all its filters fit into the answers.

    With --all the gateway asks all others over its links; those that do not answer within 3 s are listed.

    Exit code 0 if all are up, 1 if one is not or a gateway is not reached, 2 if the gateway does not answer or has no
    peers.
    """
    if is_all:
        answer = get_json(gateway.endpoint(), "/links", all="yes")
        click.echo(json.dumps(answer) if as_json else "\n".join(federation_lines(answer)))
        are_up = all(row["up"] for one in answer["gateways"] for row in one["links"])
        sys.exit(0 if are_up and not answer["unreached"] else 1)
    answer = get_json(gateway.endpoint(), "/links")
    click.echo(json.dumps(answer) if as_json else "\n".join(link_lines(answer)))
    sys.exit(0 if all(row["up"] for row in answer["links"]) else 1)


def link_lines(answer: dict[str, Any]) -> list[str]:
    """Returns lines for people: the gateway, a row for each peer, and why links are down."""
    lines = [f"{answer['name']} of {answer['federation']}, {'with' if answer['tls'] else 'without'} TLS", ""]
    lines += _table([HEADING, *map(_cells, answer["links"])])
    lines += [f"{row['peer']}: {row['reason']}" for row in answer["links"] if not row["up"] and row["reason"]]
    lines += [f"{row['peer']}: {row['twins']}" for row in answer["links"] if row.get("twins")]
    lines += [line for row in answer["links"] for line in _inexact(row)]
    lines += [
        f"{entry['for']}: too much waits for it at {entry['at']}; what it wants is refused until there is room"
        for entry in answer["crowded"]
    ]
    return lines


def federation_lines(answer: dict[str, Any]) -> list[str]:
    """Returns lines for people: a row for each end of each link, why links are down, and who is not reached."""
    rows = [(one["name"], row) for one in answer["gateways"] for row in one["links"]]
    gateways, unreached = answer["gateways"], answer["unreached"]
    lines = [f"{answer['federation']}: {len(gateways)} of {len(gateways) + len(unreached)} gateways answer", ""]
    lines += _table([ALL_HEADING, *((name, *_short_cells(row)) for name, row in rows)])
    lines += [f"{name} to {row['peer']}: {row['reason']}" for name, row in rows if not row["up"] and row["reason"]]
    lines += [f"{one['name']}: {one['left_out']} more links, which are up" for one in gateways if one.get("left_out")]
    for one in unreached:
        reasons = [f"{name}: {reason}" if reason else name for name, reason in one["reasons"].items()]
        lines.append(f"{one['name']} is not reached" + (f" ({'; '.join(reasons)})" if reasons else ""))
    return lines


def _table(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _short_cells(row: dict[str, Any]) -> Sequence[str]:
    trip, offset = row["round_trip_ms"], row["offset_ms"]
    return (
        row["peer"],
        "refused" if row["refused"] else "up" if row["up"] else "down",
        "-" if trip is None else f"{trip:.1f} ms",
        "-" if offset is None else f"{offset:+.1f} ms",
        count(row["waiting"]),
        octets(row["waiting_bytes"]),
        ", ".join(f"{number} {cause}" for cause, number in row["dropped"].items()) or "-",
    )


def _inexact(row: dict[str, Any]) -> list[str]:
    """Returns a line about a peer that was not told exactly what our site wants."""
    answers = row["routes"]["answers"]
    if not answers["widened"] and not answers["anything"]:
        return []
    total = count(sum(answers.values()))
    return [
        f"{row['peer']}: of {total} advertisements, it was told exactly what we want of {count(answers['exact'])}, "
        f"something wider of {count(answers['widened'])}, and anything of {count(answers['anything'])}"
    ]


def _wants(row: dict[str, Any]) -> str:
    """Returns what the peer is sent: the filters behind it, or how many of our topic prefixes its site wants."""
    routes, wanted = row["routes"], []
    if "aLink" in row["links"]:
        interests = routes["interests"]
        wanted.append("anything" if interests is None else f"{count(interests)} filters")
    if routes["publishers"] is not None:
        wanted.append(f"{count(routes['publishers_wanted'])} of {count(routes['publishers'])} prefixes")
    return ", ".join(wanted) or "-"


def _cells(row: dict[str, Any]) -> Sequence[str]:
    state = "refused" if row["refused"] else "down" if not row["up"] else "congested" if row["congested"] else "up"
    dropped = ", ".join(f"{number} {cause}" for cause, number in row["dropped"].items())
    trip, offset = row["round_trip_ms"], row["offset_ms"]
    return (
        row["peer"],
        state,
        ", ".join(row["links"]),
        "-" if trip is None else f"{trip:.1f} ms",
        "-" if offset is None else f"{offset:+.1f} ms",
        count(row["waiting"]),
        octets(row["waiting_bytes"]),
        count(row["congestion_index"]),
        _wants(row),
        dropped or "-",
    )
