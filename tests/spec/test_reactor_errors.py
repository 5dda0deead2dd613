"""P6: an unexpected error in one client's path is logged, ends that connection, and harms no other client."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Coroutine
from typing import Any

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.listeners.layer import ConnectionRefusals
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.loop.loop import Loop
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.settings.sections import ListenerSettings

CONNECT = bytes.fromhex("1010 00044d515454 04 02 0000 0004") + b"name"
CONNACK = bytes.fromhex("20020000")
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


class Broken(Frontend):
    """A front end with a bug that shows for one client only: the first."""

    broken_in = ""

    def feed(self, connection: Connection, chunk: bytes, now: int) -> None:
        if connection.number == 1 and self.broken_in:
            for one in self.connections.values():  # all are dirty in one flush, the unlucky one first
                one.send(PINGRESP)
            if self.broken_in == "feed":
                raise ZeroDivisionError("a bug in feed")
        super().feed(connection, chunk, now)

    def take_output(self, connection: Connection, now: int) -> list[bytes]:
        if connection.number == 1 and self.broken_in == "take_output":
            raise ZeroDivisionError("a bug in take_output")
        return super().take_output(connection, now)


LOOPS = [asyncio.new_event_loop, *([Loop] if hasattr(select, "epoll") else [])]


@pytest.fixture(params=LOOPS, ids=lambda new: new.__module__.partition(".")[0])
def run(request: pytest.FixtureRequest) -> Any:
    def run(what: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(what, 30))

    return run


async def listen(reactor: Reactor) -> int:
    reactor.start()
    listener = Listener(reactor, 1, ConnectionRefusals(OperatorLog(lambda line: None)))
    await listener.open(ListenerSettings(port=0), None)
    return listener.port


async def dial(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CONNECT[:-1] + b"%d" % number)
    assert await reader.readexactly(4) == CONNACK
    return reader, writer


@pytest.mark.mqtt(v311="MQTT-4.8.0-2")
@pytest.mark.parametrize("where", ["feed", "take_output"])
def test_a_bug_ends_one_connection_and_is_told(run: Any, where: str) -> None:
    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        frontend = Broken(Node(Ledger()), FrontendOptions(), lambda: "x")
        reactor = Reactor(frontend)
        port = await listen(reactor)
        unlucky, spoken = await dial(port, 1)
        others = [await dial(port, number) for number in (2, 3)]
        frontend.broken_in = where
        spoken.write(PINGREQ)
        assert await unlucky.read() == b"", "the connection with the bug is closed"
        for reader, writer in others:
            writer.write(PINGREQ)
            assert await reader.readexactly(4) == PINGRESP * 2
            writer.close()
        spoken.close()
        await reactor.stop()
        assert any(isinstance(context.get("exception"), ZeroDivisionError) for context in told)

    run(story())


def test_a_bug_in_one_deadline_does_not_lose_the_others(run: Any) -> None:
    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "x")
        reactor = Reactor(frontend)
        port = await listen(reactor)
        reader, writer = await dial(port, 1)

        def bug(*_: object) -> None:
            raise ZeroDivisionError("a bug in a deadline")

        frontend.node.close_minute = bug  # type: ignore[method-assign]
        frontend.node.timers.set(("minute",), 0)
        (number,) = frontend.connections
        frontend.connections[number].keep_alive = 1  # long over
        frontend.node.timers.set(("alive", number), 1)
        reactor.arm_timer()
        assert await reader.read() == b"", "the second deadline has fired"
        writer.close()
        frontend.node.close_minute = lambda now: None  # type: ignore[method-assign]
        await reactor.stop()
        assert any(isinstance(context.get("exception"), ZeroDivisionError) for context in told)
        assert frontend.node.timers.next_due() is not None, "there will be another minute"

    run(story())


def test_an_answer_for_a_client_that_has_left_is_no_error(run: Any) -> None:
    """The disk has caught up, and what it held back is for nobody any more."""

    async def story() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "x")
        reactor = Reactor(frontend)
        port = await listen(reactor)
        _, writer = await dial(port, 1)
        (connection,) = frontend.connections.values()
        writer.close()
        while frontend.connections or not connection.transport.is_closing():
            await asyncio.sleep(0)
        for _ in range(3):  # until the transport itself has come to its end
            await asyncio.sleep(0)
        connection.out.append(PINGRESP)
        frontend.dirty.append(connection)
        reactor.schedule_flush()
        await asyncio.sleep(0)
        await reactor.stop()
        assert told == []

    run(story())


def test_a_client_that_is_being_closed_and_does_not_read_is_gone_soon(run: Any, monkeypatch: Any) -> None:
    """Closing waits for the peer to take what is buffered; a peer that is gone never does."""
    monkeypatch.setattr("edgebroker.runtime.loop.reactor.GOODBYE_S", 0.05)

    async def story() -> None:
        frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "x")
        reactor = Reactor(frontend)
        port = await listen(reactor)
        _, writer = await dial(port, 1)
        (connection,) = frontend.connections.values()
        transport = connection.transport
        transport.set_write_buffer_limits(high=1 << 30)  # never paused, whatever the kernel takes
        writer.transport.pause_reading()
        transport.write(bytes(32 << 20))
        assert transport.get_write_buffer_size()
        connection.close()
        reactor.schedule_flush()
        while frontend.connections:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        await reactor.stop()

    run(story())
