"""`edgebroker pub`: publishes messages from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from edgebridge.wire.dialect import V5
from edgebridge.wire.properties import Properties, Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.cli.client_options import EXIT_REFUSED, ClientOptions, client_options, client_options_of, run, say
from edgebroker.cli.mqtt_client import BrokerRefusal, ConnectionLost, MqttClient, connect
from edgebroker.cli.parameters import ExistingPath
from edgebroker.errors import TopicInvalid
from edgebroker.limits import PACKET_BYTES_MAX
from edgebroker.topics import parse_topic_name


@click.command("pub", short_help="Publish messages.")
@client_options
@click.option("-t", "--topic", required=True, help="The topic to publish to.")
@click.option("-m", "--message", help="The payload, as text.")
@click.option("-f", "--file", type=ExistingPath(dir_okay=False), help="A file as payload.")
@click.option("-l", "--stdin-lines", is_flag=True, help="One message per line of standard input.")
@click.option("-s", "--stdin-file", is_flag=True, help="All of standard input as one message.")
@click.option("-n", "--null-message", is_flag=True, help="An empty payload; with -r it deletes the retained message.")
@click.option("-q", "--qos", default=0, type=click.IntRange(0, 2), show_default=True, help="Quality of service.")
@click.option("-r", "--retain", is_flag=True, help="Let the broker keep the message for later subscribers.")
@click.option("-D", "--user-property", nargs=2, multiple=True, metavar="NAME VALUE", help="MQTT 5; may be repeated.")
@click.option("--count", default=1, type=click.IntRange(1), show_default=True, help="Publish everything this often.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON at the end.")
def command(**options: Any) -> None:
    """Publish to a topic and wait until the broker has taken it (QoS 1 and 2).

    \b
    edgebroker pub -t sensors/a -m '{"temp": 31}'
    edgebroker pub -t sensors/a -q 1 --stdin-lines < readings.jsonl
    """  # noqa: D301 - click reads \b, the character: keep the lines below it as they are
    peer = client_options_of(options)
    sources = [options["message"] is not None, options["file"] is not None]
    if sum([*sources, *(options[name] for name in ("stdin_lines", "stdin_file", "null_message"))]) != 1:
        raise click.UsageError("give one of -m TEXT, -f FILE, -s, --stdin-lines, -n")
    if options["stdin_lines"] and options["count"] > 1:
        raise click.UsageError("--stdin-lines cannot be repeated with --count")
    if options["user_property"] and peer.dialect is not V5:
        raise click.UsageError("-D needs MQTT 5: leave out -V 3.1.1")
    try:
        parse_topic_name(options["topic"])
    except TopicInvalid as error:
        raise click.UsageError(str(error)) from None
    run(_publish(peer, **options))


async def _publish(
    peer: ClientOptions,
    topic: str,
    message: str | None,
    file: Path | None,
    stdin_lines: bool,
    stdin_file: bool,
    null_message: bool,
    qos: int,
    retain: bool,
    user_property: tuple[tuple[str, str], ...],
    count: int,
    as_json: bool,
) -> int:
    del null_message  # implied when there is no other source
    properties: Properties = {Property.USER_PROPERTY: list(user_property)} if user_property else {}
    payload = file.read_bytes() if file else sys.stdin.buffer.read() if stdin_file else (message or "").encode()
    outcomes: Counter[str] = Counter(published=0, acknowledged=0, nobody_subscribed=0, failed=0)

    lost: list[ConnectionLost] = []

    async def publish_one(client: MqttClient, payload: bytes) -> None:
        outcomes["published"] += 1
        try:
            reason = await client.publish(topic, payload, qos, retain, properties)
        except BrokerRefusal as error:
            outcomes["failed"] += 1
            say(str(error))
        except ConnectionLost as error:
            outcomes["failed"] += 1
            lost.append(error)
        else:
            outcomes["acknowledged"] += qos > 0
            outcomes["nobody_subscribed"] += reason is ReasonCode.NO_MATCHING_SUBSCRIBERS

    async with connect(peer.transport, peer.connect_packet()) as client:
        pending: set[asyncio.Task[None]] = set()
        async for message_payload in _lines() if stdin_lines else _repeated(payload, count):
            if len(pending) >= client.window:
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if lost:
                break
            pending.add(asyncio.create_task(publish_one(client, message_payload)))
        await asyncio.gather(*pending)
    if as_json:
        click.echo(json.dumps(outcomes))
    if lost:
        say(str(lost[0]))
    return EXIT_REFUSED if outcomes["failed"] else 0


async def _repeated(payload: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield payload


async def _lines() -> AsyncIterator[bytes]:
    """Yields the lines of standard input, without their ends, as they arrive."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
        for line in sys.stdin.buffer:  # a file never blocks
            yield line.rstrip(b"\r\n")
        return
    reader = asyncio.StreamReader(limit=PACKET_BYTES_MAX)
    pipe = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)  # asyncio closes the pipe at its end
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while line := await reader.readline():
            yield line.rstrip(b"\r\n")
    finally:
        os.set_blocking(sys.stdin.fileno(), True)  # asyncio made it non-blocking, for the shell that shares it, too
