"""`edgebroker client`: lists the clients of a running gateway, and disconnects or blocks them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from edgebroker.cli.display import aligned, count, fitted, octets, on_disk, shortened, span
from edgebroker.cli.http_client import (
    GatewayEndpoint,
    GatewayOptions,
    OrderRefused,
    gateway_options,
    get_json,
    post_json,
)
from edgebroker.cli.parameters import DurationType, WordChoice, examples

LIMIT: Final = 100
PAGE_ROWS: Final = 1_000  # rows in one response
NAME_COLUMNS: Final = 48
REASON_COLUMNS: Final = 48
SORTS: Final = ("client", "queue", "bytes", "inflight", "unsent", "subscriptions")
HEADING: Final = ("CLIENT", "STATE", "PEER", "SILENT", "SUBS", "QUEUE", "BYTES", "ON DISK", "INFLIGHT", "DROPPED")


@click.group("client")
def command() -> None:
    """Look at the clients of a running gateway, disconnect them, and end their sessions."""


@command.command(
    "list",
    short_help="List clients, connected or with a session that waits.",
    epilog=examples("edgebroker client list", "edgebroker client list 'pump-*' --state away --sort queue"),
)
@click.argument("pattern", default="*", metavar="[PATTERN]")
@click.option("--state", type=WordChoice(["connected", "away", "slow"]), help="Only those; slow: reads too slowly.")
@click.option("--sort", type=WordChoice(SORTS), default="client", show_default=True, help="The most first, or by name.")
@click.option("--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="Clients in the list.")
@gateway_options()
def list_(pattern: str, state: str | None, sort: str, limit: int, gateway: GatewayOptions, as_json: bool) -> None:
    """List clients, connected or with a session that waits, whose identifier PATTERN matches: 'pump-*'.

    Exit code 0 if there are any, 1 if not, 2 if the gateway does not answer.
    """
    answer = _get_clients(gateway.endpoint(), pattern, state or "", sort, limit)
    click.echo(json.dumps(answer) if as_json else "\n".join(_list_lines(answer, pattern, state)))
    sys.exit(0 if answer["clients"] else 1)


def _get_clients(endpoint: GatewayEndpoint, pattern: str, state: str, sort: str, limit: int) -> dict[str, Any]:
    """Returns one response of `/clients`; sorted by name, with the rows of as many as needed."""
    query: dict[str, str | int] = {"client": pattern, "state": state, "sort": sort}
    answer = get_json(endpoint, "/clients", limit=min(limit, PAGE_ROWS), **query)
    rows = page = answer["clients"]
    while sort == "client" and len(page) == PAGE_ROWS and len(rows) < limit:
        page = get_json(
            endpoint, "/clients", limit=min(limit - len(rows), PAGE_ROWS), after=rows[-1]["client"], **query
        )["clients"]
        rows += page
    return answer


@command.command(
    "show", short_help="Show all there is to know of one client.", epilog=examples("edgebroker client show pump-3")
)
@click.argument("name")
@click.option("--limit", type=click.IntRange(0, 1_000), default=20, show_default=True, help="Lines of each kind.")
@gateway_options()
def show(name: str, limit: int, gateway: GatewayOptions, as_json: bool) -> None:
    """Show all there is to know of one client: its terms, its subscriptions, and what waits for it.

    Messages are shown without their payloads, those first that were sent and are not acknowledged. Exit code 2 if there
    is no such client.
    """
    answer = get_json(gateway.endpoint(), "/client", name=name, limit=limit)
    click.echo(json.dumps(answer) if as_json else "\n".join(_detail_lines(answer)))


@command.command(
    "readers",
    short_help="Show who would get a message of TOPIC now.",
    epilog=examples("edgebroker client readers sensors/a --payload '{\"temp\": 31}'"),
)
@click.argument("topic")
@click.option("--payload", metavar="TEXT", help="What the message says: decides where content filters or rules ask.")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="Of the message.")
@click.option(
    "--limit", type=click.IntRange(0, PAGE_ROWS), default=LIMIT, show_default=True, help="Subscriptions shown."
)
@gateway_options()
def readers(topic: str, payload: str | None, qos: int, limit: int, gateway: GatewayOptions, as_json: bool) -> None:
    """Show who would get a message of TOPIC now, and of those who ask for the topic, why others would not.

    Nothing is published. Exit code 0 if somebody gets it, or may, 1 if nobody does.
    """
    query: dict[str, str | int] = {"topic": topic, "qos": qos, "limit": limit}
    if payload is not None:
        query["payload"] = payload
    answer = get_json(gateway.endpoint(), "/readers", **query)
    click.echo(json.dumps(answer) if as_json else "\n".join(_reader_lines(answer)))
    sys.exit(0 if any(not forecast.startswith("no") for forecast in answer["answers"]) else 1)


@command.command("disconnect", epilog=examples("edgebroker client disconnect pump-3 pump-4"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@gateway_options()
def disconnect(names: Sequence[str], gateway: GatewayOptions, as_json: bool) -> None:
    """End the connections of clients. Their wills go out; sessions that are to last wait for them.

    They may come back at once; `block` keeps them out. A client of MQTT 5 is told 0x98 (administrative
    action). Exit code 1 if one was not connected, 2 if there is none of a name; all others are disconnected.
    """
    were_all_connected = True
    orders = ClientOrders(gateway.endpoint(), "disconnect")
    for name, answer in orders.each(names):
        were_all_connected = were_all_connected and answer["disconnected"]
        outcome = "is disconnected" if answer["disconnected"] else "was not connected"
        click.echo(
            json.dumps(answer) if as_json else f"{name} {outcome}{'; its session waits' * answer['session_kept']}"
        )
    sys.exit(orders.exit_code or (0 if were_all_connected else 1))


@command.command(
    "end",
    short_help="End the sessions of clients, and their connections.",
    epilog=examples("edgebroker client end archive"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@gateway_options()
def end(names: Sequence[str], gateway: GatewayOptions, as_json: bool) -> None:
    """End the sessions of clients, and their connections: subscriptions are forgotten, and what waits is dropped.

    Their wills go out. Exit code 2 if there is none of a name; all others are ended.
    """
    orders = ClientOrders(gateway.endpoint(), "end")
    for name, answer in orders.each(names):
        click.echo(
            json.dumps(answer) if as_json else f"the session of {name} is ended; {answer['dropped']} messages dropped"
        )
    sys.exit(orders.exit_code)


@command.command(
    "move",
    short_help="Send clients to another gateway of the federation.",
    epilog=examples("edgebroker client move pump-3 pump-4 --to south-1"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--to", "target", required=True, metavar="GATEWAY", help="As the topology file calls it.")
@click.option("--for-good", is_flag=True, help="They shall remember it, and come here no more.")
@gateway_options()
def move(names: Sequence[str], target: str, for_good: bool, gateway: GatewayOptions, as_json: bool) -> None:
    """Send clients to another gateway of the federation, and refuse them here for a while; their sessions wait.

    A client of MQTT 5 is told 0x9C (use another server), or 0x9D (server moved) with --for-good, and where to
    connect, as `clients` in the topology file says. One of MQTT 3.1.1 is disconnected. Exit code 1 if one was not
    connected, 2 if one cannot be moved; all others are.
    """
    were_all_connected = True
    orders = ClientOrders(gateway.endpoint(), "move")
    for name, answer in orders.each(names, to=target, for_good="yes" if for_good else "no"):
        were_all_connected = were_all_connected and answer["moved"]
        click.echo(json.dumps(answer) if as_json else move_line(name, answer))
    sys.exit(orders.exit_code or (0 if were_all_connected else 1))


def move_line(name: str, answer: dict[str, Any]) -> str:
    """Returns what became of the order to move a client, for people."""
    if not answer["moved"]:
        return f"{name} was not connected"
    told = f"is told to go to {answer['reference']}" if answer["reference"] else "is disconnected"
    refused = f"; for {span(answer['refused_s'])} it is refused here" if answer["refused_s"] else ""
    return f"{name} {told}{refused}{'; its session waits' * answer['session_kept']}"


@command.command(
    "block",
    short_help="Keep clients out for a while, and disconnect them.",
    epilog=examples("edgebroker client block pump-3 --for 1h --why 'floods the line'"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--for", "duration", type=DurationType(), default="1h", show_default=True, help="90s, 15m, 12h, 30d.")
@click.option("--why", default="", metavar="TEXT", help="What `blocked` and the operator's log say of it.")
@gateway_options()
def block(names: Sequence[str], duration: int, why: str, gateway: GatewayOptions, as_json: bool) -> None:
    """Keep clients out for a while, and disconnect those that are here: by identifier, whoever says it.

    A client of MQTT 5 is told 0x8A (banned). It holds over restarts, where there is a data folder. Who is to stay away
    for good must lose its user. Exit code 2 if one cannot be; all others are.
    """
    orders = ClientOrders(gateway.endpoint(), "block")
    for name, answer in orders.each(names, seconds=str(duration), why=why):
        disconnected = "; it is disconnected" if answer["disconnected"] else ""
        line = f"{name} is kept out for {span(answer['seconds'])}{disconnected}{_restart_note(answer)}"
        click.echo(json.dumps(answer) if as_json else line)
    sys.exit(orders.exit_code)


@command.command("unblock", epilog=examples("edgebroker client unblock pump-3"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@gateway_options()
def unblock(names: Sequence[str], gateway: GatewayOptions, as_json: bool) -> None:
    """Let clients in again. Exit code 2 if one is not blocked; all others are not any more."""
    orders = ClientOrders(gateway.endpoint(), "unblock")
    for name, answer in orders.each(names):
        click.echo(json.dumps(answer) if as_json else f"{name} may come again{_restart_note(answer)}")
    sys.exit(orders.exit_code)


@command.command("blocked", epilog=examples("edgebroker client blocked --json"))
@gateway_options()
def blocked(gateway: GatewayOptions, as_json: bool) -> None:
    """List who is kept out, for how long still, since when, and why."""
    answer = get_json(gateway.endpoint(), "/blocked")
    rows = [
        ("CLIENT", "FOR", "SINCE", "WHY"),
        *(
            (
                _name(row["client"]),
                span(row["ends_in_s"]),
                f"{span(row['since_s'])} ago",
                fitted(row["why"], REASON_COLUMNS).rstrip() or "-",
            )
            for row in answer["blocked"]
        ),
    ]
    click.echo(
        json.dumps(answer) if as_json else "\n".join(aligned(rows)) if answer["blocked"] else "nobody is kept out"
    )


class ClientOrders:
    """One order for several clients: an error for one of them does not stop the others."""

    def __init__(self, endpoint: GatewayEndpoint, order: str) -> None:
        self.exit_code = 0
        """2 if an order was refused."""
        self._endpoint = endpoint
        self._order = order

    def each(self, names: Sequence[str], **query: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each name and the response; refusals are printed instead. Raises GatewayNoAnswer,
        GatewayAnswerInvalid.
        """
        for name in dict.fromkeys(names):
            try:
                answer = post_json(self._endpoint, "/clients", do=self._order, name=name, **query)
            except OrderRefused as refused:
                self.exit_code = refused.exit_code
                refused.show()
            else:
                yield name, answer


