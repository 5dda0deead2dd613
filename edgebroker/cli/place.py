"""`edgebroker place`: shows which publishers should be at another gateway of the federation, and moves them.

A plan is the answer of `/place`. What has changed since it was made is found by comparing it with a new one.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

import click

from edgebroker.cli import Refused
from edgebroker.cli.clients import move_line
from edgebroker.cli.display import aligned, count, octets, shortened, span
from edgebroker.cli.http_client import (
    GatewayAnswerInvalid,
    GatewayEndpoint,
    GatewayOptions,
    OrderRefused,
    gateway_options,
    get_json,
    post_json,
)
from edgebroker.cli.parameters import HttpAddress, HttpAddressType, examples

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
PLAN_AGE_S_MAX: Final = 3_600
"""An older plan is refused."""
GAIN_CHANGE_MAX: Final = 0.25
"""By what share of itself the predicted gain may have changed since the plan was made."""
RATE: Final = 6.0
"""Moves a minute. A client that moves, connects anew and takes its session along; its readers notice a pause."""
HEADING: Final = ("PUBLISHER", "AT", "BETTER AT", "DELAY", "GATEWAYS ENTERED", "UPLINKS/MIN", "WAY", "SESSIONS", "AGE")
REASONS: Final = {
    "best": "its gateway is the best one",
    "gain": "it would gain too little",
    "partial": "a gateway did not answer",
    "detours": "too many of its messages were on a detour",
    "recent": "it has moved a short time ago",
    "excluded": "relocation.exclude names it",
    "unseen": "too little is known of it yet",
}


@click.group("place")
def command() -> None:
    """Look at which publishers should be at another gateway of the federation, and move them there."""


@command.command(
    "plan",
    short_help="Show which publishers should be at another gateway, and why.",
    epilog=examples("edgebroker place plan", "edgebroker place plan --all --json > plan.json"),
)
@click.option("--all", "is_all", is_flag=True, help="Show the publishers of every gateway of the federation.")
@click.option(
    "--limit", type=click.IntRange(0, LIMIT_MAX), default=LIMIT, show_default=True, help="Publishers in the list."
)
@gateway_options("For programs: the answer of /place as it is.")
def plan(gateway: GatewayOptions, as_json: bool, is_all: bool, limit: int) -> None:
    """Show which publishers of a running gateway should be at another one, those that gain most first.

    DELAY is the mean time from a publisher to its readers, now and after the move; GATEWAYS ENTERED counts them for one
    message, the mean; UPLINKS/MIN are the bytes of payloads that cross from site to site in a minute. WAY is how the
    client is moved: server reference, if it is told where to go; reconnect, if it is disconnected and refused for a
    while (MQTT 3.1.1); or none, and --json says why. SESSIONS have been recorded of it, and AGE ago the last one that
    counts.

    What --json prints is the PLAN for `apply`.

    With --all the gateway asks all others over its links, and each names 50 publishers at most.

    Exit code 0 if the gateway answers, 1 if relocation.mode is "off" there, or with --all if another one does not
    answer; 2 if the gateway does not answer or has no peers.
    """
    answer = get_json(gateway.endpoint(), "/place", all="yes" if is_all else "no", limit=limit)
    click.echo(json.dumps(answer) if as_json else "\n".join(_lines(answer)))
    is_off = all(one["mode"] == "off" for one in answer["gateways"])
    sys.exit(1 if is_off or answer["unreached"] else 0)


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yields lines for people."""
    gateways = answer["gateways"]
    rows = [(one["name"], row) for one in gateways for row in one["proposals"]]
    if rows:
        yield from aligned([HEADING, *(_cells(name, row) for name, row in rows)])
        yield ""
    for one in gateways:
        if one["mode"] == "off":
            yield f'{one["name"]}: relocation.mode is "off"'
            continue
        share = f"{count(one['proposed'])} of {count(one['publishers'])} publishers should be elsewhere"
        yield f"{one['name']}: {share} ({one['priority']} first, weight {one['weight']}, gain {one['gain_min']} %)"
        if one["proposed"] > len(one["proposals"]):
            yield f"  {count(len(one['proposals']))} of them are shown"
        if one["mode"] == "apply":
            yield from _automatic_lines(one)
        for name, number in one["stays"].items():
            if number:
                yield f"  {count(number)} stay: {REASONS.get(name, name)}"
        if one.get("untracked"):
            yield f"  {count(one['untracked'])} were not looked at: there are too many"
    for one in answer["unreached"]:
        yield f"{one['name']} is missing: {one['reason']}"


