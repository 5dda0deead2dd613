"""`edgebroker announce`: announces devices to Home Assistant by discovery messages, from a TOML file.

docs/recipes.md shows an example.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

import edgebroker
from edgebroker.cli import Refused
from edgebroker.cli.client_options import ClientOptions, client_options, client_options_of, run
from edgebroker.cli.mqtt_client import connect
from edgebroker.cli.parameters import ExistingPath, examples
from edgebroker.errors import TopicInvalid
from edgebroker.limits import OPERATOR_FILE_BYTES_MAX
from edgebroker.topics import parse_topic_name

KINDS: Final = ("sensor", "binary_sensor")
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
PATH: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[0-9]+\])*", re.ASCII)
VALUES_MAX: Final = 1_000  # in one file; a gateway retains every announcement

DEVICE_KEYS: Final = {"id": str, "name": str, "topic": str, "status": str, "values": dict, "maker": str, "model": str}
VALUE_KEYS: Final = {
    "name": str, "kind": str, "unit": str, "class": str, "state_class": str, "path": str, "on": str, "off": str
}  # fmt: skip
STATE_CLASSES: Final = ("measurement", "measurement_angle", "total", "total_increasing")
"""State classes of which Home Assistant keeps long-term statistics."""
ORIGIN: Final = {"name": "edgebroker", "sw_version": edgebroker.__version__}
"""The origin of a discovery message, which Home Assistant logs."""
GATEWAY_KEYS: Final = {"id": str, "name": str, "sys": str}
OPTIONAL_KEYS: Final = (("unit", "unit_of_measurement"), ("class", "device_class"), ("state_class", "state_class"))
FILE_KEYS: Final = {"device": list, "gateway": dict}

GATEWAY_VALUES: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "clients/connected": ("Clients", {"state_class": "measurement"}),
    "load/messages/received/1min": ("Messages per minute", {"state_class": "measurement"}),
    "load/publish/dropped/1min": ("Dropped per minute", {"state_class": "measurement"}),
    "queue/messages": ("Waiting messages", {"state_class": "measurement"}),
}
"""Topic below $SYS/broker -> name for people, and further keys of the discovery message."""


def announcements(content: Mapping[str, Any], prefix: str) -> dict[str, bytes]:
    """Returns topic -> payload of every discovery message. Raises Refused, with the place and the most similar key."""
    check_table(content, FILE_KEYS, "the file")
    messages: dict[str, bytes] = {}
    for number, device in enumerate(content.get("device", []), 1):
        where = f"[[device]] {number}"
        check_table(device, DEVICE_KEYS, where, needed=("id", "topic", "values"))
        for kind, value, message in device_messages(device, where):
            add_message(messages, f"{prefix}/{kind}/{device['id']}/{value}/config", message, where)
    if "gateway" in content:
        gateway = content["gateway"]
        check_table(gateway, GATEWAY_KEYS, "[gateway]", needed=("id",))
        for value, message in gateway_messages(gateway):
            add_message(messages, f"{prefix}/sensor/{gateway['id']}/{value}/config", message, "[gateway]")
    if not messages:
        raise Refused("the file names neither a [[device]] with values nor a [gateway]: nothing to announce")
    return messages


def device_messages(device: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields (kind, identifier, discovery message) for each value of a device."""
    device_info = {"identifiers": [device["id"]], "name": device.get("name", device["id"])}
    device_info |= {
        home_assistant_key: device[key]
        for key, home_assistant_key in (("maker", "manufacturer"), ("model", "model"))
        if key in device
    }
    for key, value in device["values"].items():
        place = f"{where}, values.{key}"
        check_table(value, VALUE_KEYS, place)
        kind = value.get("kind", "sensor")
        if kind not in KINDS:
            raise Refused(f"{place}: kind is {kind!r}; write {' or '.join(KINDS)}")
        statistics = value.get("state_class", STATE_CLASSES[0])
        if statistics not in STATE_CLASSES or (kind != "sensor" and "state_class" in value):
            raise Refused(f"{place}: state_class is {statistics!r}; write {', '.join(STATE_CLASSES)}, of a sensor")
        identifier = re.sub(r"[^A-Za-z0-9_-]", "_", key)
        message: dict[str, Any] = {
            "name": value.get("name", key.replace("_", " ").capitalize()),
            "unique_id": f"{device['id']}-{identifier}",
            "state_topic": device["topic"],
            "value_template": template(value.get("path", key), kind),
            "device": device_info,
        }
        message |= {home_assistant_key: value[key] for key, home_assistant_key in OPTIONAL_KEYS if key in value}
        if kind == "binary_sensor":
            # In lower case, as the template's result.
            message |= {"payload_on": value.get("on", "true").lower(), "payload_off": value.get("off", "false").lower()}
        if "status" in device:
            message |= {
                "availability_topic": device["status"],
                # A plain text, or an object with `status`, as `edgedevices fleet --will` publishes it.
                "availability_template": "{{ value_json.status if value_json is mapping else value }}",
            }
        yield kind, identifier, message


