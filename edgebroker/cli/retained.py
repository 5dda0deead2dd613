"""`edgebroker retained`: lists and clears the retained messages of a running gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.display import aligned, count, octets, shortened, span
from edgebroker.cli.http_client import GatewayOptions, gateway_options, get_json, post_json
from edgebroker.cli.parameters import WordChoice, examples

LIMIT: Final = 20
TOPIC_COLUMNS: Final = 60


@click.group("retained")
def command() -> None:
    """Look at the retained messages of a running gateway, and clear them."""


@command.command(
    "list",
    short_help="List the retained messages of this gateway.",
    epilog=examples("edgebroker retained list 'old/#' --sort bytes"),
)
@click.argument("topic_filter", default="#", metavar="[TOPIC_FILTER]")
@click.option("--sort", type=WordChoice(["topic", "bytes", "age"]), default="topic", show_default=True)
@click.option("--limit", type=click.IntRange(0, 1_000), default=LIMIT, show_default=True, help="Messages in the list.")
@gateway_options()
def list_(topic_filter: str, sort: str, limit: int, gateway: GatewayOptions, as_json: bool) -> None:
    """List the retained messages of this gateway, without their payloads: the largest or the oldest first with --sort.

    Other gateways of a federation retain their own, and a new subscriber gets them too; ask each with --http.
    What begins with $ is listed if the filter says so: '$SYS/#'. Payloads come to who subscribes (`edgebroker sub`).
    """
    endpoint = gateway.endpoint()
    answer = get_json(endpoint, "/retained", topic=topic_filter, sort=sort, limit=limit)
    click.echo(json.dumps(answer) if as_json else "\n".join(_listed(answer)))


@command.command("clear", epilog=examples("edgebroker retained clear 'old/#' --yes"))
@click.argument("topic_filter")
@click.option("--yes", is_flag=True, help="Clear all that a filter with wildcards matches, without asking.")
@gateway_options()
def clear(topic_filter: str, yes: bool, gateway: GatewayOptions, as_json: bool) -> None:
    """Clear the retained messages that TOPIC_FILTER matches.

    Each is cleared by an empty retained message, as a client would: who subscribed hears it, and so do the gateways of
    the federation. A topic without wildcards is cleared at all gateways of the site, whichever keeps its message.
    Exit code 1 if there was nothing.
    """
    endpoint = gateway.endpoint()
    if not yes and any(level in ("+", "#") for level in topic_filter.split("/")):
        matched = get_json(endpoint, "/retained", topic=topic_filter, limit=0)["matched"]
        question = f"{count(matched)} retained messages match {topic_filter}"
        if not sys.stdin.isatty():
            raise Refused(f"{question}; --yes clears them")
        click.confirm(f"{question}: clear them?", abort=True, err=True)
    cleared, is_all, is_site_told = 0, False, False
    while not is_all:
        answer = post_json(endpoint, "/retained", do="clear", topic=topic_filter)
        cleared, is_all = cleared + answer["cleared"], answer["is_all"]
        is_site_told = answer["is_site_told"]
    told = "; nothing is kept here, so the other gateways of the site were told to clear it" if is_site_told else ""
    report = {"topic": topic_filter, "cleared": cleared, "is_site_told": is_site_told}
    click.echo(json.dumps(report) if as_json else f"{cleared} cleared{told}")
    sys.exit(0 if cleared or is_site_told else 1)


def _listed(answer: dict[str, Any]) -> Iterator[str]:
    """Yields lines for people."""
    rows = [("TOPIC", "BYTES", "AGE", "EXPIRES IN", "QOS", "PUBLISHER")]
    for message in answer["messages"]:
        expires_in_s = message["expires_in_s"]
        topic = message["topic"]
        rows.append(
            (
                shortened(topic, TOPIC_COLUMNS),
                octets(message["bytes"]),
                span(message["age_s"]),
                "-" if expires_in_s is None else span(expires_in_s),
                str(message["qos"]),
                shortened(message["publisher"], 40),
            )
        )
    if answer["messages"]:
        yield from aligned(rows)
    hidden = answer["matched"] - len(answer["messages"])
    tail = f", {count(hidden)} of them not shown" if hidden and answer["messages"] else ""
    matched = f"{count(answer['matched'])} of {count(answer['retained'])} retained messages match"
    yield f"{matched}: {octets(answer['bytes'])}{tail}"
    if others := answer.get("other_gateways"):
        yield f"this is what this gateway retains; {count(others)} other gateways of its federation retain their own"
