"""`edgebroker announce`: tell Home Assistant which devices there are. docs/recipes.md shows it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click

from edgebroker.cli import Refused
from edgebroker.cli.client import connect
from edgebroker.cli.connection import Peer, peer_of, peer_options, run
from edgebroker.cli.existing import Existing

from .entities import announcements

FILE_BYTES_MAX = 1 << 20


@click.command("announce", short_help="Announce devices to Home Assistant.")
@click.argument("file", type=Existing(dir_okay=False))
@peer_options
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
    run(publish(peer_of(options), found, withdraw, as_json))


def read(file: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises Refused."""
    if file.stat().st_size > FILE_BYTES_MAX:
        raise Refused(f"{file} has more than {FILE_BYTES_MAX:,} bytes")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{file}: {error}") from None


async def publish(peer: Peer, found: dict[str, bytes], withdraw: bool, as_json: bool) -> int:
    """Publish *found*, retained, one after the other. Raises what `edgebroker pub` does."""
    async with connect(peer.way, peer.introduction()) as client:
        for topic, payload in found.items():
            await client.publish(topic, payload, qos=1, retain=True)
    if as_json:
        click.echo(json.dumps({"withdrawn" if withdraw else "announced": list(found)}))
    else:
        click.echo(f"{len(found)} {'withdrawn' if withdraw else 'announced'}")
    return 0


__all__ = ["command"]
