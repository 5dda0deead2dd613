"""`edgebroker status`: shows the status of a gateway, once. `top` shows the same text again and again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from edgebroker import PURE_COSTS
from edgebroker.cli.display import count, fitted, octets, on_disk, span
from edgebroker.cli.http_client import GatewayOptions, gateway_options, get_json
from edgebroker.cli.parameters import WordChoice, examples

Status = Mapping[str, Any]

SORTS = {"queue": "QUEUE", "bytes": "BYTES", "inflight": "INFLIGHT", "unsent": "UNSENT", "subscriptions": "SUBS"}
"""Sort keys of clients -> the heading of the column."""
NUMBERS: tuple[tuple[str, str, int, Callable[[float], str]], ...] = (
    ("queue", "QUEUE", 7, count),
    ("bytes", "BYTES", 9, octets),
    ("inflight", "INFLIGHT", 9, count),
    ("unsent", "UNSENT", 9, octets),
    ("subscriptions", "SUBS", 7, count),
)
STATE_WIDTH = 12  # with two spaces before
CLIENT_WIDTH_MIN = 12
TOPICS_SHOWN = 3


def overview(now: Status, before: Status | None, width: int) -> list[str]:
    """Returns the lines above the table of clients. Rates need an earlier status; without one there are only totals."""
    return [fitted(line, width).rstrip() for line in _summary(now, before)]


def table(now: Status, width: int, rows_max: int, sort: str = "queue") -> list[str]:
    """Returns a heading and a line for each listed client; the sorted column is marked."""
    columns_width = sum(size for _, _, size, _ in NUMBERS) + STATE_WIDTH
    name_width = max(width - columns_width, CLIENT_WIDTH_MIN)
    heading = fitted("CLIENT", name_width)
    for key, title, size, _ in NUMBERS:
        heading += f"{title + '*' if key == sort else title:>{size}}"
    lines = [f"{heading}  STATE"]
    for row in now["clients"][:rows_max]:
        numbers = "".join(f"{show(row[key]):>{size}}" for key, _, size, show in NUMBERS)
        lines.append(f"{fitted(row['client'], name_width)}{numbers}  {_state(row)}")
    if not now["clients"]:
        lines.append(f"no client has anything under {SORTS[sort]}")
    return [fitted(line, width).rstrip() for line in lines]


def _summary(now: Status, before: Status | None) -> list[str]:
    health, process = now["health"], now["process"]
    lag = health["checks"]["loop_lag"]
    state = "ok" if health["status"] == "ok" else f"FAILING: {'; '.join(health['reasons'])}"
    messages, copies, sessions = now["messages"], now["copies"], now["sessions"]
    connections, queue, inflight = now["connections"], now["queue"], now["inflight"]
    dropped = copies["dropped"]
    rates = _Rates(now, before)
    refused = {**connections["refusals"], **connections.get("turned_away", {})}
    return [
        f"{now['name']}  edgebroker {now['version']}  up {span(now['uptime_s'])}  {state}",
        f"process   {rates.cpu()}{octets(process['resident_bytes'])} memory, loop late by {lag['p50_ms']:.1f} ms"
        f" (99 %: {lag['p99_ms']:.1f}, worst {lag['max_ms']:.1f})",
        f"clients   {count(sessions['connected'])} connected, {count(sessions['away'])} away;"
        f" {count(now['subscriptions'])} subscriptions; {count(connections['paused'])} read too slowly,"
        f" {count(sum(refused.values()))} refused",
        f"messages  {rates.of('messages', 'published')}published, {count(messages['filtered'])} for nobody,"
        f" {count(messages['refused'])} refused",
        f"copies    {rates.of('copies', 'delivered')}delivered, {count(copies['open'])} open,"
        f" {count(copies['expired'])} expired, {count(sum(dropped.values()))} dropped",
        f"bytes     {rates.octets('received')}in, {rates.octets('sent')}out",
        f"waiting   {count(queue['messages'])} queued ({octets(queue['bytes'])}{on_disk(queue)}),"
        f" {count(inflight['messages'])} in flight, {octets(now['unsent_bytes'])} unsent;"
        f" {count(now['retained']['messages'])} retained ({octets(now['retained']['bytes'])})",
        *_not_accepted(messages),
        *_unreadable(now.get("unreadable", {})),
        f"dropped   {', '.join(f'{cause} {count(number)}' for cause, number in dropped.items()) or 'nothing'}",
        *([f"refused   {', '.join(f'{why} {count(number)}' for why, number in refused.items())}"] if refused else []),
        *_peers(now),
        *_disk(now),
        *([] if now.get("compiled", True) else [f"build     pure Python: {PURE_COSTS}"]),
        *(f"warning   {warning}" for warning in now["health"].get("warnings", ())),
    ]


def _not_accepted(messages: Mapping[str, Any]) -> list[str]:
    causes = [f"{cause} {count(number)}" for cause, number in messages.get("refused_by", {}).items()]
    if not_retained := messages.get("not_retained", 0):
        causes.append(f"not retained {count(not_retained)}")
    return [f"not taken {', '.join(causes)}"] if causes else []


def _unreadable(unreadable: Mapping[str, Any]) -> list[str]:
    """Returns the line about payloads that content filters asked for in vain, with the topics that have most."""
    counts = [f"{count(unreadable[by])} for {by}" for by in ("clients", "gateways") if unreadable.get(by)]
    topics = [f"{topic or 'other topics'} {count(number)}" for topic, number in unreadable.get("topics", {}).items()]
    shown = f": {', '.join(topics[:TOPICS_SHOWN])}" if topics else ""
    return [f"payloads  unreadable {', '.join(counts)}{shown}"] if counts else []


def _peers(now: Status) -> list[str]:
    peers = now.get("peers")
    if peers is None:
        return []
    return [
        f"peers     {peers['up']} of {peers['known']} connected; {count(peers['waiting'])} messages wait for them"
        f" ({octets(peers['waiting_bytes'])}), {count(peers['dropped'])} dropped"
    ]


def _disk(now: Status) -> list[str]:
    journal = now.get("journal")
    if journal is None:
        return []
    trouble = f"; {journal['trouble']}" if journal["trouble"] else ""
    years = journal.get("card_years")
    lasts = "" if years is None else f", {octets(journal['bytes_per_day'])} a day: the card lasts {years:,} years"
    return [
        f"disk      {count(journal['waiting'])} records wait, syncs take {journal['sync_p50_ms']:.1f} ms"
        f" (99 %: {journal['sync_p99_ms']:.1f}), {octets(journal['card_bytes'])} written{lasts}{trouble}"
    ]


class _Rates:
    """Differences to the earlier status, per second."""

    def __init__(self, now: Status, before: Status | None) -> None:
        self._now = now
        # Another process, or the same one asked twice at once: nothing to compare.
        is_same = before is not None and before["pid"] == now["pid"] and before["uptime_s"] < now["uptime_s"]
        self._before = before if is_same else None

    def _rate(self, section: str, key: str) -> float | None:
        if self._before is None:
            return None
        passed = float(self._now["uptime_s"] - self._before["uptime_s"])
        return float(self._now[section][key] - self._before[section][key]) / passed

    def of(self, section: str, key: str) -> str:
        rate, total = self._rate(section, key), count(self._now[section][key])
        return f"{total} " if rate is None else f"{count(rate)}/s, {total} "

    def octets(self, key: str) -> str:
        rate, total = self._rate("bytes", key), octets(self._now["bytes"][key])
        return f"{total} " if rate is None else f"{octets(rate)}/s ({total}) "

    def cpu(self) -> str:
        rate = self._rate("process", "cpu_s")
        return f"{span(self._now['process']['cpu_s'])} of CPU, " if rate is None else f"{100 * rate:.0f} % CPU, "


def _state(row: Mapping[str, Any]) -> str:
    if not row["connected"]:
        return "away"
    return "slow" if row["paused"] else f"MQTT {row['version']}"[: STATE_WIDTH - 2]


ROWS = 10
WIDTH_MAX = 120


@click.command(
    "status", epilog=examples("edgebroker status", "edgebroker status --config site/gateway.toml --sort bytes")
)
@gateway_options("For programs: the answer of /status as it is.")
@click.option("--sort", type=WordChoice(list(SORTS)), default="queue", show_default=True, help="Clients by this.")
def command(gateway: GatewayOptions, sort: str, as_json: bool) -> None:
    """Show how a running gateway is: totals since its start, and the clients that stand out.

    Exit code 0 if it is well, 1 if it says that it is not, 2 if it does not answer.
    """
    answer = get_json(gateway.endpoint(), "/status", sort=sort, limit=ROWS)
    if as_json:
        click.echo(json.dumps(answer))
    else:
        width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
        click.echo("\n".join([*overview(answer, None, width), "", *table(answer, width, ROWS, sort)]))
    sys.exit(0 if answer["health"]["status"] == "ok" else 1)
