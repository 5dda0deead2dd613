"""`edgebroker topology`: checks, draws and plans the connections of sites and gateways, and counts them.

docs/topology.md explains the file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from edgebroker import limits
from edgebroker.cli import Refused
from edgebroker.cli.check import refuse_file
from edgebroker.cli.parameters import WordChoice, examples
from edgebroker.cli.topology.drawing import gateway_lines, svg_drawing, text_drawing
from edgebroker.cli.topology.toml_text import toml_text
from edgebroker.ed25519 import public_key
from edgebroker.overlay.link.handshake import TOPOLOGY_BYTES_MAX
from edgebroker.overlay.topology.diff import TopologyDifference, difference
from edgebroker.overlay.topology.draft import UPLINKS
from edgebroker.overlay.topology.planner import plan
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.private_files import FileUnreadable
from edgebroker.runtime.settings import SettingsRefused
from edgebroker.runtime.settings.kinds import InvalidValue
from edgebroker.runtime.settings.reading import read_settings_text
from edgebroker.runtime.topology_file import NAME, load_topology
from edgebroker.runtime.topology_signature import (
    PUBLIC,
    SECRET,
    SignatureInvalid,
    load_key,
    new_key_texts,
    sign_topology,
    signed_version,
    verify_topology,
)


def figures(topology: Topology) -> dict[str, Any]:
    """Returns the counts of a topology for programs."""
    scot = topology.scot
    inside, across = _connections(topology)
    return {
        "federation": topology.federation,
        "digest": topology.digest,
        "positions": len(topology.factor),
        "sites": [site.name for site in topology.sites],
        "brokers": len(scot),
        "a_links": sum(1 for _ in scot.a_links()),
        "i_links": sum(1 for _ in scot.i_links()),
        "diameter": scot.diameter,
        "connections_inside": inside,
        "connections_across": across,
        "tolerated_gateways": topology.tolerated_gateways,
        "tolerated_connections": topology.tolerated_connections,
        "gateways": [
            {
                "name": gateway.name,
                "number": gateway.number,
                "site": gateway.site,
                "cluster": gateway.cluster,
                "positions": gateway.positions,
                "neighbours": gateway.neighbours,
                "peers": gateway.peers(),
                "clients": [str(address) for address in topology.client_addresses(gateway.name)],
            }
            for gateway in topology.gateways
        ],
    }


def sentences(topology: Topology) -> Iterator[str]:
    """Yields the description of a topology for people."""
    scot = topology.scot
    inside, across = _connections(topology)
    gateways = len(topology.gateways)
    yield (
        f"federation {topology.federation}: {_count(len(topology.sites), 'site')}, {_count(gateways, 'gateway')}, "
        f"{_count(len(topology.factor), 'position')}; digest {topology.digest}"
    )
    yield (
        f"stands for {_count(len(scot), 'broker')} with {_count(sum(1 for _ in scot.a_links()), 'aLink')} and "
        f"{_count(sum(1 for _ in scot.i_links()), 'iLink')}; no way is longer than {_count(scot.diameter, 'link')}"
    )
    yield f"{_count(inside + across, 'connection')} between gateways: {inside} inside sites, {across} between sites"
    yield _tolerance(topology)


def _tolerance(topology: Topology) -> str:
    if not topology.tolerated_gateways:
        return "one site: a gateway that fails divides the others, unless it stands at an end of the tree"
    tolerated = _count(topology.tolerated_gateways, "gateway")
    if topology.tolerated_connections:
        tolerated += f" or {_count(topology.tolerated_connections, 'connection')}"
    return f"whichever {tolerated} may fail: what is left stays joined"


def _connections(topology: Topology) -> tuple[int, int]:
    """Returns the number of connections (inside sites, between sites)."""
    inside = sum(len(gateway.neighbours) for gateway in topology.gateways) // 2
    return inside, sum(len(gateway.peers()) for gateway in topology.gateways) // 2 - inside


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


OVERLAY_PORT = 8884  # next to 8883 of MQTT, which the gateway's devices may use

file_argument = click.argument("file", type=click.Path(path_type=Path))
json_flag = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")


@click.group("topology", help="Check, draw and plan how sites and gateways are joined.")
def command() -> None:
    """The group; see its commands."""


@command.command(
    "check",
    epilog=examples("edgebroker topology check plant.toml", "edgebroker topology check new.toml --against plant.toml"),
)
@file_argument
@click.option("--against", "old", type=click.Path(path_type=Path), help="The file that running gateways have.")
@json_flag
def check(file: Path, old: Path | None, as_json: bool) -> None:
    """Is FILE a topology, and what does it promise?

    Exit code 0 if it is, 2 if not; then every mistake is shown with its line and how to mend it. With --against also
    what is different, and exit code 1 if gateways must be stopped and started to take it.
    """
    topology = _load(file, as_json)
    changes = difference(_load(old, as_json), topology) if old is not None else ()
    is_live = all(change.is_live for change in changes)
    if as_json:
        answer: dict[str, Any] = {"ok": True, "file": str(file)} | figures(topology)
        if old is not None:
            answer |= {"changes": [asdict(change) for change in changes], "is_live": is_live}
        click.echo(json.dumps(answer))
    else:
        click.echo(f"{file}: OK")
        if version := signed_version(read_settings_text(file)):
            click.echo(f"signed {signing_time(version)}")
        for sentence in sentences(topology):
            click.echo(sentence)
        if old is not None:
            _print_changes(old, changes)
    sys.exit(0 if is_live else 1)


@command.command(
    "show",
    short_help="Draw the topology in FILE.",
    epilog=examples("edgebroker topology show plant.toml --svg plant.svg"),
)
@file_argument
@click.option("--gateway", "name", metavar="NAME", help="Only this one: what it holds, and its connections.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write a drawing to this file too.")
def show(file: Path, name: str | None, svg: Path | None) -> None:
    """Draw the topology in FILE: sites, gateways, the positions they hold; who dials whom, and where."""
    topology = _load(file)
    for line in text_drawing(topology) if name is None else gateway_lines(topology, topology.gateway(name)):
        click.echo(line)
    if svg is not None:
        try:
            svg.write_text(svg_drawing(topology), encoding="utf-8")
        except OSError as error:
            raise Refused(f"{svg}: cannot be written: {error.strerror}") from error


@command.command(
    "plan",
    short_help="Print a good topology file.",
    epilog=examples("edgebroker topology plan --sites north,south --gateways 3,2 > plant.toml"),
)
@click.option("--sites", required=True, metavar="N or NAMES", help="How many sites, or their names: north,south.")
@click.option("--gateways", required=True, metavar="N,N,...", help="How many gateways each site has; or one for all.")
@click.option("--name", "federation", default="federation", show_default=True, help="What the federation is called.")
@click.option(
    "--uplink", type=WordChoice(list(UPLINKS)), default="wan", show_default=True, help="The class of all uplinks."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=OVERLAY_PORT,
    show_default=True,
    help="Where gateways listen for each other.",
)
def plan_command(sites: str, gateways: str, federation: str, uplink: str, port: int) -> None:
    """Print a good topology file: short ways, fair shares, few connections.

    A gateway's name stands for its host until you write its address.
    """
    names = _site_names(sites)
    counts = _counts(gateways)
    if len(counts) == 1:
        counts *= len(names)
    if len(counts) != len(names):
        raise click.UsageError(
            f"--gateways has {len(counts)} numbers for {len(names)} sites: one for each, or one for all"
        )
    for name in (federation, *names):
        try:
            NAME.read(name, Path())
        except InvalidValue as error:
            raise click.UsageError(f"a name {error.args[0]}: {error.args[1]}") from error
    if len(set(names)) != len(names):
        raise click.UsageError("--sites names one twice")
    draft = plan(federation, dict(zip(names, counts, strict=True)), UPLINKS[uplink], port)
    click.echo(toml_text(draft), nl=False)


@command.command(
    "sign",
    short_help="Sign the topology in FILE.",
    epilog=examples(
        "edgebroker topology sign plant.toml --key topology.key --new-key",
        "edgebroker topology sign plant.toml --key topology.key",
    ),
)
@file_argument
@click.option(
    "--key", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file of the secret key."
)
@click.option("--new-key", is_flag=True, help="Make that file, and one for gateways, with .pub behind its name.")
@json_flag
def sign_command(file: Path, key: Path, new_key: bool, as_json: bool) -> None:
    """Sign the topology in FILE, so that gateways hand it on to each other.

    Gateways that have the public key (`topology_key` under [overlay]) take no other topology than a signed one, and of
    two of them the one that was signed later. Keep the secret key away from gateways.
    """
    _load(file, as_json)
    public = key.with_name(f"{key.name}.pub")
    try:
        if new_key:
            _make_key(key, public)
        text = sign_topology(read_settings_text(file), load_key(key, SECRET), int(time.time()))
        if len(text.encode()) > TOPOLOGY_BYTES_MAX:
            raise Refused(f"{file}: gateways hand on files of at most {TOPOLOGY_BYTES_MAX:,} bytes")
        verify_topology(text, load_key(public, PUBLIC) if public.exists() else public_key(load_key(key, SECRET)))
        replace_public(file, text)
    except SignatureInvalid as invalid:
        raise Refused(f"{key}: {invalid}") from invalid
    except FileUnreadable as unreadable:
        raise Refused(str(unreadable)) from unreadable
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps({"file": str(file), "version": signed_version(text), "key": str(key)}))
        return
    if new_key:
        click.echo(f"{key}: the secret key; {public}: for all gateways, as topology_key under [overlay]")
    click.echo(f"{file}: signed {signing_time(signed_version(text))}")


def _make_key(key: Path, public: Path) -> None:
    """Writes the files of a new key. Raises OSError, FileExistsError if there is one."""
    secret_text, public_text = new_key_texts()
    descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret_text)
    with public.open("x", encoding="ascii") as file:
        file.write(public_text)


def replace_public(file: Path, text: str) -> None:
    """Replaces *file* at once; who may read it stays. Raises OSError."""
    path = file.resolve()
    temporary = path.with_name(f".{path.name}.signed")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(path.stat().st_mode & 0o7777)
    temporary.replace(path)


def signing_time(version: int) -> str:
    """Returns the version of a signed topology as the time of its signature."""
    return datetime.fromtimestamp(version, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _load(file: Path, as_json: bool = False) -> Topology:
    """Returns the topology in *file*; or prints every mistake, and exits with code 2."""
    try:
        return load_topology(file)
    except SettingsRefused as refused:
        refuse_file(file, refused, as_json)


def _print_changes(old: Path, changes: tuple[TopologyDifference, ...]) -> None:
    click.echo(f"against {old}:" if changes else f"means the same as {old}, in every respect")
    for change in changes:
        click.echo(f"  {'live   ' if change.is_live else 'restart'}  {change.text}")
    if changes:
        is_live = all(change.is_live for change in changes)
        click.echo(
            "running gateways can take it" if is_live else "all gateways must be stopped, given this file and started"
        )


def _site_names(text: str) -> list[str]:
    """Returns the names of `--sites`: a, b, c and so on for a number."""
    names = text.split(",")
    if text.isdecimal() and text.isascii():
        names = [chr(ord("a") + index) for index in range(min(int(text[:4]), limits.CLUSTERS_MAX + 1))]
    if not 1 <= len(names) <= limits.CLUSTERS_MAX:
        raise click.UsageError(f"--sites: 1 to {limits.CLUSTERS_MAX} are possible")
    return names


def _counts(text: str) -> list[int]:
    try:
        counts = [int(count) for count in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--gateways {text!r}: numbers with ',' between, like 4,3,1") from error
    if not all(1 <= count <= limits.POSITIONS_MAX for count in counts):
        raise click.UsageError(f"--gateways: a site has 1 to {limits.POSITIONS_MAX}")
    return counts
