"""A gateway as a process, before it serves."""

from __future__ import annotations

import asyncio
import signal

import pytest

from edgebroker.cli import serving
from edgebroker.errors import StoreUnusable
from edgebroker.world.settings import Settings


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