def gateway_messages(gateway: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (identifier, discovery message) for the $SYS topics of a gateway."""
    device_info = {
        "identifiers": [gateway["id"]],
        "name": gateway.get("name", gateway["id"]),
        "manufacturer": "edgebroker",
    }
    for topic, (name, extra) in GATEWAY_VALUES.items():
        identifier = topic.replace("/", "-")
        yield (
            identifier,
            {
                "name": name,
                "unique_id": f"{gateway['id']}-{identifier}",
                "state_topic": f"{gateway.get('sys', '$SYS/broker')}/{topic}",
                "device": device_info,
                **extra,
            },
        )


def template(path: str, kind: str) -> str:
    """Returns the template that extracts *path* from a JSON payload; a path with special characters is a single key."""
    inner = f"value_json.{path}" if PATH.fullmatch(path) else f"value_json[{json.dumps(path)}]"
    return f"{{{{ {inner} | lower }}}}" if kind == "binary_sensor" else f"{{{{ {inner} }}}}"


def add_message(messages: dict[str, bytes], topic: str, message: Mapping[str, Any], where: str) -> None:
    """Adds a discovery message. Raises Refused for an invalid topic, a second message of the same topic, or too
    many.
    """
    for used_topic in (topic, message["state_topic"], message.get("availability_topic", topic)):
        try:
            parse_topic_name(used_topic)
        except TopicInvalid as error:
            raise Refused(f"{where}: {error}") from None
    if topic in messages:
        raise Refused(f"{where}: {topic} is announced twice: give every device and value a name of its own")
    if len(messages) >= VALUES_MAX:
        raise Refused(f"more than {VALUES_MAX:,} values in one file: write several")
    messages[topic] = json.dumps({**message, "origin": ORIGIN}, ensure_ascii=False).encode()


def check_table(table: object, known: Mapping[str, type], where: str, needed: tuple[str, ...] = ()) -> None:
    """Raises Refused unless *table* has only *known* keys with values of their types, and all *needed* keys."""
    if not isinstance(table, Mapping):
        raise Refused(f"{where} is no table")
    for key, value in table.items():
        if key not in known:
            nearest = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known)}"
            raise Refused(f"{where}: no key {key!r}; {hint}")
        if not isinstance(value, known[key]):
            raise Refused(
                f"{where}: {key} is no {'table' if known[key] is dict else 'list' if known[key] is list else 'text'}"
            )
    for key in needed:
        if key not in table:
            raise Refused(f"{where}: {key} is missing")
    identifier = table.get("id")
    if identifier is not None and not ID.fullmatch(identifier):
        raise Refused(f"{where}: id is {identifier!r}; write 1 to 64 letters, digits, '_' and '-'")


@click.command(
    "announce",
    short_help="Announce devices to Home Assistant.",
    epilog=examples(
        "edgebroker announce devices.toml --dry-run",
        "edgebroker announce devices.toml -h gateway.local -u anna --password-file anna.txt",
    ),
)
@click.argument("file", type=ExistingPath(dir_okay=False))
@client_options
@click.option("--prefix", default="homeassistant", show_default=True, help="Where Home Assistant listens.")
@click.option("--withdraw", is_flag=True, help="Take the announcements of the file away again.")
@click.option("--dry-run", is_flag=True, help="Print what would be published; nobody is connected to.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON at the end.")
def command(file: Path, prefix: str, withdraw: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Announce the devices and values in FILE (TOML), and the gateway's own figures, to Home Assistant.

    Each announcement is a retained message; to say it again changes nothing.
    """
    messages = announcements(read(file), prefix)
    if withdraw:
        messages = dict.fromkeys(messages, b"")
    if dry_run:
        for topic, payload in messages.items():
            click.echo(f"{topic} {payload.decode()}".rstrip())
        return
    run(publish(client_options_of(options), messages, withdraw, as_json))


def read(file: Path) -> dict[str, Any]:
    """Returns the content of a TOML file. Raises Refused."""
    if file.stat().st_size > OPERATOR_FILE_BYTES_MAX:
        raise Refused(f"{file} has more than {OPERATOR_FILE_BYTES_MAX:,} bytes")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{file}: {error}") from None


async def publish(peer: ClientOptions, messages: dict[str, bytes], withdraw: bool, as_json: bool) -> int:
    """Publishes *messages*, retained, one after the other. Raises the errors of `edgebroker pub`."""
    async with connect(peer.transport, peer.connect_packet()) as client:
        for topic, payload in messages.items():
            await client.publish(topic, payload, qos=1, retain=True)
    if as_json:
        click.echo(json.dumps({"withdrawn" if withdraw else "announced": list(messages)}))
    else:
        click.echo(f"{len(messages)} {'withdrawn' if withdraw else 'announced'}")
    return 0


__all__ = ["command"]
