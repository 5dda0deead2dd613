"""`edgebroker bridge`: shows and changes the bridges of a running gateway, and the bytes that each prefix costs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.display import count, octets, on_disk, shortened, span
from edgebroker.cli.http_client import GatewayEndpoint, GatewayOptions, gateway_options, get_json, post_json
from edgebroker.cli.parameters import examples
from edgebroker.runtime.settings.toml import toml_value

COST_HEADING: Final = ("PREFIX", "OUT", "IN", "MESSAGES", "SHARE", "SINCE START", "SHARE")
PREFIXES_SHOWN: Final = 20
PREFIX_COLUMNS: Final = 48
OTHER_BYTES: Final = "answers, pings, greetings"


def cost_table(answer: dict[str, Any], limit: int = PREFIXES_SHOWN) -> Iterator[str]:
    """Yields a line for each prefix, the most expensive of today first, and the remaining bytes, for people."""
    line, prefixes = answer["line"], answer["prefixes"]
    today, total = (
        f"{octets(_bytes(line[period], 'out'))} out and {octets(_bytes(line[period], 'in'))} in in {span(answer[key])}"
        for period, key in (("today", "today_s"), ("total", "since_s"))
    )
    yield f"{answer['name']}: today {today}; since its start {total}"
    rows: list[tuple[str, dict[str, Any]]] = [(row["prefix"], row) for row in prefixes[:limit]]
    if more := prefixes[limit:]:
        rows.append((f"{len(more)} more prefixes", _summed(more)))
    rows.append((OTHER_BYTES, _difference(line, _summed(prefixes))))
    cells = [COST_HEADING, *(_cost_cells(name, row, line) for name, row in rows)]
    widths = [max(len(cell_row[column]) for cell_row in cells) for column in range(len(COST_HEADING))]
    for cell_row in cells:
        first, *others = cell_row
        yield "  ".join([f"{first:{widths[0]}}", *map(str.rjust, others, widths[1:])]).rstrip()


def _cost_cells(name: str, row: dict[str, Any], line: dict[str, Any]) -> Sequence[str]:
    today, total = row["today"], row["total"]
    return (
        shortened(name, PREFIX_COLUMNS),
        octets(_bytes(today, "out")),
        octets(_bytes(today, "in")),
        count(today["out"]["messages"] + today["in"]["messages"]) if name != OTHER_BYTES else "",
        _share(today, line["today"]),
        octets(_bytes(total)),
        _share(total, line["total"]),
    )


def _bytes(counts: dict[str, Any], *directions: str) -> int:
    return sum(counts[direction]["bytes"] for direction in directions or ("out", "in"))


def _share(counts: dict[str, Any], of: dict[str, Any]) -> str:
    total = _bytes(of)
    return f"{100 * _bytes(counts) / total:.1f} %" if total else "-"


def _summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        period: {
            direction: {key: sum(row[period][direction][key] for row in rows) for key in ("messages", "bytes")}
            for direction in ("out", "in")
        }
        for period in ("today", "total")
    }


def _difference(line: dict[str, Any], messages: dict[str, Any]) -> dict[str, Any]:
    """Returns the bytes beside messages. Messages that are not written yet count as messages already."""
    return {
        period: {
            direction: {
                "messages": 0,
                "bytes": max(0, line[period][direction]["bytes"] - messages[period][direction]["bytes"]),
            }
            for direction in ("out", "in")
        }
        for period in ("today", "total")
    }


GOOD_STATES: Final = ("open", "paused", "closed")
QUEUE_DROPS: Final = (
    "queue_full",
    "superseded",
    "memory_full",
    "too_old",
    "thinned",
    "offline",
    "out_buffer_full",
    "connection_lost",
)
"""Causes of drops in the queue of the bridge; other causes are counted by `out` and `in`."""
HEADING: Final = ("BRIDGE", "STATE", "REMOTE", "OUT", "IN", "WAITING", "BYTES", "DROPPED")


@click.group("bridge")
def command() -> None:
    """Look at the bridges of a running gateway, and add, pause, resume and remove them."""


@command.command("list", epilog=examples("edgebroker bridge list"))
@gateway_options()
def list_(gateway: GatewayOptions, as_json: bool) -> None:
    """List all bridges.

    Exit code 0 if all are connected, or paused or closed on purpose; 1 if one is not, or is set aside; 2 if the gateway
    does not answer.
    """
    answer = get_json(gateway.endpoint(), "/bridges")
    set_aside = answer.get("set_aside", [])
    click.echo(json.dumps(answer) if as_json else "\n".join(listed(answer["bridges"], set_aside)))
    sys.exit(0 if all(row["state"] in GOOD_STATES for row in answer["bridges"]) and not set_aside else 1)


@command.command(
    "status", short_help="Show all there is to know of one bridge.", epilog=examples("edgebroker bridge status office")
)
@click.argument("name")
@gateway_options()
def status(name: str, gateway: GatewayOptions, as_json: bool) -> None:
    """Show all there is to know of one bridge: its rules, what they carried, what was refused, and why.

    Exit code 0 if it is connected, or paused or closed on purpose; 1 if not; 2 if there is none, or no answer.
    """
    found = get_json(gateway.endpoint(), "/bridges")
    rows, aside = found["bridges"], [one for one in found.get("set_aside", []) if one["bridge"] == name]
    row = next((row for row in rows if row["name"] == name), None)
    if row is None and aside:
        click.echo(json.dumps({"name": name, "set_aside": aside}) if as_json else "\n".join(map(_invalid_line, aside)))
        sys.exit(1)
    if row is None:
        there_are = ", ".join(row["name"] for row in rows) or "none at all"
        raise Refused(f"there is no bridge {name!r}; there are {there_are}")
    if as_json:
        click.echo(json.dumps({**row, "set_aside": aside}))
    else:
        click.echo("\n".join([*described(row), *map(_invalid_line, aside)]))
    sys.exit(0 if row["state"] in GOOD_STATES and not aside else 1)


@command.command(
    "costs",
    short_help="Show who spends the bytes of a bridge.",
    epilog=examples("edgebroker bridge costs office --depth 2"),
)
@click.argument("name")
@click.option("--depth", type=click.IntRange(1, 4), default=2, show_default=True, help="Levels of topics told apart.")
@click.option(
    "--limit", type=click.IntRange(1), default=PREFIXES_SHOWN, show_default=True, help="Prefixes in the table."
)
@gateway_options()
def costs(name: str, depth: int, limit: int, gateway: GatewayOptions, as_json: bool) -> None:
    """Show who spends the bytes of a bridge: by topic prefix and direction, today and since its start."""
    answer = get_json(gateway.endpoint(), "/bridges/costs", name=name, depth=depth)
    click.echo(json.dumps(answer) if as_json else "\n".join(cost_table(answer, limit)))


@command.command(
    "add", epilog=examples("edgebroker bridge add office 192.0.2.20:1883 --topic 'sensors/# out 1 where temp > 30'")
)
@click.argument("name")
@click.argument("address")
@click.option("--topic", "topics", multiple=True, required=True, metavar="RULE", help='"sensors/# out 1"; repeat it.')
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="Any other key of [[bridge]]; repeat it.")
@gateway_options()
def add(
    name: str, address: str, topics: Sequence[str], values: Sequence[str], gateway: GatewayOptions, as_json: bool
) -> None:
    """Add a bridge to ADDRESS, which is HOST:PORT. It is there after a restart too."""
    lines = [f"name = {toml_value(name)}", f"addresses = {toml_value([address])}", f"topic = {toml_value(topics)}"]
    lines += [toml_setting(value) for value in values]
    endpoint = gateway.endpoint()
    _run_order(endpoint, as_json, f"{name} is added", do="add", settings="[[bridge]]\n" + "\n".join(lines))


def toml_setting(value: str) -> str:
    """Returns KEY=VALUE as TOML: numbers, lists, booleans and quoted values as they are, everything else as text."""
    key, equals, text = value.partition("=")
    if not equals:
        raise click.UsageError(f"--set {value!r} is not KEY=VALUE")
    is_toml = text in ("true", "false") or (text.isascii() and text.isdigit()) or text[:1] in ("[", '"')
    return f"{key} = {text if is_toml else toml_value(text)}"


@command.command("pause", epilog=examples("edgebroker bridge pause office"))
@click.argument("name")
@gateway_options()
def pause(name: str, gateway: GatewayOptions, as_json: bool) -> None:
    """Hang up until it is resumed, over restarts too. What is for the remote waits."""
    _run_order(gateway.endpoint(), as_json, f"{name} is paused", do="pause", name=name)


@command.command("resume", epilog=examples("edgebroker bridge resume office"))
@click.argument("name")
@gateway_options()
def resume(name: str, gateway: GatewayOptions, as_json: bool) -> None:
    """Dial again, and at once, or when its hours begin."""
    _run_order(gateway.endpoint(), as_json, f"{name} is dialled", do="resume", name=name)


@command.command("remove", epilog=examples("edgebroker bridge remove office"))
@click.argument("name")
@gateway_options()
def remove(name: str, gateway: GatewayOptions, as_json: bool) -> None:
    """Remove a bridge that was added. What waits for its remote is dropped."""
    _run_order(gateway.endpoint(), as_json, f"{name} is no more", do="remove", name=name)


def _run_order(endpoint: GatewayEndpoint, as_json: bool, text: str, **query: str) -> None:
    answer = post_json(endpoint, "/bridges", **query)
    if answer.get("state") == "closed" and query["do"] == "resume":
        text = f"{answer['name']}: {answer['reason']}"
    click.echo(json.dumps(answer) if as_json else text)


def _invalid_line(entry: dict[str, Any]) -> str:
    """Returns one problem of a bridge whose settings are invalid, as a line."""
    place = f"{entry['file']}:{entry['line']}" if entry["line"] else entry["file"]
    why = ": ".join(filter(None, (place, entry["key"], entry["reason"]))) + (
        f"; {entry['mend']}" if entry["mend"] else ""
    )
    waiting = f"{count(entry['waiting'])} messages wait for it"
    return (
        f"{entry['bridge'] or 'a bridge'} is set aside: {why} "
        f"({'it runs with its settings of before' if entry['runs_as_before'] else waiting})"
    )


def listed(rows: Sequence[dict[str, Any]], set_aside: Sequence[dict[str, Any]] = ()) -> Iterator[str]:
    """Yields a line for each bridge, and why bridges are not connected, for people."""
    yield from map(_invalid_line, set_aside)
    if not rows and set_aside:
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
    yield from (f"{row['name']}: {text}" for row in rows for text in row["warnings"])
    for row in rows:
        for rule in row["rules"]:
            if rule["refused"]:
                yield f"{row['name']}: {rule['rule']}: refused by {rule['refused']}"


def _remote(row: dict[str, Any]) -> str:
    """Returns the remote's address, or the possible ones."""
    addresses = ", ".join(row["addresses"])
    return f"{row['address']} of {addresses}" if row["address"] and len(row["addresses"]) > 1 else addresses


