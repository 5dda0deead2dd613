"""The event loop of a gateway process: asyncio's own, around a `Poller` that serves clients by itself."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from edgebroker.runtime.loop.asyncio_without_ssl import enable_asyncio_tls

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Loop(asyncio.SelectorEventLoop):
    """asyncio's event loop, whose selector is a `Poller`. New callbacks and timers make `Poller.select` return."""

    def __init__(self) -> None:
        from edgebroker.runtime.loop.poller import Poller  # only Linux has what it needs

        self.poller = Poller()
        super().__init__(self.poller)  # type: ignore[arg-type]  # a selector in all but descent: it is compiled

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self.poller.return_to_loop()
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.poller.return_to_loop()
        return super().call_at(when, callback, *args, context=context)

    def _make_ssl_transport(self, *args: Any, **kwargs: Any) -> Any:
        """Import ssl first: asyncio calls this for every TLS connection, outgoing or accepted."""
        enable_asyncio_tls()
        return super()._make_ssl_transport(*args, **kwargs)  # type: ignore[misc]

    async def start_tls(self, *args: Any, **kwargs: Any) -> Any:
        """Import ssl first, as for connections that begin with TLS."""
        enable_asyncio_tls()
        return await super().start_tls(*args, **kwargs)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on a new event loop: a `Loop` where the system has epoll, else asyncio's default loop."""
    has_epoll = hasattr(select, "epoll")
    if not has_epoll:
        enable_asyncio_tls()  # asyncio's default loop does not do it by itself
    with asyncio.Runner(loop_factory=Loop if has_epoll else None) as runner:
        return runner.run(main)


class LoopPoller:
    """A `SocketPoller` on any asyncio event loop, with its readers and writers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def watch(self, descriptor: int, stream: Any, reading: bool, writing: bool) -> None:
        """Have the loop call `readable` and `writable` of *stream*, as the flags say."""
        if reading:
            self._loop.add_reader(descriptor, stream.readable)
        else:
            self._loop.remove_reader(descriptor)
        if writing:
            self._loop.add_writer(descriptor, stream.writable)
        else:
            self._loop.remove_writer(descriptor)

    def schedule_close(self, stream: Any) -> None:
        """Have the loop call `finish_close` of *stream* in its next iteration."""
        self._loop.call_soon(stream.finish_close)

    def listen(self, descriptor: int, accept: Callable[[], Any] | None) -> None:
        """Have the loop call *accept* when a client connects, and open the stream that it returns. None: stop."""

        def accept_one() -> None:
            if accept is not None and (stream := accept()) is not None:
                stream.open()

        if accept is not None:
            self._loop.add_reader(descriptor, accept_one)
        else:
            self._loop.remove_reader(descriptor)
