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
from edgebroker.cli.parameters import ExistingPath
from edgebroker.errors import TopicInvalid
from edgebroker.topics import parse_topic_name

KINDS: Final = ("sensor", "binary_sensor")
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
PATH: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[0-9]+\])*", re.ASCII)
VALUES_MAX: Final = 1_000  # of one file; a gateway keeps every announcement

DEVICE_KEYS: Final = {"id": str, "name": str, "topic": str, "status": str, "values": dict, "maker": str, "model": str}
VALUE_KEYS: Final = {
    "name": str, "kind": str, "unit": str, "class": str, "state_class": str, "path": str, "on": str, "off": str
}  # fmt: skip
STATE_CLASSES: Final = ("measurement", "measurement_angle", "total", "total_increasing")
"""What Home Assistant keeps long-term statistics of."""
ORIGIN: Final = {"name": "edgebroker", "sw_version": edgebroker.__version__}
"""Who announces; it stands in Home Assistant's log."""
GATEWAY_KEYS: Final = {"id": str, "name": str, "sys": str}
WORDS: Final = (("unit", "unit_of_measurement"), ("class", "device_class"), ("state_class", "state_class"))
FILE_KEYS: Final = {"device": list, "gateway": dict}

GATEWAY_VALUES: Final[Mapping[str, tuple[str, dict[str, str]]]] = {
    "clients/connected": ("Clients", {"state_class": "measurement"}),
    "load/messages/received/1min": ("Messages per minute", {"state_class": "measurement"}),
    "load/publish/dropped/1min": ("Dropped per minute", {"state_class": "measurement"}),
    "queue/messages": ("Waiting messages", {"state_class": "measurement"}),
}
"""Topic below $SYS/broker -> what people call it, and what Home Assistant should know of it."""


def announcements(given: Mapping[str, Any], prefix: str) -> dict[str, bytes]:
    """Topic -> payload of every discovery message. Raises Refused, with the place and the nearest known word."""
    check(given, FILE_KEYS, "the file")
    found: dict[str, bytes] = {}
    for number, device in enumerate(given.get("device", []), 1):
        where = f"[[device]] {number}"
        check(device, DEVICE_KEYS, where, needed=("id", "topic", "values"))
        for kind, value, said in of_device(device, where):
            put(found, f"{prefix}/{kind}/{device['id']}/{value}/config", said, where)
    if "gateway" in given:
        gateway = given["gateway"]
        check(gateway, GATEWAY_KEYS, "[gateway]", needed=("id",))
        for value, said in of_gateway(gateway):
            put(found, f"{prefix}/sensor/{gateway['id']}/{value}/config", said, "[gateway]")
    if not found:
        raise Refused("the file names neither a [[device]] with values nor a [gateway]: nothing to announce")
    return found


def of_device(device: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, identifier, announcement) of each value of a device."""
    about = {"identifiers": [device["id"]], "name": device.get("name", device["id"])}
    about |= {
        theirs: device[ours] for ours, theirs in (("maker", "manufacturer"), ("model", "model")) if ours in device
    }
    for key, value in device["values"].items():
        place = f"{where}, values.{key}"
        check(value, VALUE_KEYS, place)
        kind = value.get("kind", "sensor")
        if kind not in KINDS:
            raise Refused(f"{place}: kind is {kind!r}; write {' or '.join(KINDS)}")
        statistics = value.get("state_class", STATE_CLASSES[0])
        if statistics not in STATE_CLASSES or (kind != "sensor" and "state_class" in value):
            raise Refused(f"{place}: state_class is {statistics!r}; write {', '.join(STATE_CLASSES)}, of a sensor")
        identifier = re.sub(r"[^A-Za-z0-9_-]", "_", key)
        said: dict[str, Any] = {
            "name": value.get("name", key.replace("_", " ").capitalize()),
            "unique_id": f"{device['id']}-{identifier}",
            "state_topic": device["topic"],
            "value_template": template(value.get("path", key), kind),
            "device": about,
        }
        said |= {theirs: value[ours] for ours, theirs in WORDS if ours in value}
        if kind == "binary_sensor":
            # In lower case, as what the template makes of a value.
            said |= {"payload_on": value.get("on", "true").lower(), "payload_off": value.get("off", "false").lower()}
        if "status" in device:
            said |= {
                "availability_topic": device["status"],
                # A bare word, or an object with it under `status`, as `edgedevices fleet --will` says it.
                "availability_template": "{{ value_json.status if value_json is mapping else value }}",
            }
        yield kind, identifier, said


def of_gateway(gateway: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(identifier, announcement) of what a gateway says of itself under $SYS."""
    about = {"identifiers": [gateway["id"]], "name": gateway.get("name", gateway["id"]), "manufacturer": "edgebroker"}
    for topic, (name, more) in GATEWAY_VALUES.items():
        identifier = topic.replace("/", "-")
        yield (
            identifier,
            {
                "name": name,
                "unique_id": f"{gateway['id']}-{identifier}",
                "state_topic": f"{gateway.get('sys', '$SYS/broker')}/{topic}",
                "device": about,
                **more,
            },
        )


