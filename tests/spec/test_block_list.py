"""Clients that an operator blocks stay blocked over a restart, and no longer than ordered."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgebridge.frontend.handlers.connect import Ban
from edgebroker.instants import SECOND
from edgebroker.runtime.block_list import BLOCK_LIST_FILE, restore_blocks
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.pages import HttpPages
from tests.support.gateway_in_process import with_gateway

ROW = {"client": "a", "since": 1_000, "seconds": 60, "why": ""}


async def order(gateway: Gateway, said: str) -> Any:
    answer = await HttpPages(gateway.view).order_routes["/clients"](f"/clients?do={said}")
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def test_who_is_kept_out_is_so_after_a_restart(tmp_path: Path) -> None:
    async def first(gateway: Gateway) -> None:
        done = await asyncio.gather(*(order(gateway, f"block&name={name}&seconds=600&why=leaks") for name in "abc"))
        assert [one["forgotten"] for one in done] == ["", "", ""]
        assert await order(gateway, "unblock&name=b") == {"client": "b", "forgotten": ""}

    async def second(gateway: Gateway) -> None:
        answer = await HttpPages(gateway.view).routes["/blocked"][0]({})
        assert isinstance(answer.body, bytes)
        rows = json.loads(answer.body)["blocked"]
        assert [(row["client"], row["why"]) for row in rows] == [("a", "leaks"), ("c", "leaks")]
        assert all(0 < row["ends_in_s"] <= 600 for row in rows)
        assert all(row["since_s"] < 600 for row in rows)

    for story in (first, second):
        with_gateway(story, data=tmp_path)
    assert (tmp_path / BLOCK_LIST_FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("unix_s", "left_s"),
    [(1_000, 60), (1_059, 1), (1_060, None), (5_000, None), (0, 60)],
    ids=["now", "nearly over", "over", "long over", "the clock was set back"],
)
def test_nobody_is_kept_out_for_longer_than_was_said(tmp_path: Path, unix_s: int, left_s: int | None) -> None:
    file, blocked = tmp_path / BLOCK_LIST_FILE, dict[str, Ban]()
    file.write_text(json.dumps([ROW]))

    async def story() -> None:
        assert list(restore_blocks(file, blocked, unix_s, 7)) == []

    asyncio.run(story())
    assert {name: ban.until for name, ban in blocked.items()} == ({} if left_s is None else {"a": 7 + left_s * SECOND})


@pytest.mark.parametrize("text", ["", "{}", '[{"client": "a"}]', "[1]", '[{"client": "a", "since": "x"}]'])
def test_a_damaged_list_is_set_aside_and_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / BLOCK_LIST_FILE
    file.write_text(text)
    [line] = restore_blocks(file, {}, 0, 0)
    assert "so nobody is" in line
    assert (tmp_path / "blocked.json.damaged").read_text() == text


def test_nobody_waits_for_who_would_write_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / BLOCK_LIST_FILE)
    assert ["is a pipe" in line for line in restore_blocks(tmp_path / BLOCK_LIST_FILE, {}, 0, 0)] == [True]


def test_what_cannot_be_written_holds_and_is_told(tmp_path: Path) -> None:
    async def story(gateway: Gateway) -> None:
        (tmp_path / BLOCK_LIST_FILE).mkdir()
        done = await order(gateway, "block&name=a&seconds=600")
        assert "cannot be written" in done["forgotten"]
        assert "a" in gateway.frontend.connect_handler.blocked
        long = await HttpPages(gateway.view).order_routes["/clients"](f"/clients?do=block&name=a&why={'x' * 201}")
        assert (long.status.value, long.body) == (400, b"why has 201 characters; say it in 200\n")

    with_gateway(story, data=tmp_path)
