"""`edgebroker place`: which publishers should be at another gateway of the federation, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from edgebroker.cli.display import aligned, count, octets, shortened, span
from edgebroker.cli.http_client import GatewayOptions, gateway_options, get_json
from edgebroker.cli.parameters import examples

LIMIT: Final = 100
HEADING: Final = ("PUBLISHER", "AT", "BETTER AT", "DELAY", "GATEWAYS ENTERED", "UPLINKS/MIN", "WAY", "SESSIONS", "AGE")
REASONS: Final = {
    "best": "its gateway is the best one",
    "gain": "it would gain too little",
    "partial": "a gateway did not answer",
    "detours": "too many of its messages were on a detour",
    "recent": "it has moved a short time ago",
    "excluded": "relocation.exclude names it",
    "unseen": "too little is known of it yet",
}


@click.group("place")
def command() -> None:
    """Look at which publishers should be at another gateway of the federation."""


@command.command(
    "plan",
    short_help="Show which publishers should be at another gateway, and why.",
    epilog=examples("edgebroker place plan", "edgebroker place plan --all --json"),
)
@click.option("--all", "is_all", is_flag=True, help="Show the publishers of every gateway of the federation.")
@click.option(
    "--limit", type=click.IntRange(0, 1_000), default=LIMIT, show_default=True, help="Publishers in the list."
)
@gateway_options("For programs: the answer of /place as it is.")
def plan(gateway: GatewayOptions, as_json: bool, is_all: bool, limit: int) -> None:
    """Show which publishers of a running gateway should be at another one, those that gain most first.

    DELAY is the mean time from a publisher to its readers, now and after the move; GATEWAYS ENTERED counts them for one
    message, the mean; UPLINKS/MIN are the bytes of payloads that cross from site to site in a minute. WAY is how the
    client gets there: reconnect, if its operator lets it connect to the other gateway, or none. SESSIONS have been
    recorded of it, and AGE ago the last one that counts.

    With --all the gateway asks all others over its links, and each names 50 publishers at most.

    Exit code 0 if the gateway answers, 1 if relocation.mode is "off" there, or with --all if another one does not
    answer; 2 if the gateway does not answer or has no peers.
    """
    answer = get_json(gateway.endpoint(), "/place", all="yes" if is_all else "no", limit=limit)
    click.echo(json.dumps(answer) if as_json else "\n".join(_lines(answer)))
    is_off = all(one["mode"] == "off" for one in answer["gateways"])
    sys.exit(1 if is_off or answer["unreached"] else 0)


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yields lines for people."""
    gateways = answer["gateways"]
    rows = [(one["name"], row) for one in gateways for row in one["proposals"]]
    if rows:
        yield from aligned([HEADING, *(_cells(name, row) for name, row in rows)])
        yield ""
    for one in gateways:
        if one["mode"] == "off":
            yield f'{one["name"]}: relocation.mode is "off"'
            continue
        share = f"{count(one['proposed'])} of {count(one['publishers'])} publishers should be elsewhere"
        yield f"{one['name']}: {share} ({one['priority']} first, weight {one['weight']}, gain {one['gain_min']} %)"
        if one["proposed"] > len(one["proposals"]):
            yield f"  {count(len(one['proposals']))} of them are shown"
        for name, number in one["stays"].items():
            if number:
                yield f"  {count(number)} stay: {REASONS.get(name, name)}"
        if one.get("untracked"):
            yield f"  {count(one['untracked'])} were not looked at: there are too many"
    for one in answer["unreached"]:
        yield f"{one['name']} is missing: {one['reason']}"


def _cells(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    delay, load, confidence = row["delay_ms"], row["load"], row["confidence"]
    here = sum(one["bytes_per_minute"]["here"] for one in row["uplinks"])
    there = sum(one["bytes_per_minute"]["there"] for one in row["uplinks"])
    unusable = f" ({confidence['unusable']} unusable)" if confidence["unusable"] else ""
    return (
        shortened(row["client"], 40),
        name,
        row["to"],
        f"{delay['here']:.1f} -> {delay['there']:.1f} ms",
        f"{load['here']:.2f} -> {load['there']:.2f}",
        f"{octets(here)} -> {octets(there)}",
        row["way"],
        f"{confidence['sessions']}{unusable}",
        span(confidence["age_s"]),
    )
