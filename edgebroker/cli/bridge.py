"""`edgebroker bridge`: the bridges of a running gateway to foreign brokers, and the bytes that each prefix costs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.display import count, octets, shortened, span
from edgebroker.cli.http_address import HttpAddress
from edgebroker.cli.http_client import GatewayEndpoint, gateway_endpoint, gateway_options, get_json, post_json
from edgebroker.runtime.settings.toml import toml_value

COST_HEADING: Final = ("PREFIX", "OUT", "IN", "MESSAGES", "SHARE", "SINCE START", "SHARE")
PREFIXES_SHOWN: Final = 20
PREFIX_COLUMNS: Final = 48
ELSE: Final = "answers, pings, greetings"


def cost_table(found: dict[str, Any], limit: int = PREFIXES_SHOWN) -> Iterator[str]:
    """For people: a line for each prefix, the most of today first, and what is left."""
    line, prefixes = found["line"], found["prefixes"]
    today, total = (
        f"{octets(_bytes(line[when], 'out'))} out and {octets(_bytes(line[when], 'in'))} in in {span(found[seconds])}"
        for when, seconds in (("today", "today_s"), ("total", "since_s"))
    )
    yield f"{found['name']}: today {today}; since its start {total}"
    rows: list[tuple[str, dict[str, Any]]] = [(row["prefix"], row) for row in prefixes[:limit]]
    if rest := prefixes[limit:]:
        rows.append((f"{len(rest)} more prefixes", _summed(rest)))
    rows.append((ELSE, _left(line, _summed(prefixes))))
    cells = [COST_HEADING, *(_cost_cells(name, row, line) for name, row in rows)]
    widths = [max(len(one[column]) for one in cells) for column in range(len(COST_HEADING))]
    for one in cells:
        first, *others = one
        yield "  ".join([f"{first:{widths[0]}}", *map(str.rjust, others, widths[1:])]).rstrip()


def _cost_cells(name: str, row: dict[str, Any], line: dict[str, Any]) -> Sequence[str]:
    today, total = row["today"], row["total"]
    return (
        shortened(name, PREFIX_COLUMNS),
        octets(_bytes(today, "out")),
        octets(_bytes(today, "in")),
        count(today["out"]["messages"] + today["in"]["messages"]) if name != ELSE else "",
        _share(today, line["today"]),
        octets(_bytes(total)),
        _share(total, line["total"]),
    )


def _bytes(counts: dict[str, Any], *ways: str) -> int:
    return sum(counts[way]["bytes"] for way in ways or ("out", "in"))


def _share(counts: dict[str, Any], of: dict[str, Any]) -> str:
    whole = _bytes(of)
    return f"{100 * _bytes(counts) / whole:.1f} %" if whole else "-"


def _summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        when: {
            way: {key: sum(row[when][way][key] for row in rows) for key in ("messages", "bytes")}
            for way in ("out", "in")
        }
        for when in ("today", "total")
    }


def _left(line: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """What crossed the line beside messages. What is not written yet is counted as a message before it has crossed."""
    return {
        when: {
            way: {"messages": 0, "bytes": max(0, line[when][way]["bytes"] - named[when][way]["bytes"])}
            for way in ("out", "in")
        }
        for when in ("today", "total")
    }


WELL: Final = ("open", "paused", "closed")
WAITED: Final = (
    "queue_full",
    "superseded",
    "memory_full",
    "too_old",
    "thinned",
    "offline",
    "out_buffer_full",
    "connection_lost",
)
"""Causes of drops before the bridge had the message in its hands: of others `out` and `in` know."""
HEADING: Final = ("BRIDGE", "STATE", "REMOTE", "OUT", "IN", "WAITING", "BYTES", "DROPPED")


@click.group("bridge")
def command() -> None:
    """Look at the bridges of a running gateway, and add, pause, resume and remove them."""


@command.command("list")
@gateway_options
def list_(http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """List all bridges.

    Exit code 0 if all are connected, or paused or closed on purpose; 1 if one is not, or is set aside; 2 if the gateway
    does not answer.
    """
    found = get_json(gateway_endpoint(http, config, token_file), "/bridges")
    aside = found.get("set_aside", [])
    click.echo(json.dumps(found) if as_json else "\n".join(listed(found["bridges"], aside)))
    sys.exit(0 if all(row["state"] in WELL for row in found["bridges"]) and not aside else 1)


@command.command("status", short_help="Show all there is to know of one bridge.")
@click.argument("name")
@gateway_options
def status(name: str, http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Show all there is to know of one bridge: its rules, what they carried, what was refused, and why.

    Exit code 0 if it is connected, or paused or closed on purpose; 1 if not; 2 if there is none, or no answer.
    """
    found = get_json(gateway_endpoint(http, config, token_file), "/bridges")
    rows, aside = found["bridges"], [one for one in found.get("set_aside", []) if one["bridge"] == name]
    row = next((row for row in rows if row["name"] == name), None)
    if row is None and aside:
        click.echo(json.dumps({"name": name, "set_aside": aside}) if as_json else "\n".join(map(_aside, aside)))
        sys.exit(1)
    if row is None:
        there_are = ", ".join(row["name"] for row in rows) or "none at all"
        raise Refused(f"there is no bridge {name!r}; there are {there_are}")
    if as_json:
        click.echo(json.dumps({**row, "set_aside": aside}))
    else:
        click.echo("\n".join([*described(row), *map(_aside, aside)]))
    sys.exit(0 if row["state"] in WELL and not aside else 1)


