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
    """Whatever is asked of it is done before the poller waits again."""

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
        """All TLS of asyncio passes here: connections that are opened and those that are accepted."""
        enable_asyncio_tls()
        return super()._make_ssl_transport(*args, **kwargs)  # type: ignore[misc]


def run(what: Coroutine[Any, Any, T]) -> T:
    """Run *what* on a loop of its own: this one where it can be, else the system's usual one."""
    is_own = hasattr(select, "epoll")
    if not is_own:
        enable_asyncio_tls()  # the system's loop does not do it by itself
    with asyncio.Runner(loop_factory=Loop if is_own else None) as runner:
        return runner.run(what)


class LoopPoller:
    """Watches sockets by means of any event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def watch(self, descriptor: int, stream: Any, reading: bool, writing: bool) -> None:
        """Let the loop call *stream* when it can be read or written."""
        if reading:
            self._loop.add_reader(descriptor, stream.readable)
        else:
            self._loop.remove_reader(descriptor)
        if writing:
            self._loop.add_writer(descriptor, stream.writable)
        else:
            self._loop.remove_writer(descriptor)

    def end(self, stream: Any) -> None:
        """Call `gone` of *stream* soon."""
        self._loop.call_soon(stream.gone)

    def listen(self, descriptor: int, accept: Callable[[], Any] | None) -> None:
        """Let the loop call *accept* when somebody dials."""

        def knocked() -> None:
            if accept is not None and (stream := accept()) is not None:
                stream.open()

        if accept is not None:
            self._loop.add_reader(descriptor, knocked)
        else:
            self._loop.remove_reader(descriptor)
