"""A gateway as a process: before it serves, and what it does without being asked."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from edgebroker.cli import serving
from edgebroker.errors import SettingsInvalid, StoreUnusable
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.settings import Settings

from ..support.gateway_in_process import come, with_gateway


def test_a_hang_up_while_the_journal_is_read_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet is told to read its settings again, and one of it is starting."""
    heard = []

    def reading(*_: object, **__: object) -> None:
        heard.append(signal.getsignal(signal.SIGHUP))
        raise StoreUnusable("enough")

    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr(serving, "Gateway", reading)
    with pytest.raises(StoreUnusable):
        asyncio.run(serving._serve(Settings.defaults(), Settings.defaults, as_json=False))
    assert (callable(heard[0]), before) == (True, signal.SIG_DFL)


def test_settings_are_read_again_beside_the_clients() -> None:
    """To read 1,280 rules with filters takes 100 ms, and a client would wait for all of it."""
    where: list[threading.Thread] = []
    said: list[str] = []

    def read() -> Settings:
        where.append(threading.current_thread())
        raise SettingsInvalid("no")

    gateway: Any = SimpleNamespace(reload=None)
    asyncio.run(serving._reload(gateway, read, said.append, as_json=True))
    assert where[0] is not threading.main_thread()
    assert '"no"' in said[0]


def test_who_is_cut_off_when_memory_is_short_hears_it_although_nobody_says_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a loop that does not tell when a turn is over."""

    async def story(gateway: Gateway) -> bool:
        connection: Any = come(gateway, "large")
        monkeypatch.setattr(gateway.frontend.memory_limit, "check_if_due", lambda now: connection.close())
        for _ in range(100):
            await asyncio.sleep(0.02)
            if connection.number not in gateway.frontend.connections:
                return True
        return False

    assert with_gateway(story)
