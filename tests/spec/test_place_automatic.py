"""`relocation.mode = "apply"`: which publishers a gateway moves itself and when, and what it finds out of moves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgebroker.instants import HOUR, MINUTE, SECOND
from edgebroker.overlay.advertisements import LocalPublisher
from edgebroker.relocation import automatic_moves as automatic_module
from edgebroker.relocation.automatic_moves import AutomaticMoves, AutomaticStay
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.metrics import metrics_page
from edgebroker.runtime.http.pages import HttpPages
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.peers.status import encode_report
from edgebroker.runtime.placement_history import AUTOMATIC
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog

from ..support.gateway_in_process import come
from .test_place_apply import ESTIMATE, run, with_publishers

# -- the bounds --------------------------------------------------------------------------------------------------------


def test_nobody_is_moved_for_ten_minutes_after_the_start_and_then_so_many_a_minute() -> None:
    moves = AutomaticMoves(SECOND)
    assert not moves.is_due(10 * MINUTE)
    assert moves.is_due(10 * MINUTE + SECOND)
    moves.note("pump", 4, 11 * MINUTE)
    assert (moves.made, moves.is_due(11 * MINUTE + 14 * SECOND), moves.is_due(11 * MINUTE + 15 * SECOND)) == (
        1,
        False,
        True,
    )


def test_a_publisher_is_moved_once_in_six_hours_if_two_sessions_agree_and_its_session_moves_too() -> None:
    moves, now = AutomaticMoves(0), HOUR

    def stay(confirmations: int = 2, has_way: bool = True, has_session: bool = True, now: int = now) -> str:
        return moves.stay("pump", confirmations, has_way, has_session, now)

    assert stay() == ""
    assert stay(confirmations=1) == AutomaticStay.UNCONFIRMED.value
    assert stay(has_way=False) == AutomaticStay.NO_WAY.value
    assert stay(has_session=False) == AutomaticStay.NO_SESSION.value
    moves.remember("pump", now - 2 * HOUR)
    assert stay() == AutomaticStay.MOVED.value
    assert stay(now=now + 4 * HOUR) == ""


def test_only_so_many_moves_are_remembered_and_until_then_nobody_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic_module, "MOVED_MAX", 2)
    moves = AutomaticMoves(0)
    moves.remember("pump", HOUR)
    moves.remember("fan", 2 * HOUR)
    assert not moves.is_due(3 * HOUR)
    assert moves.is_due(7 * HOUR)


# -- a gateway ---------------------------------------------------------------------------------------------------------


class AutomaticGateway:
    """gw-there of `with_publishers`, whose clock is what a test says; two trace sessions of its publishers agree."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        assert gateway.peer_manager is not None
        assert gateway.view.placements is not None
        self.runner, self.peer_manager, self._gateway = gateway.view.placements, gateway.peer_manager, gateway
        self.runner.stop()  # `step` is called by the test alone
        for one in self.peer_manager.overlay.peers.relocation.publishers:
            one.confirmations = 2
        self._began = clock()
        self.asked = 0
        """How often other gateways were asked what publishers cost there; `measured`: what gw-here answers."""
        self.measured: list[dict[str, Any]] = []
        monkeypatch.setattr(self.peer_manager, "query_all", self._query_all)

    async def _query_all(self) -> dict[str, bytes]:
        self.asked += 1
        return {"gw-here": encode_report([], {"measured": self.measured})}

    async def set_mode(self, mode: str) -> None:
        assert self._gateway.reloader is not None
        settings = self._gateway.reloader.settings
        relocation = replace(settings.relocation, mode=mode)
        assert not (await self._gateway.reloader.apply(replace(settings, relocation=relocation))).problems

    async def step(self, after: int) -> None:
        await self.runner.step(self._began + after)

    async def page(self, path: str) -> Any:
        body = (await HttpPages(self._gateway.view)(path)).body
        assert isinstance(body, bytes)
        return json.loads(body)

    async def history(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.page("/place/history"))["moves"]
        return rows

    async def reasons(self) -> dict[str, str]:
        """Client -> why it is not moved."""
        [answer] = (await self.page("/place"))["gateways"]
        return {row["client"]: row["automatic"] for row in answer["proposals"]}


