"""What a run obeys: signals, and the end of all its work."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any


async def all_or(event: asyncio.Event, work: list[Coroutine[Any, Any, None]]) -> None:
    """Run *work* until all of it is done or *event* is set; the rest is cancelled."""
    whole = asyncio.gather(*work)
    guard = asyncio.create_task(event.wait())
    try:
        futures: set[asyncio.Future[Any]] = {whole, guard}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        guard.cancel()
        finished = whole.done()
        whole.cancel()
        with suppress(asyncio.CancelledError):
            await whole
    if finished:
        whole.result()


@contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM call *stop*, where that is possible (the main thread, not on Windows)."""
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, stop)
                caught.append(number)
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
