"""`edgebroker outbox`: shows what waits for a peer of a running gateway, and discards it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.display import aligned, count, octets, shortened, span
from edgebroker.cli.http_client import GatewayOptions, gateway_options, get_json, post_json
from edgebroker.cli.parameters import examples

LIMIT: Final = 20


@click.group("outbox")
def command() -> None:
    """Look at what waits for a peer of a running gateway, and discard it."""


@command.command(
    "list",
    short_help="Show how much waits for a peer, and what is sent first.",
    epilog=examples("edgebroker outbox list gw-yard"),
)
@click.argument("peer")
@click.option("--limit", type=click.IntRange(0, 1_000), default=LIMIT, show_default=True, help="Messages in the list.")
@gateway_options()
def list_(peer: str, limit: int, gateway: GatewayOptions, as_json: bool) -> None:
    """Show how much waits for PEER, how much may, and the messages that are sent first, without their payloads.

    Most of a long outbox is on the disk; what is there is counted and not listed. Exit code 1 if nothing waits.
    """
    answer = get_json(gateway.endpoint(), "/outbox", peer=peer, limit=limit)
    click.echo(json.dumps(answer) if as_json else "\n".join(_listed(answer)))
    sys.exit(0 if answer["waiting"] else 1)


@command.command(
    "discard",
    short_help="Discard all that waits for a peer.",
    epilog=examples("edgebroker outbox discard gw-yard --yes"),
)
@click.argument("peer")
@click.option("--yes", is_flag=True, help="Discard it without asking.")
@gateway_options()
def discard(peer: str, yes: bool, gateway: GatewayOptions, as_json: bool) -> None:
    """Discard all that waits for PEER, such as one that never comes back.

    It was acknowledged to its publishers, and the readers behind PEER never get it: it is counted as dropped, with the
    cause `discarded`. A connection with PEER ends for a moment. Exit code 1 if nothing waited.
    """
    endpoint = gateway.endpoint()
    if not yes:
        waiting = get_json(endpoint, "/outbox", peer=peer, limit=0)
        question = f"{count(waiting['waiting'])} messages, {octets(waiting['bytes'])}, wait for {peer}"
        if not sys.stdin.isatty():
            raise Refused(f"{question}; --yes discards them")
        click.confirm(f"{question}: discard them?", abort=True, err=True)
    answer = post_json(endpoint, "/outbox", do="discard", peer=peer)
    click.echo(json.dumps(answer) if as_json else f"{count(answer['discarded'])} discarded")
    sys.exit(0 if answer["discarded"] else 1)


def _listed(answer: dict[str, Any]) -> Iterator[str]:
    """Yields lines for people."""
    rows = [("TOPIC", "BYTES", "EXPIRES IN", "QOS", "PUBLISHER")]
    for message in answer["messages"]:
        expires_in_s = message["expires_in_s"]
        rows.append(
            (
                shortened(message["topic"], 60),
                octets(message["bytes"]),
                "-" if expires_in_s is None else span(expires_in_s),
                str(message["qos"]),
                shortened(message["publisher"], 40),
            )
        )
    if answer["messages"]:
        yield from aligned(rows)
    state = "up" if answer["up"] else "down"
    policy = "refused" if answer["full"] == "refuse" else "dropped"
    yield (
        f"{count(answer['waiting'])} messages, {octets(answer['bytes'])}, wait for {answer['peer']}, which is {state};"
        f" {count(answer['on_disk'])} of them on the disk alone"
    )
    yield f"{count(answer['messages_max'])} messages and {octets(answer['bytes_max'])} may wait; more is {policy}"
    if answer["dropped"]:
        yield "dropped: " + ", ".join(f"{count(number)} {cause}" for cause, number in answer["dropped"].items())