def test_a_gateway_moves_whom_the_plan_shows_until_it_is_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(gateway: Gateway, http: str) -> None:
        automatic = AutomaticGateway(gateway, monkeypatch)
        come(gateway, "belt")
        relocation = automatic.peer_manager.overlay.peers.relocation
        relocation.add(LocalPublisher("belt", 9, 0), clock())
        for one in relocation.publishers:
            one.estimate, one.confirmations, one.due = one.estimate or replace(ESTIMATE, load_there=150), 2, None
        await automatic.step(11 * MINUTE)
        assert await automatic.history() == [], 'with "propose" it moves nobody'
        await automatic.set_mode("apply")
        no_session, no_way = AutomaticStay.NO_SESSION.value, AutomaticStay.NO_WAY.value
        assert await automatic.reasons() == {"pump": "", "belt": "", "fan": no_session, "bert": no_way}
        await automatic.step(9 * MINUTE)
        assert await automatic.history() == []
        await automatic.step(11 * MINUTE)
        await automatic.step(11 * MINUTE + 9 * SECOND)
        assert [(row["client"], row["to"], row["plan"]) for row in await automatic.history()] == [
            ("pump", "gw-here", AUTOMATIC)
        ]
        assert (await automatic.reasons())["pump"] == no_way
        await automatic.set_mode("propose")
        await automatic.step(12 * MINUTE)
        assert len(await automatic.history()) == 1, "it is paused"
        await automatic.set_mode("apply")
        await automatic.step(13 * MINUTE)
        assert [row["client"] for row in await automatic.history()] == ["belt", "pump"]
        gateway.frontend.connect_handler.moves.arrived("pump", clock())
        come(gateway, "pump")
        await automatic.step(14 * MINUTE)
        assert len(await automatic.history()) == 2, "who is back stays"
        assert (await automatic.reasons())["pump"] == AutomaticStay.MOVED.value
        text = (await metrics_page(gateway.view)).decode()
        assert "edgebroker_relocation_automatic_moves_total 2" in text
        code, lines = await asyncio.to_thread(run, "plan", "--http", http)
        assert code == 0
        assert any(line.startswith("  0 of these it moves itself, 6 in a minute, the next one in ") for line in lines)
        told = [line.partition("it does not: ")[2] for line in lines if "it does not" in line]
        assert sorted(told) == sorted([no_way, no_session, AutomaticStay.MOVED.value])

    with_publishers(tmp_path, story, data=tmp_path / "data")


def test_what_a_publisher_costs_at_its_new_gateway_is_asked_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int] = []
    log = DeliveryLog("gw-there", "b")
    row = {"client": "pump", "delay_ms": 1.1, "load": 1.0, "uplink_bytes": 0.0, "age_s": 0.0}

    async def first(gateway: Gateway, http: str) -> None:
        automatic = AutomaticGateway(gateway, monkeypatch)
        gateway.ledger.set_log(log)
        await automatic.set_mode("apply")
        for after in (11, 12, 12, 13):
            answers.append(automatic.asked)
            await automatic.step(after * MINUTE)
            automatic.measured = [row] if after == 12 else []
        [move] = await automatic.history()
        assert (move["client"], move["outcome"], move["delay_ms"], move["realised"]) == (
            "pump",
            "arrived",
            {"here": 4.0, "there": 1.0},
            {"delay_ms": 1.1, "load": 1.0, "uplink_bytes": 0.0},
        )
        assert (answers, automatic.asked) == ([0, 0, 1, 1], 2), "once in half a minute, and not when it is known"
        segment = read_segment(log.header(0, 0) + b"".join(log.take(clock(), closing=True)), growing=True)
        [moved] = zip(*segment.tables["migration"].values(), strict=True)
        assert moved[1:6] == ("pump", "gw-here", AUTOMATIC, "use_another_server", "arrived")
        assert moved[7:] == (-1, 4_000, 1_000, 1_100, 2_000, 1_000, 1_000, 8_000, 0, 0)
        text = (await metrics_page(gateway.view)).decode()
        assert 'edgebroker_relocation_moves_settled_total{outcome="arrived"} 1' in text

    async def second(gateway: Gateway, http: str) -> None:
        automatic = AutomaticGateway(gateway, monkeypatch)
        [move] = await automatic.history()
        assert (move["realised"]["delay_ms"], move["outcome"]) == (1.1, "returned"), "the pump is here again"
        await automatic.set_mode("apply")
        assert (await automatic.reasons())["pump"] == AutomaticStay.MOVED.value

    with_publishers(tmp_path, first, has_fan=False, data=tmp_path / "data")
    with_publishers(tmp_path, second, has_fan=False, data=tmp_path / "data")
