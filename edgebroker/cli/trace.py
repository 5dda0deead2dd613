"""`edgebroker trace`: shows packets and fates of a running gateway, for some clients or topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any

import click

from edgebroker.cli import Refused
from edgebroker.cli.display import plain
from edgebroker.cli.http_client import GatewayOptions, gateway_options, open_response
from edgebroker.cli.parameters import examples

TIMEOUT_S = 15.0  # the gateway sends an empty line every 5 s when nothing happens
ARROWS = {"in": "->", "out": "<-", "fate": "=="}
UNNAMED = ("client", "packet", "fate", "topic")
"""Fields at the beginning of a line, without their names."""
HIDDEN = frozenset({"time", "way", "peer", *UNNAMED})


@click.command(
    "trace",
    epilog=examples("edgebroker trace --client 'pump-*' --seconds 60", "edgebroker trace --topic 'sensors/#' --json"),
)
@click.option("--client", help="Only clients of this name; * stands for anything.")
@click.option("--topic", help="Only messages to topics that match this filter, and their acknowledgements.")
@click.option("--seconds", type=click.IntRange(1, 86_400), default=60, show_default=True, help="End after this long.")
@gateway_options("For programs: one JSON object a line.")
def command(client: str | None, topic: str | None, seconds: int, gateway: GatewayOptions, as_json: bool) -> None:
    """Watch packets and fates as they happen.

    -> is what a client says, <- what it is told, == what becomes of a message. Payloads, user names and passwords are
    not shown. The gateway does not wait for whoever watches: what is too much is counted as a gap. Ctrl-C ends it.
    """
    query: dict[str, str | int] = {"seconds": seconds}
    query |= {name: value for name, value in (("client", client), ("topic", topic)) if value is not None}
    endpoint = gateway.endpoint()
    try:
        with open_response(endpoint, "/trace", query, TIMEOUT_S) as response:
            for line in _lines(response):
                click.echo(json.dumps(line) if as_json else line_text(line))
    except KeyboardInterrupt:
        return


def _lines(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yields the objects of *response* until it ends. Raises Refused if the connection is lost."""
    try:
        while text := response.readline():
            if text.strip():
                yield json.loads(text)
    except (HTTPException, ValueError) as error:
        raise Refused("the gateway has gone") from error


def line_text(line: dict[str, Any]) -> str:
    """Returns one line for people: time, arrow, client, event, and the rest as `name=value`."""
    if line["way"] == "gap":
        return f"... {line['missed']} more were not looked at"

    def is_shown_already(name: str, value: Any) -> bool:
        return name in HIDDEN or (name in ("publisher", "subscriber") and value == party)

    time_of_day = line["time"].partition("T")[2].removesuffix("Z")
    party = line.get("client") or line.get("subscriber") or line.get("publisher") or line.get("peer", "")
    event = line.get("packet") or line["fate"]
    topic = f" {plain(line['topic'])}" if "topic" in line else ""
    rest = "".join(f" {name}={plain(value)}" for name, value in line.items() if not is_shown_already(name, value))
    return f"{time_of_day} {ARROWS[line['way']]} {plain(party)} {event}{topic}{rest}"
