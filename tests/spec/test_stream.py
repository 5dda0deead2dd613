"""A stream carries bytes both ways whatever the system takes at once, and a poller leaves its loop its turn."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import weakref
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from edgebroker.runtime.listeners.layer import Layer
from edgebroker.runtime.listeners.listener import Acceptor, open_sockets
from edgebroker.runtime.loop.loop import LoopPoller
from edgebroker.runtime.loop.stream import FULL_BYTES, SocketStream

from ..support.streams import LOOPS, PATIENCE_S, RecordingReceiver, poller_of

LARGE = bytes(range(256)) * 32_768  # 8 MiB: more than a socket takes at once


class Line:
    """A stream and the far end of it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        near, self.far = socket.socketpair()
        near.setblocking(False)
        self.far.setblocking(False)
        self.heard = RecordingReceiver()
        self.stream = SocketStream(near, poller_of(loop), self.heard, loop)
        self.stream.open()

    async def read(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        read = b""
        while len(read) < size and (piece := await loop.sock_recv(self.far, 1 << 20)):
            read += piece
        return read

    async def until(self, what: str) -> None:
        while what not in self.heard.said:
            await asyncio.sleep(0.001)


@pytest.fixture(params=LOOPS, ids=["asyncio", "edgebroker", "napping"][: len(LOOPS)])
def run(request: pytest.FixtureRequest) -> Any:
    def run(what: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(what, PATIENCE_S))

    return run


def test_what_the_system_does_not_take_at_once_arrives_in_order(run: Any) -> None:
    async def story() -> None:
        line = Line()
        line.stream.write(b"first ")
        line.stream.write(LARGE)
        line.stream.write(b" last")
        assert line.stream.get_write_buffer_size() > FULL_BYTES
        assert line.heard.said == ["made", "pause"]
        assert await line.read(len(LARGE) + 11) == b"first " + LARGE + b" last"
        await line.until("resume")
        assert (line.heard.said, line.stream.get_write_buffer_size()) == (["made", "pause", "resume"], 0)
        line.far.close()
        await line.heard.is_over.wait()

    run(story())


def test_closing_sends_what_was_given_first(run: Any) -> None:
    async def story() -> None:
        line = Line()
        line.stream.write(LARGE)
        line.stream.close()
        assert line.stream.is_closing()
        assert await line.read(len(LARGE) + 1) == LARGE, "and then the end"
        await line.heard.is_over.wait()
        assert line.heard.said.count("lost") == 1
        line.far.close()

    run(story())


@pytest.mark.parametrize("how", ["abort", "peer"])
def test_a_stream_that_is_lost_says_so_once_and_takes_nothing_more(run: Any, how: str) -> None:
    async def story() -> None:
        line = Line()
        line.stream.write(LARGE)
        if how == "abort":
            line.stream.abort()
            assert line.heard.said == ["made", "pause"], "the receiver hears of it later, not in the middle of a call"
        else:
            line.far.close()
        await line.heard.is_over.wait()
        assert FULL_BYTES < line.heard.left < len(LARGE), "somebody may count what the system did not take"
        line.stream.write(b"into the void")
        line.stream.close()
        line.stream.abort()
        await asyncio.sleep(0)
        assert line.heard.said.count("lost") == 1
        line.far.close()

    run(story())


def test_nothing_is_read_while_reading_is_paused_and_all_of_it_afterwards(run: Any) -> None:
    async def story() -> None:
        line = Line()
        line.stream.pause_reading()
        line.far.send(b"hello")
        await asyncio.sleep(0.01)
        assert line.heard.data == b""
        line.stream.write(LARGE)  # writing goes on meanwhile
        assert await line.read(len(LARGE)) == LARGE
        line.stream.resume_reading()
        while line.heard.data != b"hello":
            await asyncio.sleep(0.001)
        line.stream.abort()
        await line.heard.is_over.wait()
        line.far.close()

    run(story())


@pytest.mark.parametrize("layers", [0, 2])
def test_who_has_lost_its_stream_is_no_work_for_the_collector(layers: int) -> None:
    async def story() -> weakref.ref[RecordingReceiver]:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        heard = above = RecordingReceiver()
        for _ in range(layers):
            above = cast(Any, Layer(cast(Any, above)))
        SocketStream(near, LoopPoller(loop), above, loop).open()
        far.close()
        await heard.is_over.wait()
        return weakref.ref(heard)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(story())() is None
    finally:
        gc.enable()


def test_a_bug_above_is_told_and_ends_the_stream(run: Any) -> None:
    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        line = Line()
        line.heard.bug = ZeroDivisionError("a bug")
        line.far.send(b"hello")
        await line.heard.is_over.wait()
        assert [context["exception"] for context in told] == [line.heard.bug]
        line.far.close()

    run(story())


def test_a_bug_at_the_end_of_a_stream_is_told_and_the_socket_closed(run: Any) -> None:
    async def story() -> None:
        told = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.set_result(context["exception"]))
        line = Line()
        bug = ZeroDivisionError("a bug")

        def fail(exc: Exception | None) -> None:
            raise bug

        line.heard.connection_lost = fail  # type: ignore[method-assign]
        line.stream.abort()
        assert await told is bug
        assert await line.read(1) == b""
        line.far.close()

    run(story())