def _automatic_lines(one: dict[str, Any]) -> Iterator[str]:
    """Yields whom the gateway moves itself, and why it leaves others."""
    reasons = Counter(row.get("automatic", "") for row in one["proposals"])
    per_minute, wait_s = one["moves_per_minute"], one["next_move_s"]
    when = f", the next one in {span(wait_s)} at the earliest" if wait_s else ""
    yield f"  {count(reasons.pop('', 0))} of these it moves itself, {per_minute} in a minute{when}"
    for reason, number in reasons.items():
        yield f"  {count(number)} it does not: {reason}"


def _cells(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    delay, load, confidence = row["delay_ms"], row["load"], row["confidence"]
    here = sum(one["bytes_per_minute"]["here"] for one in row["uplinks"])
    there = sum(one["bytes_per_minute"]["there"] for one in row["uplinks"])
    unusable = f" ({confidence['unusable']} unusable)" if confidence["unusable"] else ""
    return (
        shortened(row["client"], 40),
        name,
        row["to"],
        f"{delay['here']:.1f} -> {delay['there']:.1f} ms",
        f"{load['here']:.2f} -> {load['there']:.2f}",
        f"{octets(here)} -> {octets(there)}",
        row["way"],
        f"{confidence['sessions']}{unusable}",
        span(confidence["age_s"]),
    )


# -- apply -------------------------------------------------------------------------------------------------------------


class PlannedMove(NamedTuple):
    """One line of a plan, or of the plan as it is now."""

    client: str
    gateway: str
    """To which it should go."""
    way: str
    why_none: str
    gains: dict[str, float]
    """Quantity -> by how many percent it gets less, as predicted."""

    def drift(self, now: PlannedMove) -> str:
        """Returns what has changed, or an empty text. *now*: the proposal for the same client as it is now."""
        if now.gateway != self.gateway:
            return f"the best gateway for it is {now.gateway} now"
        quantity = max(self.gains, key=lambda name: self.gains[name])
        before, after = self.gains[quantity], now.gains[quantity]
        if abs(after - before) > GAIN_CHANGE_MAX * abs(before):
            return f"it would gain {after:.0f} % of {quantity} now, and not {before:.0f} %"
        return ""


class PlacementPlan(NamedTuple):
    """A plan: who asked for it and when, and the moves by the gateway where the publishers are."""

    unix_s: int
    """The clock of the gateway that made it."""
    name: str
    """The gateway that made it."""
    moves: dict[str, dict[str, PlannedMove]]
    """Gateway -> client -> its move, in the order in which they gain."""

    @classmethod
    def parse(cls, answer: Any) -> PlacementPlan:
        """Reads the answer of `/place`. Raises ValueError."""
        try:
            return cls(
                int(answer["unix_s"]),
                str(answer["name"]),
                {
                    str(one["name"]): {row["client"]: _planned_move(row) for row in one["proposals"]}
                    for one in answer["gateways"]
                },
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it has no {error}") from None


def _planned_move(row: dict[str, Any]) -> PlannedMove:
    gains = {str(name): float(row["gain_percent"][name]) for name in ("delay", "load")}
    return PlannedMove(str(row["client"]), str(row["to"]), str(row["way"]), str(row.get("why_none", "")), gains)


@command.command(
    "apply",
    short_help="Move the publishers of a plan, as far as it still holds.",
    epilog=examples(
        "edgebroker place plan --json > plan.json", "edgebroker place apply plan.json --rate 2 --only pump-3"
    ),
)
@click.argument("plan_file", type=click.File("rb"), metavar="PLAN")
@click.option(
    "--rate", type=click.FloatRange(0, 600, min_open=True), default=RATE, show_default=True, help="Moves a minute."
)
@click.option("--only", multiple=True, metavar="CLIENT", help="Move this publisher of the plan; may be repeated.")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask first.")
@gateway_options("For programs: a line of JSON for each publisher.")
def apply(
    plan_file: IO[bytes], rate: float, only: Sequence[str], is_agreed: bool, gateway: GatewayOptions, as_json: bool
) -> None:
    """Move the publishers of a running gateway as PLAN says, one after the other. PLAN is what `plan --json` printed.

    The gateway is asked for its plan as it is now. A publisher is left where it is if it is not there any more, if
    another gateway is the best one by now, or if the predicted gain has changed by more than a quarter. A plan that is
    older than an hour is refused. Ctrl-C pauses: the same command goes on, and skips who has been moved.

    Exit code 0 if all are moved, 1 if one was left, 2 if the plan cannot be read or the gateway does not answer.
    """
    endpoint = gateway.endpoint()
    try:
        plan = PlacementPlan.parse(json.loads(plan_file.read()))
    except ValueError as error:
        raise Refused(f"{plan_file.name} is no plan of `edgebroker place plan --json`: {error}") from None
    now = _plan_now(endpoint)
    if now.unix_s - plan.unix_s > PLAN_AGE_S_MAX:
        age = span(now.unix_s - plan.unix_s)
        click.echo(f"{plan_file.name} is {age} old, and holds for {span(PLAN_AGE_S_MAX)}; make a new one", err=True)
        sys.exit(1)
    mine = plan.moves.get(now.name, {})
    if missing := [name for name in only if name not in mine]:
        raise Refused(f"{plan_file.name} has no move of {missing[0]} from {now.name}")
    progress = MoveProgress(as_json)
    for name, moves in plan.moves.items():
        if name != now.name and moves and not only:
            progress.note(f"{count(len(moves))} of the plan are at {name}: apply it there, too")
    chosen = [move for move in mine.values() if not only or move.client in only]
    todo = _still_valid(endpoint, now, chosen, progress)
    if todo and not is_agreed:
        click.confirm(f"move {count(len(todo))} publishers from {now.name}?", abort=True, err=True)
    orders = [(endpoint, move.client, move.gateway) for move in todo]
    progress.execute(orders, rate, "/place", plan=f"{plan.name} {plan.unix_s}")
    sys.exit(progress.exit_code)


def _plan_now(endpoint: GatewayEndpoint) -> PlacementPlan:
    """Returns the gateway's plan as it is now. Raises GatewayNoAnswer, GatewayAnswerInvalid."""
    try:
        return PlacementPlan.parse(get_json(endpoint, "/place", limit=LIMIT_MAX))
    except ValueError as error:
        raise GatewayAnswerInvalid(f"{endpoint} makes plans of another version: {error}") from None


def _still_valid(
    endpoint: GatewayEndpoint, now: PlacementPlan, chosen: Sequence[PlannedMove], progress: MoveProgress
) -> list[PlannedMove]:
    """Returns those of *chosen* that still hold; says of the others why not."""
    proposals, moved = now.moves.get(now.name, {}), _moved(endpoint)
    valid: list[PlannedMove] = []
    for move in chosen:
        proposal, at = proposals.get(move.client), (move.client, move.gateway)
        if moved.get(move.client) == move.gateway:
            progress.skipped(*at, "it has been moved")
        elif proposal is None:
            progress.left(*at, _why_gone(endpoint, now.name, move.client))
        elif why := move.drift(proposal):
            progress.left(*at, why)
        elif proposal.way == "none":
            progress.left(*at, proposal.why_none)
        else:
            valid.append(move)
    return valid


def _moved(endpoint: GatewayEndpoint) -> dict[str, str]:
    """Returns the clients that were moved and are not back, and to which gateway."""
    rows = get_json(endpoint, "/place/history")["moves"]
    return {row["client"]: row["to"] for row in reversed(rows) if row["outcome"] != "returned"}


def _why_gone(endpoint: GatewayEndpoint, gateway: str, client: str) -> str:
    """Returns why there is no proposal for *client* any more."""
    try:
        is_connected = get_json(endpoint, "/client", name=client, limit=0)["connected"]
    except GatewayAnswerInvalid:
        is_connected = False
    return "there is no better gateway for it now" if is_connected else f"it is not connected to {gateway} now"


class MoveProgress:
    """What became of each move, as lines for people or programs."""

    def __init__(self, as_json: bool) -> None:
        self.exit_code = 0
        """1 if a client was left."""
        self._as_json = as_json

    def note(self, text: str) -> None:
        """Tells people something about the whole."""
        if not self._as_json:
            click.echo(text)

    def skipped(self, client: str, gateway: str, why: str) -> None:
        """Says that *client* needs no move to *gateway*, and why."""
        self._tell(client, gateway, "skipped", f"{client}: {why}", why=why)

    def left(self, client: str, gateway: str, why: str) -> None:
        """Says that *client* is not sent to *gateway*, and why."""
        self.exit_code = 1
        self._tell(client, gateway, "left", f"{client} is left: {why}", why=why)

    def execute(self, orders: Sequence[tuple[GatewayEndpoint, str, str]], rate: float, path: str, **query: str) -> None:
        """Gives *orders*, each for a client to go to a gateway, at *rate* a minute. Ctrl-C ends it between two of
        them.
        """
        done = 0
        try:
            for endpoint, client, gateway in orders:
                if done:
                    time.sleep(60 / rate)
                self._order(endpoint, path, client, gateway, query, f"{done + 1}/{len(orders)} ")
                done += 1
        except KeyboardInterrupt:
            for _, client, gateway in orders[done:]:
                self.left(client, gateway, "paused before its turn")

    def _order(
        self, endpoint: GatewayEndpoint, path: str, client: str, gateway: str, query: Mapping[str, str], head: str
    ) -> None:
        try:
            answer = post_json(endpoint, path, do="move", name=client, to=gateway, **query)
        except OrderRefused as refused:
            self.left(client, gateway, refused.message)
            return
        if not answer["moved"]:
            self.left(client, gateway, "it was not connected")
            return
        forgotten = f"; a restart forgets that: {answer['forgotten']}" if answer.get("forgotten") else ""
        self._tell(client, gateway, "moved", f"{head}{move_line(client, answer)}{forgotten}", answer=answer)

    def _tell(self, client: str, gateway: str, outcome: str, line: str, **more: Any) -> None:
        row = {"client": client, "to": gateway, "outcome": outcome, **more}
        click.echo(json.dumps(row) if self._as_json else line)


# -- what was applied --------------------------------------------------------------------------------------------------


@command.command(
    "history",
    short_help="Show which publishers were moved, and what came of it.",
    epilog=examples("edgebroker place history"),
)
@gateway_options()
def history(gateway: GatewayOptions, as_json: bool) -> None:
    """Show which publishers were moved away from a running gateway by plans, the latest first, at most 200.

    DELAY is the mean time from the publisher's gateway to its readers, and UPLINK BYTES are those of the payload of one
    message that cross from site to site, the mean, like GATEWAYS ENTERED. Each is as it was, as it was predicted, and
    as a trace session at the new gateway says, which is asked; - if none has ended yet. PAUSE is how long the
    client had no connection. Exit code 0 if there are any, 1 if not.
    """
    answer = get_json(gateway.endpoint(), "/place/history", all="yes")
    moves = answer["moves"]
    if as_json:
        click.echo(json.dumps(answer))
    elif moves:
        heading = ("PUBLISHER", "TO", "WHEN", "WAY", "OUTCOME", "PAUSE", "DELAY", "GATEWAYS ENTERED", "UPLINK BYTES")
        click.echo("\n".join(aligned([heading, *map(_history_cells, moves)])))
    else:
        click.echo(f"no plan has moved a publisher away from {answer['name']}")
    sys.exit(0 if moves else 1)


def _history_cells(row: dict[str, Any]) -> tuple[str, ...]:
    pause_ms = row["pause_ms"]
    return (
        shortened(row["client"], 40),
        row["to"],
        f"{span(row['ago_s'])} ago",
        row["way"].replace("_", " "),
        row["outcome"],
        "-" if pause_ms is None else f"{pause_ms:,.0f} ms",
        f"{_figures(row, 'delay_ms', 1)} ms",
        _figures(row, "load", 2),
        _figures(row, "uplink_bytes", 0),
    )


def _figures(row: dict[str, Any], name: str, digits: int) -> str:
    """Returns a quantity as it was, as it was predicted, and as it is."""
    costs, realised = row[name], row["realised"]
    found = "-" if realised is None else f"{realised[name]:.{digits}f}"
    return f"{costs['here']:.{digits}f} -> {costs['there']:.{digits}f}, {found}"


class GatewayAddressType(click.ParamType[tuple[str, HttpAddress]]):
    """Reads `NAME=[HOST:]PORT`."""

    name = "GATEWAY=[HOST:]PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, HttpAddress]:
        name, _, address = str(value).partition("=")
        if not name or not address:
            self.fail(f"{value!r} is no gateway and its address; write gw-yard=10.0.0.7:9883", param, ctx)
        return name, HttpAddressType().convert(address, param, ctx)


@command.command(
    "undo",
    short_help="Send the publishers of the last applied plan back.",
    epilog=examples("edgebroker place undo --at gw-yard=10.0.0.7:9883"),
)
@click.option(
    "--at", "others", type=GatewayAddressType(), multiple=True, help="Where a gateway has its HTTP interface."
)
@click.option(
    "--rate", type=click.FloatRange(0, 600, min_open=True), default=RATE, show_default=True, help="Moves a minute."
)
@click.option("--only", multiple=True, metavar="CLIENT", help="Send back this publisher alone; may be repeated.")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask first.")
@gateway_options("For programs: a line of JSON for each publisher.")
def undo(
    others: Sequence[tuple[str, HttpAddress]],
    rate: float,
    only: Sequence[str],
    is_agreed: bool,
    gateway: GatewayOptions,
    as_json: bool,
) -> None:
    """Send the publishers that the last plan moved away from a running gateway back to it. All that the gateway moved
    itself (relocation.mode = "apply") is one plan.

    The gateway knows who was moved where. The order is for the gateway where the client is now: --at says where that
    has its HTTP interface, which takes the same token. Without --at, publishers are only listed, with what to do. Who
    is back already is left alone.

    Exit code 0 if all are on their way back, 1 if one is not, 2 if a gateway does not answer.
    """
    answer = get_json(gateway.endpoint(), "/place/history")
    home, moves, known, progress = answer["name"], answer["moves"], dict(others), MoveProgress(as_json)
    gone = [row for row in moves if not only or row["client"] in only]
    last = [row for row in gone if row["plan"] == gone[0]["plan"] and row["outcome"] not in ("returned", "moved again")]
    orders: list[tuple[GatewayEndpoint, str, str]] = []
    for row in last:
        if row["to"] in known:
            endpoint = gateway.endpoint()._replace(address=known[row["to"]])
            orders.append((endpoint, row["client"], home))
        else:
            progress.left(row["client"], home, f"it was sent to {row['to']}; say --at {row['to']}=HOST:PORT")
    if not last:
        progress.note(f"nobody is away from {home} because of the last plan")
    if orders and not is_agreed:
        click.confirm(f"send {count(len(orders))} publishers back to {home}?", abort=True, err=True)
    progress.execute(orders, rate, "/clients")
    sys.exit(progress.exit_code)