def _cells(row: dict[str, Any]) -> Sequence[str]:
    dropped_in_queue = sum(number for cause, number in row["spool"]["dropped"].items() if cause in QUEUE_DROPS)
    dropped = dropped_in_queue + sum(row["out"]["dropped"].values()) + sum(row["in"]["dropped"].values())
    return (
        row["name"],
        f"{row['state']}, {row['role']}" if row.get("role") else row["state"],
        row["address"] or ", ".join(row["addresses"]),
        count(row["out"]["messages"]),
        count(row["in"]["messages"]),
        count(row["waiting"]),
        octets(row["waiting_bytes"]),
        count(dropped) if dropped else "-",
    )


def described(row: dict[str, Any]) -> Iterator[str]:
    """Yields all details of one bridge, for people."""
    reason = f": {row['reason']}" if row["reason"] and row["state"] != "open" else ""
    yield f"{row['name']} is {row['state']} since {row['since_s']:.0f} s{reason}"
    if row.get("role"):
        yield f"pair: {row['pair']}, {row['role']} here; this gateway has taken over {row['takeovers']} times"
    yield f"  remote     {_remote(row)}, MQTT {row['version']}, as {row['client_id']}"
    queue = row["spool"]
    oldest = "" if queue["oldest_s"] is None else f", the oldest for {queue['oldest_s']:.0f} s"
    dropped = ", ".join(f"{count(number)} {cause}" for cause, number in queue["dropped"].items()) or "none"
    waiting = f"{count(queue['messages'])} messages, {octets(queue['bytes'])}{on_disk(queue)}{oldest}"
    yield f"  waiting    {waiting}; dropped: {dropped}"
    yield f"  connected  {count(row['connects'])} times; sent again after a lost session: {count(row['sent_again'])}"
    yield from (f"  warning    {text}" for text in row["warnings"])
    if bounds := ", ".join(_bounds(row["toll"])):
        yield f"  may cost   {bounds}"
    for direction in ("out", "in"):
        counters = row[direction]
        losses = [f"{number} {cause}" for cause, number in counters["dropped"].items() if cause != "refused"]
        losses += [f"{number} refused: {why}" for why, number in counters["refused"].items()]  # the same, by reason
        not_carried = ", ".join(losses) or "none"
        untransformed = f", {count(counters['untransformed'])} untransformed" if counters["untransformed"] else ""
        carried = f"{count(counters['messages'])} messages, {octets(counters['bytes'])}{untransformed}"
        yield f"  {direction:9}  {carried}; not carried: {not_carried}"
    for rule in row["rules"]:
        counts = [f"{direction} {count(rule[direction])}" for direction in ("out", "in") if rule[direction] is not None]
        refused = f"; refused by {rule['refused']}" if rule["refused"] else ""
        yield f"  rule       {rule['rule']}: {', '.join(counts)}{refused}"


def _bounds(shaper: dict[str, Any]) -> Iterator[str]:
    """Yields the limits of a bridge, and how much of them is used."""
    if shaper["rate_bytes_s"]:
        yield f"{shaper['rate_bytes_s']:,} bytes a second"
    if shaper["rate_messages_s"]:
        yield f"{shaper['rate_messages_s']:,} messages a second"
    if shaper["bytes_per_day"]:
        yield f"{shaper['spent']:,} of {shaper['bytes_per_day']:,} bytes are spent today"
    if shaper["warning"]:
        yield shaper["warning"]
    if shaper["held"]:
        yield f"{count(shaper['held'])} messages wait for that, {octets(shaper['held_bytes'])}"
    yield from shaper["schedule"]