def template(path: str, kind: str) -> str:
    """The template that takes *path* out of a JSON payload; one with odd characters is a single key."""
    inner = f"value_json.{path}" if PATH.fullmatch(path) else f"value_json[{json.dumps(path)}]"
    return f"{{{{ {inner} | lower }}}}" if kind == "binary_sensor" else f"{{{{ {inner} }}}}"


def put(found: dict[str, bytes], topic: str, said: Mapping[str, Any], where: str) -> None:
    """Add one announcement. Raises Refused for a topic that is none, a second one of the same name, or too many."""
    for named in (topic, said["state_topic"], said.get("availability_topic", topic)):
        try:
            parse_topic_name(named)
        except TopicInvalid as error:
            raise Refused(f"{where}: {error}") from None
    if topic in found:
        raise Refused(f"{where}: {topic} is announced twice: give every device and value a name of its own")
    if len(found) >= VALUES_MAX:
        raise Refused(f"more than {VALUES_MAX:,} values in one file: write several")
    found[topic] = json.dumps({**said, "origin": ORIGIN}, ensure_ascii=False).encode()


def check(given: object, known: Mapping[str, type], where: str, needed: tuple[str, ...] = ()) -> None:
    """Raise Refused unless *given* is a table with *known* keys of their kinds, and the *needed* ones."""
    if not isinstance(given, Mapping):
        raise Refused(f"{where} is no table")
    for key, value in given.items():
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise Refused(f"{where}: no key {key!r}; {hint}")
        if not isinstance(value, known[key]):
            raise Refused(
                f"{where}: {key} is no {'table' if known[key] is dict else 'list' if known[key] is list else 'text'}"
            )
    for key in needed:
        if key not in given:
            raise Refused(f"{where}: {key} is missing")
    identifier = given.get("id")
    if identifier is not None and not ID.fullmatch(identifier):
        raise Refused(f"{where}: id is {identifier!r}; write 1 to 64 letters, digits, '_' and '-'")


FILE_BYTES_MAX = 1 << 20


@click.command("announce", short_help="Announce devices to Home Assistant.")
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
    found = announcements(read(file), prefix)
    if withdraw:
        found = dict.fromkeys(found, b"")
    if dry_run:
        for topic, payload in found.items():
            click.echo(f"{topic} {payload.decode()}".rstrip())
        return
    run(publish(client_options_of(options), found, withdraw, as_json))


def read(file: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises Refused."""
    if file.stat().st_size > FILE_BYTES_MAX:
        raise Refused(f"{file} has more than {FILE_BYTES_MAX:,} bytes")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{file}: {error}") from None


async def publish(peer: ClientOptions, found: dict[str, bytes], withdraw: bool, as_json: bool) -> int:
    """Publish *found*, retained, one after the other. Raises what `edgebroker pub` does."""
    async with connect(peer.transport, peer.connect_packet()) as client:
        for topic, payload in found.items():
            await client.publish(topic, payload, qos=1, retain=True)
    if as_json:
        click.echo(json.dumps({"withdrawn" if withdraw else "announced": list(found)}))
    else:
        click.echo(f"{len(found)} {'withdrawn' if withdraw else 'announced'}")
    return 0


__all__ = ["command"]