def _restart_note(answer: dict[str, Any]) -> str:
    """Returns a note that a restart will forget the change, if it will."""
    return f"; a restart forgets that: {answer['forgotten']}" if answer.get("forgotten") else ""


def _name(text: str) -> str:
    return shortened(text, NAME_COLUMNS)


def _state(row: dict[str, Any]) -> str:
    if not row["connected"]:
        return "away"
    return f"{'slow, ' if row['paused'] else ''}MQTT {row['version']}"


def _list_lines(answer: dict[str, Any], pattern: str, state: str | None) -> Iterator[str]:
    """Yields a line for each client, for people."""
    rows, matched = answer["clients"], answer["matched"]
    if rows:
        yield from aligned([HEADING, *map(_cells, rows)])
    if matched > len(rows):
        yield f"{matched - len(rows):,} more; see --limit"
    if not rows:
        yield _why_empty(answer["sessions"], pattern, state)


def _why_empty(clients: int, pattern: str, state: str | None) -> str:
    """Returns why the list is empty."""
    if not clients:
        return "there are no clients"
    conditions = [f"matches {pattern!r}"] * (pattern != "*") + [f"is {state}"] * (state is not None)
    return f"none of {clients:,} clients {' and '.join(conditions)}"


def _cells(row: dict[str, Any]) -> Sequence[str]:
    dropped = sum(row["dropped"].values())
    return (
        _name(row["client"]),
        _state(row),
        row["peer"] or "-",
        "-" if row["silent_s"] is None else span(row["silent_s"]),
        count(row["subscriptions"]),
        count(row["queue"]),
        octets(row["bytes"]),
        octets(row["paged_bytes"]) if row["paged_bytes"] else "-",
        count(row["inflight"]),
        count(dropped) if dropped else "-",
    )