def test_an_acceptor_survives_what_cannot_be_accepted(run: Any) -> None:
    """For instance because the module that its listener needs is not there."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        heard = RecordingReceiver()
        stacks: list[RecordingReceiver] = []
        sockets = await open_sockets("127.0.0.1", 0)
        acceptor = Acceptor(sockets, lambda: cast(Any, stacks[0]), poller_of(loop), loop)
        for count in (1, 2):
            with socket.create_connection(sockets[0].getsockname()):
                while len(told) < count:
                    await asyncio.sleep(0.001)
        stacks.append(heard)
        with socket.create_connection(sockets[0].getsockname()):
            while not heard.said:
                await asyncio.sleep(0.001)
        await heard.is_over.wait()
        acceptor.close()
        assert [type(context["exception"]) for context in told] == [IndexError, IndexError]

    run(story())


def test_small_packets_are_not_held_back(run: Any) -> None:
    """By Nagle's algorithm."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        heard = RecordingReceiver()
        listening = await open_sockets("127.0.0.1", 0)
        acceptor = Acceptor(listening, lambda: heard, poller_of(loop), loop)
        with socket.create_connection(listening[0].getsockname()):
            while not heard.said:
                await asyncio.sleep(0.001)
            assert heard.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await heard.is_over.wait()
        acceptor.close()

    run(story())


def test_who_cannot_be_watched_does_not_come_in(run: Any) -> None:
    """The system has a limit for all users together."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))

        class Full(LoopPoller):
            def watch(self, descriptor: int, stream: Any, reading: bool, writing: bool) -> None:
                raise OSError(errno.ENOSPC, "no space left")

        near, far = socket.socketpair()
        heard = RecordingReceiver()
        with far:
            stream = SocketStream(near, Full(loop), heard, loop)
            stream.open()
            assert far.recv(1) == b""
        assert (stream.is_closing(), heard.said) == (True, [])
        assert [type(context["exception"]) for context in told] == [OSError]

    run(story())


def test_a_bug_when_a_client_has_caught_up_ends_its_stream_and_no_other(run: Any) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        line = Line()

        def fail() -> None:
            raise ZeroDivisionError("a bug")

        line.heard.resume_writing = fail  # type: ignore[method-assign]
        line.stream.write(LARGE)
        await line.read(len(LARGE))
        await line.heard.is_over.wait()
        assert [type(context["exception"]) for context in told] == [ZeroDivisionError]
        line.far.close()

    run(story())


def test_a_client_that_never_pauses_keeps_no_timer_and_no_thread_waiting(run: Any) -> None:
    """Each byte causes the next one: there is always something to serve."""

    async def story() -> None:
        line = Line()
        line.heard.echoes_to = line.far
        line.far.send(b"!")
        loop = asyncio.get_running_loop()
        fired = loop.create_future()
        loop.call_later(0.01, fired.set_result, None)
        await fired
        assert await loop.run_in_executor(None, lambda: "done") == "done"
        before = len(line.heard.data)
        await asyncio.sleep(0.01)
        assert len(line.heard.data) > before, "it never paused"
        line.stream.abort()
        await line.heard.is_over.wait()
        line.far.close()

    run(story())