@command.command("costs", short_help="Show who spends the bytes of a bridge.")
@click.argument("name")
@click.option("--depth", type=click.IntRange(1, 4), default=2, show_default=True, help="Levels of topics told apart.")
@click.option(
    "--limit", type=click.IntRange(1), default=PREFIXES_SHOWN, show_default=True, help="Prefixes in the table."
)
@gateway_options
def costs(
    name: str,
    depth: int,
    limit: int,
    http: HttpAddress | None,
    config: Path | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Show who spends the bytes of a bridge: by topic prefix and direction, today and since its start."""
    found = get_json(gateway_endpoint(http, config, token_file), "/bridges/costs", name=name, depth=depth)
    click.echo(json.dumps(found) if as_json else "\n".join(cost_table(found, limit)))


@command.command("add")
@click.argument("name")
@click.argument("address")
@click.option("--topic", "topics", multiple=True, required=True, metavar="RULE", help='"sensors/# out 1"; repeat it.')
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="Any other key of [[bridge]]; repeat it.")
@gateway_options
def add(
    name: str,
    address: str,
    topics: Sequence[str],
    values: Sequence[str],
    http: HttpAddress | None,
    config: Path | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Add a bridge to ADDRESS, which is HOST:PORT. It is there after a restart too."""
    lines = [f"name = {toml_value(name)}", f"addresses = {toml_value([address])}", f"topic = {toml_value(topics)}"]
    lines += [setting(value) for value in values]
    whom = gateway_endpoint(http, config, token_file)
    _done(whom, as_json, f"{name} is added", do="add", settings="[[bridge]]\n" + "\n".join(lines))


def setting(value: str) -> str:
    """KEY=VALUE as TOML: numbers, lists, true, false and what is in quotes as they are, all else as text."""
    key, equals, text = value.partition("=")
    if not equals:
        raise click.UsageError(f"--set {value!r} is not KEY=VALUE")
    is_toml = text in ("true", "false") or (text.isascii() and text.isdigit()) or text[:1] in ("[", '"')
    return f"{key} = {text if is_toml else toml_value(text)}"


@command.command("pause")
@click.argument("name")
@gateway_options
def pause(name: str, http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Hang up until it is resumed, over restarts too. What is for the remote waits."""
    _done(gateway_endpoint(http, config, token_file), as_json, f"{name} is paused", do="pause", name=name)


@command.command("resume")
@click.argument("name")
@gateway_options
def resume(name: str, http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Dial again, and at once, or when its hours begin."""
    _done(gateway_endpoint(http, config, token_file), as_json, f"{name} is dialled", do="resume", name=name)


@command.command("remove")
@click.argument("name")
@gateway_options
def remove(name: str, http: HttpAddress | None, config: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Remove a bridge that was added. What waits for its remote is dropped."""
    _done(gateway_endpoint(http, config, token_file), as_json, f"{name} is no more", do="remove", name=name)


def _done(whom: GatewayEndpoint, as_json: bool, said: str, **query: str) -> None:
    found = post_json(whom, "/bridges", **query)
    if found.get("state") == "closed" and query["do"] == "resume":
        said = f"{found['name']}: {found['reason']}"
    click.echo(json.dumps(found) if as_json else said)


def _aside(one: dict[str, Any]) -> str:
    """One thing that is wrong with a bridge whose settings cannot be used."""
    place = f"{one['file']}:{one['line']}" if one["line"] else one["file"]
    why = ": ".join(filter(None, (place, one["key"], one["reason"]))) + (f"; {one['mend']}" if one["mend"] else "")
    goes_on = f"{count(one['waiting'])} messages wait for it"
    return (
        f"{one['bridge'] or 'a bridge'} is set aside: {why} "
        f"({'it runs with its settings of before' if one['runs_as_before'] else goes_on})"
    )


def listed(rows: Sequence[dict[str, Any]], aside: Sequence[dict[str, Any]] = ()) -> Iterator[str]:
    """For people: a line for each bridge, and why those are not connected that are not."""
    yield from map(_aside, aside)
    if not rows and aside:
        return
    if not rows:
        yield "there are no bridges"
        return
    cells = [HEADING, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADING))]
    for line in cells:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
    yield from (f"{row['name']}: {row['reason']}" for row in rows if row["state"] != "open" and row["reason"])
    yield from (f"{row['name']}: {row['toll']['warning']}" for row in rows if row["toll"]["warning"])
    for row in rows:
        for rule in row["rules"]:
            if rule["refused"]:
                yield f"{row['name']}: {rule['rule']}: refused by {rule['refused']}"


def _remote(row: dict[str, Any]) -> str:
    """Where it is, or may be."""
    listed = ", ".join(row["addresses"])
    return f"{row['address']} of {listed}" if row["address"] and len(row["addresses"]) > 1 else listed


def _cells(row: dict[str, Any]) -> Sequence[str]:
    spool = sum(number for cause, number in row["spool"]["dropped"].items() if cause in WAITED)
    dropped = spool + sum(row["out"]["dropped"].values()) + sum(row["in"]["dropped"].values())
    return (
        row["name"],
        row["state"],
        row["address"] or ", ".join(row["addresses"]),
        count(row["out"]["messages"]),
        count(row["in"]["messages"]),
        count(row["waiting"]),
        octets(row["waiting_bytes"]),
        count(dropped) if dropped else "-",
    )


def described(row: dict[str, Any]) -> Iterator[str]:
    """For people: everything about one bridge."""
    reason = f": {row['reason']}" if row["reason"] and row["state"] != "open" else ""
    yield f"{row['name']} is {row['state']} since {row['since_s']:.0f} s{reason}"
    yield f"  remote     {_remote(row)}, MQTT {row['version']}, as {row['client_id']}"
    spool = row["spool"]
    oldest = "" if spool["oldest_s"] is None else f", the oldest for {spool['oldest_s']:.0f} s"
    gone = ", ".join(f"{count(number)} {cause}" for cause, number in spool["dropped"].items()) or "none"
    yield f"  waiting    {count(spool['messages'])} messages, {octets(spool['bytes'])}{oldest}; dropped: {gone}"
    yield f"  connected  {count(row['connects'])} times; sent again after a lost session: {count(row['sent_again'])}"
    if bounds := ", ".join(_bounds(row["toll"])):
        yield f"  may cost   {bounds}"
    for way in ("out", "in"):
        tally = row[way]
        lost = [f"{number} {cause}" for cause, number in tally["dropped"].items() if cause != "refused"]
        lost += [f"{number} refused: {why}" for why, number in tally["refused"].items()]  # the same, by reason
        rest = ", ".join(lost) or "none"
        as_it_was = f", {count(tally['untransformed'])} untransformed" if tally["untransformed"] else ""
        carried = f"{count(tally['messages'])} messages, {octets(tally['bytes'])}{as_it_was}"
        yield f"  {way:9}  {carried}; not carried: {rest}"
    for rule in row["rules"]:
        counts = [f"{way} {count(rule[way])}" for way in ("out", "in") if rule[way] is not None]
        refused = f"; refused by {rule['refused']}" if rule["refused"] else ""
        yield f"  rule       {rule['rule']}: {', '.join(counts)}{refused}"


def _bounds(toll: dict[str, Any]) -> Iterator[str]:
    """What a bridge may send, and what of it is gone."""
    if toll["rate_bytes_s"]:
        yield f"{toll['rate_bytes_s']:,} bytes a second"
    if toll["rate_messages_s"]:
        yield f"{toll['rate_messages_s']:,} messages a second"
    if toll["bytes_per_day"]:
        yield f"{toll['spent']:,} of {toll['bytes_per_day']:,} bytes are spent today"
    if toll["warning"]:
        yield toll["warning"]
    if toll["held"]:
        yield f"{count(toll['held'])} messages wait for that, {octets(toll['held_bytes'])}"
    yield from toll["schedule"]
