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


@click.command("links", epilog=examples("edgebroker links", "edgebroker links --http gateway-3:9883"))
@gateway_options("For programs: the answer of /links as it is.")
def command(gateway: GatewayOptions, as_json: bool) -> None:
    """Show the links of a running gateway to its peers: which are up, what waits for each, and what was dropped.

    INDEX is the congestion index since somebody last asked: (1 + entered) / (1 + left), times what waits. WANTS is what
    the peer is sent: the filters behind it in the same site, and how many of our publishers another site wants. A line
    below tells of peers that send us more than our site wants, because not all of its filters fit into the answers.

    Exit code 0 if all are up, 1 if one is not, 2 if the gateway does not answer or has no peers.
    """
    answer = get_json(gateway.endpoint(), "/links")
    click.echo(json.dumps(answer) if as_json else "\n".join(link_lines(answer)))
    sys.exit(0 if all(row["up"] for row in answer["links"]) else 1)


def link_lines(answer: dict[str, Any]) -> list[str]:
    """Returns lines for people: the gateway, a row for each peer, and why links are down."""
    cells = [HEADING, *map(_cells, answer["links"])]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADING))]
    lines = [f"{answer['name']} of {answer['federation']}, {'with' if answer['tls'] else 'without'} TLS", ""]
    lines += ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    lines += [f"{row['peer']}: {row['reason']}" for row in answer["links"] if not row["up"] and row["reason"]]
    lines += [f"{row['peer']}: {row['twins']}" for row in answer["links"] if row.get("twins")]
    lines += [line for row in answer["links"] for line in _inexact(row)]
    lines += [
        f"{entry['for']}: too much waits for it at {entry['at']}; what it wants is refused until there is room"
        for entry in answer["crowded"]
    ]
    return lines


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
    """Returns what the peer is sent: the filters behind it, or how many of our publishers its site wants."""
    routes, wanted = row["routes"], []
    if "aLink" in row["links"]:
        interests = routes["interests"]
        wanted.append("anything" if interests is None else f"{count(interests)} filters")
    if routes["publishers"] is not None:
        wanted.append(f"{count(routes['publishers_wanted'])} of {count(routes['publishers'])} publishers")
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
