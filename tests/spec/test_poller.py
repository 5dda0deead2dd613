"""Who comes and goes is served in steps, in turn, and holds nobody up who is in."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from edgebroker.runtime.listeners.listener import Acceptor, open_sockets
from edgebroker.runtime.loop.loop import Loop
from edgebroker.runtime.loop.stream import SocketPoller, SocketStream, Transport

from ..support.streams import LOOPS, PATIENCE_S, RecordingReceiver, poller_of


@pytest.fixture(params=LOOPS, ids=["asyncio", "edgebroker", "napping"][: len(LOOPS)])
def run(request: pytest.FixtureRequest) -> Any:
    def run(what: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(what, PATIENCE_S))

    return run


class Refusing(socket.socket):
    """A listening socket for which the system has no room, to begin with."""

    is_full = True

    def accept(self) -> Any:
        if self.is_full:
            self.is_full = False
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_an_acceptor_without_a_free_descriptor_tries_again(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgebroker.runtime.listeners.listener.RETRY_S", 0.01)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        (opened,) = await open_sockets("127.0.0.1", 0)
        listening = Refusing(fileno=opened.detach())
        listening.setblocking(False)
        watch, heard = poller_of(loop), RecordingReceiver()
        times = 0

        class Short:
            """Watches no more sockets than it must, for once."""

            def __getattr__(self, name: str) -> Any:
                return getattr(watch, name)

            def listen(self, descriptor: int, accept: Any) -> None:
                nonlocal times
                times += accept is not None
                if times == 2 and accept is not None:
                    raise OSError(errno.ENOSPC, "no space left")
                watch.listen(descriptor, accept)

        acceptor = Acceptor([listening], lambda: heard, cast(SocketPoller, Short()), loop)
        with socket.create_connection(listening.getsockname()) as far:
            while not heard.said:
                await asyncio.sleep(0.001)
            assert heard.transport.get_extra_info("peername") == far.getsockname()
        await heard.is_over.wait()
        acceptor.close()
        assert [context["exception"].errno for context in told] == [errno.EMFILE, errno.ENOSPC]

    run(story())


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll: asyncio serves whoever is ready in any order")
def test_a_storm_at_one_listener_leaves_the_other_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of the one is followed by the next.

    The poller's clock stands still, so that a step follows each wait: newcomers are let in for as long as the others
    took, and on a machine that was busy meanwhile that was time for 38 of them.
    """
    monkeypatch.setattr("edgebroker.runtime.loop.poller.monotonic", lambda: 1.0)

    async def story() -> int:
        loop = asyncio.get_running_loop()
        storm, calm = RecordingReceiver(), RecordingReceiver()
        come = 0
        acceptors: list[Acceptor] = []

        def follow() -> RecordingReceiver:
            nonlocal come
            come += 1
            dialling.append(socket.create_connection(stormy.getsockname()))
            if come == 20:  # now both doors are knocked at
                dialling.append(socket.create_connection(quiet.getsockname()))
            return storm

        (stormy,), (quiet,) = await open_sockets("127.0.0.1", 0), await open_sockets("127.0.0.1", 0)
        acceptors = [
            Acceptor([stormy], follow, poller_of(loop), loop),
            Acceptor([quiet], lambda: calm, poller_of(loop), loop),
        ]
        dialling = [socket.create_connection(stormy.getsockname()) for _ in range(10)]
        while not calm.said and come < 500:
            await asyncio.sleep(0)
        for acceptor in acceptors:
            acceptor.close()
        for one in dialling:
            one.close()
        return come

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(story()) < 30


class Told(RecordingReceiver):
    """Notes in a common book what happens to it, and takes its time for that."""

    def __init__(self, name: str, book: list[str], then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.name, self.book, self.then = name, book, then

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self.note("is let in")

    def data_received(self, data: bytes) -> None:
        self.note(f"says {data.decode()}")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.note("is let go")

    def note(self, what: str) -> None:
        self.book.append(f"{self.name} {what}")
        self.then()


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll: asyncio serves whoever is ready in any order")
def test_whoever_is_in_is_served_between_any_two_steps_for_who_comes_or_goes() -> None:
    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        book: list[str] = []

        def opened(told: Told) -> tuple[SocketStream, socket.socket]:
            near, far = socket.socketpair()
            near.setblocking(False)
            stream = SocketStream(near, poller_of(loop), told, loop)
            stream.open()
            return stream, far

        def step() -> None:
            known.send(b"more")
            time.sleep(0.1)  # longer than it took to serve the others

        def stack() -> Told:
            book.append("guest dials")
            step()
            return Told("guest", book, step)

        _, known = opened(Told("known", book))
        for number in range(1, 4):  # after so many words it is not new any more
            known.send(b"hello")
            while len(book) <= number:
                await asyncio.sleep(0.001)
        listening = await open_sockets("127.0.0.1", 0)
        leaves, says = Told("gone", book), Told("fresh", book)
        (gone, there), (_, fresh) = opened(leaves), opened(says)
        leaves.then = says.then = step
        acceptor = Acceptor(listening, stack, poller_of(loop), loop)
        with socket.create_connection(listening[0].getsockname()), known, there, fresh:
            book.clear()
            known.send(b"more")
            fresh.send(b"hi")
            gone.abort()
            while "guest is let in" not in book:
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            says.then = lambda: None
            acceptor.close()
            return book[:]

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(story()) == [
            "known says more",
            "gone is let go",
            "known says more",
            "fresh says hi",
            "known says more",
            "guest dials",
            "known says more",
            "guest is let in",
            "known says more",
        ]


def test_whoever_was_accepted_is_let_in_before_an_acceptor_is_closed(run: Any) -> None:
    """Or nobody would say good-bye to them."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        heard = RecordingReceiver()
        said = loop.create_future()
        listening = await open_sockets("127.0.0.1", 0)

        def stack() -> RecordingReceiver:
            loop.call_soon(close)
            return heard

        def close() -> None:
            acceptor.close()
            said.set_result(heard.said[:])

        acceptor = Acceptor(listening, stack, poller_of(loop), loop)
        with socket.create_connection(listening[0].getsockname()):
            assert await said == ["made"]
        await heard.is_over.wait()

    run(story())
