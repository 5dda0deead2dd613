"""`/health`, `/status` and `/clients` of a gateway that is not well, and of its clients."""

from __future__ import annotations

import asyncio
import json
import random
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.session.footprint import HeldKind
from edgebridge.session.inflight import Inflight
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.session.session import Session
from edgebridge.wire.packets import Publish
from edgebroker.instants import DAY
from edgebroker.names import ClientId
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http import health
from edgebroker.runtime.http.pages import HttpPages
from edgebroker.runtime.journal.damage_notice import DamageNotice
from edgebroker.runtime.journal.files import LOCK
from edgebroker.runtime.journal.wear import Card, WearTotals
from edgebroker.runtime.loop.lag import LoopLagMonitor
from edgebroker.runtime.loop.reactor import clock

from ..support.gateway_in_process import come, say, with_gateway


async def ask(gateway: Gateway, target: str) -> tuple[HTTPStatus, dict[str, Any]]:
    answer = await HttpPages(gateway.view)(target)
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body)


def close_doors(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway.view.listeners.close()


def be_late(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(health.BEATS_MIN):
        gateway.lag_monitor.record(0.75)


def fill_the_disk(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DISK_FREE_BYTES_MIN", 1 << 60)


def take_the_disk(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Path) -> None:
        raise PermissionError

    monkeypatch.setattr("edgebroker.runtime.http.health.os.statvfs", gone)


def refuse(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gateway.store is not None
    monkeypatch.setattr(gateway.store.journal, "is_refusing", True)
    monkeypatch.setattr(gateway.store.journal, "refusal_reason", "no space left on device")


def empty_the_folder(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gateway.store is not None
    (gateway.store.worker.files.path / LOCK).unlink()


def take_the_folder_away(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gateway.store is not None
    path = gateway.store.worker.files.path
    path.rename(path.with_name("gone"))


def exchange_the_folder(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gateway.store is not None
    path = gateway.store.worker.files.path
    path.rename(path.with_name("gone"))
    path.mkdir()
    (path / LOCK).touch()


@pytest.mark.parametrize(
    ("trouble", "reasons"),
    [
        (close_doors, ["no listener accepts clients"]),
        (be_late, ["the loop is 750 ms late at the 99th percentile"]),
        (fill_the_disk, ["data: * MiB are free in *", "log: * MiB are free in *"]),
        (take_the_disk, ["data: * cannot be looked at", "log: * cannot be looked at"]),
        (empty_the_folder, ["its lock was taken away or exchanged from *data: see that nothing else is*"]),
        (take_the_folder_away, ["*data was taken away or exchanged: put it back, or what is kept is lost*"]),
        (exchange_the_folder, ["*data was taken away or exchanged: put it back, or what is kept is lost*"]),
        (refuse, ["the journal takes nothing: no space left on device"]),
    ],
)
def test_a_gateway_that_is_not_well_says_why(
    trouble: Any, reasons: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(gateway: Gateway) -> None:
        code, found = await ask(gateway, "/health")
        assert (code, found["status"], found["reasons"]) == (HTTPStatus.OK, "ok", [])
        assert found["checks"].keys() == health.report(gateway.view)["checks"].keys()
        with monkeypatch.context() as patched:
            trouble(gateway, patched)
            code, found = await ask(gateway, "/health")
            _, status = await ask(gateway, "/status")
        assert (code, found["status"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "failing")
        assert len(found["reasons"]) == len(reasons)
        for reason, words in zip(found["reasons"], reasons, strict=True):
            assert all(part in reason for part in words.split("*"))
        assert [check["ok"] for check in found["checks"].values()].count(False) == len(reasons)
        said = [[re.sub(r"\d+ MiB", "", reason) for reason in page["reasons"]] for page in (status["health"], found)]
        assert said[0] == said[1], "but for what others wrote to the disk in between"

    with_gateway(story, log_dir=tmp_path / "log", data=tmp_path / "data")


def test_a_process_that_just_started_is_not_judged_by_its_first_beats() -> None:
    monitor = LoopLagMonitor()
    monitor.record(5.0)
    assert monitor.beats_recent < health.BEATS_MIN

    async def story(gateway: Gateway) -> None:
        gateway.lag_monitor.record(5.0)
        code, found = await ask(gateway, "/health")
        assert (code, found["checks"]["loop_lag"]["is_judged"]) == (HTTPStatus.OK, False)

    with_gateway(story)


def test_a_client_shows_what_it_lost_and_why() -> None:
    async def story(gateway: Gateway) -> None:
        writer, away = come(gateway, "writer"), come(gateway, "away", "a")
        gateway.frontend.closed(away, clock())
        for _ in range(3):
            say(gateway, writer, Publish("a", b"x", 0))
        _, found = await ask(gateway, "/clients?sort=client")
        assert [(row["client"], row["dropped"]) for row in found["clients"]] == [
            ("away", {"offline": 3}),
            ("writer", {}),
        ]
        say(gateway, writer, Publish("a", b"x", 0))
        _, found = await ask(gateway, "/clients?sort=subscriptions&limit=1")
        assert found["clients"][0]["dropped"] == {"offline": 4}

    with_gateway(story)


def test_the_journal_is_told_of(tmp_path: Path) -> None:
    async def story(gateway: Gateway) -> None:
        come(gateway, "keeps", "a")
        writer = come(gateway, "writer")
        say(gateway, writer, Publish("a", b"x", 1, packet_id=1))
        gateway.view.reactor.arm_timer()  # nothing came by a door: the deadline of the commit would not be seen
        while (found := (await ask(gateway, "/status"))[1]["journal"])["waiting"] or not found["syncs"]:
            await asyncio.sleep(0.005)
        assert found["lsn"] == found["synced_lsn"] > 0
        assert found["sync_p99_ms"] >= found["sync_p50_ms"] > 0
        assert found["card_bytes"] >= found["written_bytes"] > 0
        assert not found["refusing"]
        assert found["card_years"] is None, "nothing is known before the first hour is over"
        assert gateway.store is not None
        gateway.store.worker.wear.written = WearTotals(running_us=DAY, days=(10**9,), card=Card(64, 3_000))
        _, found = await ask(gateway, "/status")
        assert (found["journal"]["bytes_per_day"], found["journal"]["card_years"]) == (10**9, 525.7)
        body = (await HttpPages(gateway.view)("/metrics")).body
        metrics = body if isinstance(body, bytes) else b"".join([part async for part in body])
        assert b"edgebroker_journal_card_daily_bytes 1000000000" in metrics
        assert b"edgebroker_journal_card_years 525" in metrics

    with_gateway(story, data=tmp_path / "data")


def test_many_who_ask_at_once_share_one_census_at_a_time() -> None:
    async def story(gateway: Gateway) -> None:
        come(gateway, "one", "a")
        pages = HttpPages(gateway.view)
        answers = await asyncio.gather(*(pages(path) for path in ["/metrics", "/status", "/clients", "/health"] * 8))
        assert {answer.status for answer in answers} == {HTTPStatus.OK}

    with_gateway(story)


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_clients_are_whole_however_they_are_cut(count: int) -> None:
    async def story(gateway: Gateway) -> None:
        names = [f"c{number:03}" for number in range(count)]
        for name in names:
            gateway.frontend.connect_handler.sessions[ClientId(name)] = Session(
                ClientId(name), Inflight(1), SessionOutbox(1, 1)
            )
        _, found = await ask(gateway, "/clients?sort=client&limit=1000")
        assert [row["client"] for row in found["clients"]] == names
        assert (found["sessions"], found["sort"]) == (count, "client")

    with_gateway(story)


def test_clients_are_found_by_name_and_state_page_by_page() -> None:
    async def story(gateway: Gateway) -> None:
        for number in range(600):  # more than are looked at in one turn
            name = ClientId(f"{'ab'[number % 2]}{number:03}")
            gateway.frontend.connect_handler.sessions[name] = Session(name, Inflight(1), SessionOutbox(1, 1))
        come(gateway, "a600", "x")
        names: list[str] = []
        while page := (await ask(gateway, f"/clients?client=a*&sort=client&limit=70&after={''.join(names[-1:])}"))[1]:
            if not page["clients"]:
                break
            assert (page["sessions"], page["matched"]) == (601, 301)
            names += [row["client"] for row in page["clients"]]
        assert names == [f"a{number:03}" for number in range(0, 601, 2)]
        _, found = await ask(gateway, "/clients?client=a*&state=connected")
        assert [row["client"] for row in found["clients"]] == ["a600"]
        _, found = await ask(gateway, "/clients?client=b*&state=away&limit=1&sort=subscriptions")
        assert (found["matched"], found["clients"][0]["client"]) == (300, "b001")
        _, found = await ask(gateway, "/client?name=a600")
        assert [(one["filter"], one["qos"]) for one in found["asked"]] == [("x", 1)]

    with_gateway(story)


def test_who_would_get_a_message_is_told_and_why_others_would_not() -> None:
    rules = "topic read t/#\ntopic deny t/secret\ntopic read cold/# where temp < 0\n"

    async def story(gateway: Gateway) -> None:
        gateway.frontend.replace_access(AccessPolicy(rules=AclRights(Acl.parse(rules))), 0)
        come(gateway, "anna", "t/#", "$filter/temp%3E30/t/#", "$share/g/t/+")
        gateway.frontend.closed(come(gateway, "bert", "t/+"), clock())
        come(gateway, "carl", "cold/#")

        async def asked(target: str) -> list[str]:
            _, found = await ask(gateway, f"/readers?topic={target}")
            assert sum(found["answers"].values()) == found["concerned"] == len(found["readers"])
            return [f"{one['client']} {one['filter']}: {one['gets_it']}" for one in found["readers"]]

        both = ["anna $share/g/t/+: in turn", "bert t/+: yes"]
        perhaps = "anna $filter/temp%3E30/t/#: if the content is right"
        assert await asked("t/a") == ["anna t/#: yes", perhaps, *both]
        no = "anna $filter/temp%3E30/t/#: no: content"
        assert await asked('t/a&payload={"temp":30}') == ["anna t/#: yes", no, *both]
        assert (await asked('t/a&payload={"temp":31}'))[1] == "anna $filter/temp%3E30/t/#: yes"
        assert (await asked("t/a&qos=0"))[-1] == "bert t/+: no: away"
        assert {one.partition(": ")[2] for one in await asked("t/secret")} == {"no: not allowed"}
        assert await asked("cold/1") == ["carl cold/#: if the content is right"]
        assert await asked('cold/1&payload={"temp":-1}') == ["carl cold/#: yes"]
        assert await asked('cold/1&payload={"temp":1}') == ["carl cold/#: no: not allowed"]
        assert await asked("nobody") == []

    with_gateway(story)


def test_who_is_blocked_may_come_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebroker.runtime.http.clients.BLOCKED_MAX", 1)
    timers: list[Any] = []

    async def story(gateway: Gateway) -> None:
        come(gateway, "a")
        order = HttpPages(gateway.view).order_routes["/clients"]
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *timer: timers.append(timer))
        answers = [
            await order(f"/clients?do={do}")
            for do in ("block&name=a&seconds=60", "block&name=a&seconds=90", "block&name=b", "unblock&name=b", "block")
        ]
        monkeypatch.undo()
        bodies = [bytes(answer.body).decode() for answer in answers if isinstance(answer.body, bytes)]
        assert [answer.status.value for answer in answers] == [200, 200, 409, 409, 400]
        assert json.loads(bodies[0]) == {
            "client": "a",
            "seconds": 60,
            "disconnected": True,
            "forgotten": "there is no data folder",
        }
        assert bodies[2].startswith("1 clients are blocked, and no more can be")
        assert "did you mean" in bodies[3] or "there are a" in bodies[3]
        [row] = (await ask(gateway, "/blocked"))[1]["blocked"]
        assert (row["client"], 60 < row["ends_in_s"] <= 90) == ("a", True)
        blocked = gateway.frontend.connect_handler.blocked
        for _, work, *arguments in timers:
            assert [*blocked] == ["a"], "the first time was replaced by the second"
            work(*arguments)
        assert ([timer[0] for timer in timers], blocked) == ([60, 90], {})

    with_gateway(story)


def test_many_retained_messages_are_cleared_order_by_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebroker.runtime.http.retained.CLEARED_MAX", 120)

    async def story(gateway: Gateway) -> None:
        writer = come(gateway, "writer")
        for number in range(300):
            say(gateway, writer, Publish(f"t/{number:03}", b"x" * (number % 7 + 1), 0, retain=True))
        _, found = await ask(gateway, "/retained?topic=t/%2B&sort=bytes&limit=2")
        assert (found["matched"], [(one["topic"], one["bytes"]) for one in found["messages"]]) == (
            300,
            [("t/006", 7), ("t/013", 7)],
        )
        clear = HttpPages(gateway.view).order_routes["/retained"]
        cleared = [json.loads(bytes((await clear("/retained?do=clear&topic=t/%23")).body)) for _ in range(3)]  # type: ignore[arg-type]
        assert [(one["cleared"], one["is_all"]) for one in cleared] == [(120, False), (120, False), (60, True)]
        assert (await ask(gateway, "/retained?topic=t/%23"))[1]["matched"] == 0

    with_gateway(story)


def test_any_target_is_answered(chance: random.Random) -> None:
    pieces = [
        "/status",
        "/clients",
        "/client",
        "/retained",
        "/trace",
        "/health",
        "?",
        "&",
        "=",
        "sort",
        "limit",
        "topic",
        "client",
        "#",
        "%",
    ]
    pieces += [
        "%23",
        "%00",
        "a",
        "9" * 5_000,
        "-1",
        "[",
        "]",
        "//",
        ";",
        "\ud800",
        "é",
        "seconds",
        "10",
        "name",
        "after",
        "state",
    ]

    async def story(gateway: Gateway) -> None:
        pages = HttpPages(gateway.view)
        codes = {(await pages("".join(chance.choices(pieces, k=chance.randrange(9))))).status for _ in range(2_000)}
        assert {HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST} <= codes
        assert HTTPStatus.INTERNAL_SERVER_ERROR not in codes
        come(gateway, "a", "#")
        words = [
            *pieces,
            "/clients?do=",
            "block",
            "unblock",
            "end",
            "&seconds=",
            "&name=a",
            "/retained?do=clear",
            "&topic=+",
        ]
        for control in pages.order_routes.values():
            targets = ("".join(chance.choices(words, k=chance.randrange(6))) for _ in range(300))
            codes = {(await control(target)).status for target in targets}
            assert HTTPStatus.INTERNAL_SERVER_ERROR not in codes

    with_gateway(story)


def test_listeners_are_told_of() -> None:
    async def story(gateway: Gateway, port: int) -> None:
        _, found = await ask(gateway, "/status")
        [listener] = found["listeners"]
        assert found["connections"]["turned_away"] == {}
        assert (listener["port"], listener["connections"], listener["certificate_expires"]) == (port, 0, None)
        assert found["held"]["bytes_max"] == gateway.frontend.memory_limit.bytes_max

    with_gateway(story)


def test_memory_is_told_by_kind_and_by_whom_it_is_held() -> None:
    async def story(gateway: Gateway, port: int) -> None:
        accounts = gateway.frontend.memory_limit.accounts
        come(gateway, "a", "#")
        accounts.measure(clock())
        _, found = await ask(gateway, "/status")
        held = found["held"]
        assert sum(held["kinds"].values()) == held["bytes"] > 2_000
        assert held["largest"]["bytes"] < held["bytes"]
        assert found["health"]["warnings"] == []
        accounts.set_bound(held["bytes"] * 5 // 4 - 100)
        accounts.not_restored[HeldKind.RETAINED] = 3
        assert not accounts.admits("user", 1_000_000, HeldKind.WILLS, clock())
        _, found = await ask(gateway, "/status")
        first, second = found["health"]["warnings"]
        assert first.startswith("memory: clients hold")
        assert found["held"]["largest"]["account"] in first
        assert first.endswith("mainly sessions")
        assert second == "memory: 3 retained of the journal had no room in memory and were given up"
        assert found["health"]["status"] == "ok"
        body = (await HttpPages(gateway.view)("/metrics")).body
        page = body if isinstance(body, bytes) else b"".join([part async for part in body])
        assert b'edgebroker_held_kind_bytes{kind="sessions"}' in page
        assert b'edgebroker_memory_refused_total{kind="wills"} 1' in page

    with_gateway(story)


def test_damage_that_nobody_has_acknowledged_is_a_warning(tmp_path: Path) -> None:
    places = [f"segment-{number:04d}.ebj at 0: nothing is left" for number in range(12)]

    async def warned(gateway: Gateway) -> tuple[str, list[str], bytes]:
        status, found = await ask(gateway, "/health")
        assert status is HTTPStatus.OK
        body = (await HttpPages(gateway.view)("/metrics")).body
        metrics = body if isinstance(body, bytes) else b"".join([part async for part in body])
        [line] = [line for line in metrics.splitlines() if line.startswith(b"edgebroker_journal_damaged_places ")]
        return found["status"], found["warnings"], line.split()[1]

    async def story(gateway: Gateway) -> None:
        assert gateway.store is not None
        assert await warned(gateway) == ("ok", [], b"0")
        notice = gateway.store.worker.damage_notice
        notice.record(places)
        status, warnings, count = await warned(gateway)
        assert (status, len(warnings), count) == ("ok", 11, b"12")
        folder = gateway.store.folder
        remedy = f"`edgebroker journal acknowledge {folder}` ends this warning"
        assert warnings[0] == f"the journal was damaged: {places[0]}; {remedy}"
        assert warnings[-1] == "the journal was damaged at 2 more places"
        DamageNotice(folder / "journal").acknowledge()
        assert await warned(gateway) == ("ok", [], b"0")

    with_gateway(story, data=tmp_path / "data")
