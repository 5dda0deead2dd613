"""`edgebroker sub`: prints the messages of subscriptions, by topic and by content."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import Any, Final

import click

from edgebridge.session.subscription_text import SHARE_PREFIX, WHERE_PROPERTY, encode_subscription
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import Publish, SubAck, SubscriptionOption
from edgebridge.wire.properties import Properties, Property, user_properties
from edgebridge.wire.reasons import FAILURE
from edgebroker.cli.client_options import EXIT_REFUSED, ClientOptions, client_options, client_options_of, run, say
from edgebroker.cli.mqtt_client import MqttClient, connect, reason_text
from edgebroker.errors import FilterInvalid, FilterTooComplex
from edgebroker.filters import Filter

SESSION_EXPIRY_S: Final = 3600
FILTER_SUPPORT: Final = "filter"
"""User property of CONNACK by which a broker announces content filters (docs/filters.md, P-6)."""


@click.command("sub", short_help="Subscribe and print messages.")
@client_options
@click.option("-t", "--topic", "topics", multiple=True, required=True, help="A topic filter; may be repeated.")
@click.option("--where", metavar="EXPR", help="Only messages whose content satisfies EXPR, like: temp > 30")
@click.option(
    "-q", "--qos", default=0, type=click.IntRange(0, 2), show_default=True, help="Highest quality of service."
)
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before the payload.")
@click.option("-C", "--count", type=click.IntRange(1), help="End after this many messages.")
@click.option(
    "-W", "--seconds", "--wait", "wait_s", type=click.FloatRange(0), metavar="SECONDS", help="End after this long."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message.")
@click.option("--raw", is_flag=True, help="Send control characters to a terminal as they are.")
@click.option("-c", "--keep-session", is_flag=True, help="Resume the session of -i ID, and leave it when ending.")
@click.option(
    "--session-expiry", type=click.IntRange(0), metavar="SECONDS", help="With -c: how long it is kept. [3600]"
)
def command(**options: Any) -> None:
    """Print each message of the topics as one line, until interrupted.

    On a terminal, control characters are shown as \\x1b and the like, but for line ends and tabs: whoever publishes
    could command the terminal otherwise. Files and pipes get every byte as it came.

    Messages have their own topics: a program that matches topics itself registers its handler for the topic filter of
    -t, without what --where or `$filter/...` adds (docs/recipes.md).

    \b
    edgebroker sub -t 'sensors/#' -v --where "temp > 30 AND site = 'north'"
    """  # noqa: D301 - click reads \b, the character: keep the lines below it as they are
    peer = client_options_of(options)
    if options["keep_session"] and not peer.client_id:
        raise click.UsageError("-c needs -i ID: a session is found again by its client identifier")
    if options["session_expiry"] is not None and not options["keep_session"]:
        raise click.UsageError("--session-expiry needs -c")
    run(_subscribe(peer, **options))


async def _subscribe(
    peer: ClientOptions,
    topics: tuple[str, ...],
    where: str | None,
    qos: int,
    verbose: bool,
    count: int | None,
    wait_s: float | None,
    as_json: bool,
    raw: bool,
    keep_session: bool,
    session_expiry: int | None,
) -> int:
    escapes = not raw and sys.stdout.isatty()
    expiry_s = (SESSION_EXPIRY_S if session_expiry is None else session_expiry) if keep_session else 0
    if peer.dialect is not V5:
        expiry_s = 0
    async with connect(peer.transport, peer.connect_packet(not keep_session, expiry_s)) as client:
        if where is not None and peer.dialect is V5 and not _supports_filters(client):
            say(f"the broker at {peer.transport} knows no content filters: --where would be ignored")
            return EXIT_REFUSED
        properties: Properties = {}
        filters = list(topics)
        if where is not None and peer.dialect is V5:
            properties = {Property.USER_PROPERTY: [(WHERE_PROPERTY, where)]}
        elif where is not None:
            filters = [_with_filter(where, topic) for topic in topics]
        suback = await client.subscribe([SubscriptionOption(topic, qos) for topic in filters], properties)
        refused = _report_refusals(topics, where, suback)
        if refused:
            return EXIT_REFUSED
        seen = 0
        try:
            async with asyncio.timeout(wait_s):
                async for message in client.messages():
                    _print(message, verbose, as_json, escapes)
                    seen += 1
                    if seen == count:
                        return 0
        except TimeoutError:
            if count is not None:
                say(f"{seen} of {count} messages came in {wait_s:g} s")
                return EXIT_REFUSED
        except BrokenPipeError:
            # The reader of our output has closed it (`| head`). Nothing may be flushed at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _supports_filters(client: MqttClient) -> bool:
    return any(name == FILTER_SUPPORT for name, _ in user_properties(client.connack.properties))


def _with_filter(where: str, topic: str) -> str:
    """Returns *topic* with *where* inside, the form for 3.1.1; behind the group of a shared subscription."""
    if topic.startswith(SHARE_PREFIX):
        group, _, inner = topic.removeprefix(SHARE_PREFIX).partition("/")
        return f"{SHARE_PREFIX}{group}/{encode_subscription(where, inner)}"
    return encode_subscription(where, topic)


def _report_refusals(topics: tuple[str, ...], where: str | None, suback: SubAck) -> bool:
    """Prints which subscriptions failed and why. A 3.1.1 broker gives no reason, so the filter is parsed here."""
    has_refusals = False
    for topic, reason in zip(topics, suback.reasons, strict=False):
        if reason >= FAILURE:
            has_refusals = True
            why = _filter_error(where) if where is not None and not suback.properties else None
            say(f"the broker refused {topic!r}: {why or reason_text(reason, suback.properties)}")
    return has_refusals


def _filter_error(where: str) -> str | None:
    try:
        Filter.parse(where)
    except (FilterInvalid, FilterTooComplex) as error:
        return f"{where!r}, {error}"
    return None


def _print(message: Publish, verbose: bool, as_json: bool, escapes: bool) -> None:
    """Prints one line and flushes: the reader may be waiting for it. *escapes*: with no control character."""
    if as_json:
        line = json.dumps(_as_object(message), ensure_ascii=False).encode()
    else:
        line = message.topic.encode() + b" " + message.payload if verbose else message.payload
    sys.stdout.buffer.write((escaped(line) if escapes else line) + b"\n")
    sys.stdout.buffer.flush()


def escaped(line: bytes) -> bytes:
    """Returns *line* without what a terminal would obey: control characters but line feed and tab, characters that
    change the direction of writing, and bytes that are not UTF-8.
    """
    text = line.decode("utf-8", "backslashreplace")
    shown = "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode() for one in text
    )
    return shown.encode()


def _as_object(message: Publish) -> dict[str, Any]:
    """Returns the message for programs: "payload" if it is UTF-8, otherwise "payload_base64"."""
    try:
        payload = {"payload": message.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(message.payload).decode()}
    return {
        "topic": message.topic,
        **payload,
        "qos": message.qos,
        "retain": message.retain,
        "user_properties": user_properties(message.properties),
    }