def _roaming(roams: dict[str, Any]) -> str:
    """Returns where a session that moves between gateways comes from, and where it goes to."""
    parts = []
    if roams["from"]:
        behind = f"; {count(roams['held'])} messages wait behind it" if roams["held"] else ""
        parts.append(f"still comes from {', '.join(roams['from'])}{behind}")
    if roams["to"] is not None:
        parts.append(f"goes to {roams['to']}, where its client is")
    return ", and ".join(parts)


def _detail_lines(row: dict[str, Any]) -> Iterator[str]:
    """Yields all details of one client, for people."""
    name = shortened(row["client"])
    if row["connected"]:
        yield f"{name} is connected: {_state(row)} from {row['peer']}, by {row['listener']}"
        keep_alive = f"keep alive {row['keep_alive_s']:.0f} s" if row["keep_alive_s"] else "no keep alive"
        yield f"  heard      {span(row['silent_s'])} ago, {keep_alive}; {octets(row['unsent'])} unsent"
        lifetime = (
            f"lasts {span(row['expiry_s'])} after its connection" if row["expiry_s"] else "ends with its connection"
        )
    else:
        yield f"{name} is away for {span(row['away_s'])}"
        lifetime = f"ends in {span(row['ends_in_s'])}"
    yield f"  session    {lifetime}; kept: {row['durability']}"
    if (will := row["will"]) is not None:
        delay = f", after {span(will['delay_s'])}" if will["delay_s"] else ""
        yield f"  will       {_name(will['topic'])}, QoS {will['qos']}, {octets(will['bytes'])}{delay}"
    if (moved := row["moved"]) is not None:
        refused = f", refused here for {span(moved['refused_s'])}" if moved["refused_s"] else ""
        yield f"  moved      to {moved['to']} ({moved['way'].replace('_', ' ')}): {moved['outcome']}{refused}"
    if (roams := row["roams"]) is not None:
        yield f"  roams      {_roaming(roams)}"
    unreleased = row["qos_2_unreleased"]
    yield f"  sent       {count(row['inflight'])} not acknowledged, at most {count(row['window'])}"
    yield f"  waiting    {count(row['queue'])} messages, {octets(row['bytes'])}{on_disk(row)}"
    if unreleased:
        yield f"  received   {count(unreleased)} QoS 2 messages not released"
    dropped = ", ".join(f"{count(number)} {cause}" for cause, number in row["dropped"].items())
    yield f"  dropped    {dropped or 'none'}"
    subscriptions, messages = row["asked"], row["messages"]
    yield from (f"  subscribed {_subscription(subscription)}" for subscription in subscriptions)
    if row["subscriptions"] > len(subscriptions):
        yield f"  subscribed to {row['subscriptions'] - len(subscriptions):,} more; see --limit"
    if messages:
        yield from (
            f"  {line}"
            for line in aligned([("MESSAGE", "STATE", "QOS", "BYTES", "AGE", "OF"), *map(_message, messages)])
        )
    if (more := row["queue"] + row["inflight"] - len(messages)) > 0:
        yield f"  {more:,} more messages; see --limit"


def _reader_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each subscription, for people."""
    rows = [
        (_name(row["client"]), "here" if row["connected"] else "away", str(row["qos"]), row["gets_it"], _label(row))
        for row in answer["readers"]
    ]
    if rows:
        yield from aligned([("CLIENT", "STATE", "QOS", "GETS IT", "SUBSCRIPTION"), *rows])
    if (more := answer["concerned"] - len(rows)) > 0:
        yield f"{more:,} more; see --limit"
    if not answer["concerned"]:
        yield f"nobody here asks for {shortened(answer['topic'])}"


def _label(row: dict[str, Any]) -> str:
    return shortened(row["label"])


def _subscription(row: dict[str, Any]) -> str:
    options = [f"QoS {row['qos']}"]
    options += ["no local"] * row["no_local"] + ["retain as published"] * row["as_published"]
    options += [f"identifier {row['identifier']}"] if row["identifier"] else []
    return f"{_label(row)} ({', '.join(options)})"


def _message(row: dict[str, Any]) -> Sequence[str]:
    return (
        _name(row["topic"]),
        row["state"],
        str(row["qos"]),
        octets(row["bytes"]),
        span(row["age_s"]),
        _name(row["publisher"]),
    )
