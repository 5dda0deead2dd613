"""The connection of a bridge to its remote: how much input it handles before other connections get their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection

from edgebridge.bridge.endpoints import BridgeState
from edgebroker.names import Address
from edgebroker.runtime.bridges import bridge as bridging
from edgebroker.runtime.bridges import connection as connections
from edgebroker.runtime.bridges.bridge import BridgeRunner
from edgebroker.runtime.bridges.connection import PIECE_BYTES, BridgeConnection, DialTarget
from edgebroker.runtime.bridges.plan import BridgePlanner
from edgebroker.runtime.bridges.state import BridgeStateFile, BudgetStore
from edgebroker.runtime.bridges.websocket import SUBPROTOCOL, WebSocketTunnel
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.settings import Settings
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.simulation import Simulation

UPLINK = '[[bridge]]\nname = "up"\naddresses = ["h:1"]\ntopic = ["# out 1"]\n'
SAID = bytes(range(256)) * (5 * PIECE_BYTES // 512)  # two pieces and a half


class Wire:
    """A transport."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_aborted = False
        self.unsent = 0
        self.said = bytearray()

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.unsent += len(data)
        self.said += data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


class Host:
    """Whose line it is."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[int] = []
        self.why: list[str] = []

    def connection_made(self, line: BridgeConnection) -> None:
        pass

    def socket_opened(self, line: BridgeConnection) -> None:
        pass

    def data_received(self, line: BridgeConnection, data: bytes) -> None:
        self.pieces.append(data)

    def connection_lost(self, line: BridgeConnection, error: Exception | None) -> None:
        self.ends.append(len(self.pieces))
        self.why.append(str(error))


def line_of(tunnel: WebSocketTunnel | None = None) -> tuple[BridgeConnection, Host, Wire]:
    host, wire = Host(), Wire()
    line = BridgeConnection(cast(Any, host), tunnel)
    line.connection_made(cast(Any, wire))
    return line, host, wire


def test_a_long_read_is_handled_over_several_turns_and_in_order() -> None:
    async def story() -> None:
        line, host, wire = line_of()
        line.data_received(b"short")
        assert (host.pieces.pop(), wire.is_read) == (b"short", True)
        line.data_received(SAID)
        line.data_received(b"more")  # as the layer of TLS may have it
        assert host.pieces == [SAID[:PIECE_BYTES]]
        line.allow_reading(True)
        assert not wire.is_read, "our own front end goes on, and there is enough for it"
        await asyncio.sleep(0)
        assert len(host.pieces) == 2
        await asyncio.sleep(0)
        assert b"".join(host.pieces) == SAID + b"more"
        assert wire.is_read

    asyncio.run(story())


def test_whose_front_end_wants_nothing_is_not_read_after_the_last_piece_either() -> None:
    async def story() -> None:
        line, host, wire = line_of()
        line.data_received(SAID)
        line.allow_reading(False)
        for _ in range(3):
            await asyncio.sleep(0)
        assert b"".join(host.pieces) == SAID
        assert not wire.is_read
        line.allow_reading(True)
        assert wire.is_read

    asyncio.run(story())


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_came_before_the_end_is_handled_unless_we_hung_up(is_closed: bool) -> None:
    async def story() -> tuple[int, list[int]]:
        line, host, _ = line_of()
        line.data_received(SAID)
        if is_closed:
            line.close()
        line.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
        return len(host.pieces), host.ends

    assert asyncio.run(story()) == ((1, [1]) if is_closed else (3, [3]))


def test_what_comes_in_one_piece_with_the_end_of_a_websocket_is_heard_and_nothing_is_said_after_it() -> None:
    there = WSConnection(ConnectionType.SERVER)
    line, host, wire = line_of(WebSocketTunnel("h", "/mqtt"))
    there.receive_data(bytes(wire.said))
    [_] = there.events()
    line.data_received(there.send(AcceptConnection(subprotocol=SUBPROTOCOL)))
    line.data_received(there.send(BytesMessage(b"\xe0\x01\x8b")) + there.send(CloseConnection(code=1001)))
    assert (host.pieces, wire.is_aborted) == ([b"\xe0\x01\x8b"], True)
    line.write([b"\xc0\x00"])  # before the loop has told that it is over
    line.connection_lost(None)
    assert host.why == ["the WebSocket was closed: 1001"]


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_remote_that_sends_and_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, is_slow: bool) -> None:
    """Each time it says something it is answered, as by PUBACK for what no rule wants."""
    monkeypatch.setattr(bridging, "UNREAD_BYTES_MAX", 100)

    async def story() -> list[str]:
        line, _, wire = line_of()
        lost: list[str] = []

        def heard(data: bytes, now: int) -> None:
            wire.unsent = 40 if is_slow else wire.unsent

        bridge = SimpleNamespace(
            state=BridgeState.OPEN,
            requested_subscriptions=frozenset(),
            reason="",
            handshake=SimpleNamespace(greeted_version="5"),
        )
        bridge.receive_remote, bridge.local_end = heard, SimpleNamespace(is_full=False)
        bridge.on_connection_lost = lambda reason, now: lost.append(reason)
        bridge.take_commands = bridge.take_warnings = list
        bridge.take_remote_output = lambda now: [b"\x40\x02\x00\x01"] * 10
        bridge.next_due = lambda: None
        bridge.shaper = SimpleNamespace(daily_budget=SimpleNamespace(needs_checkpoint=False))
        log = OperatorLog(lambda line: None)
        reactor: Any = SimpleNamespace(frontend=SimulatedBroker(Simulation(1)).frontend)
        settings = Settings.parse(UPLINK, "f.toml", Path())
        plan = BridgePlanner(settings, "here").plan(settings.bridges[0])
        one = BridgeRunner(plan, reactor, log, lambda: 0.5, BudgetStore(None, log), BridgeStateFile(None, log))
        one.bridge = cast(Any, bridge)
        one.socket_opened(line)
        one.flow_changed(line, True)
        for _ in range(4):
            one.data_received(line, b"a message")
        assert wire.is_aborted is not is_slow
        return lost

    lost = asyncio.run(story())
    assert lost == ([] if is_slow else ["the remote does not read: 100 bytes of answers wait for it"])


@pytest.mark.parametrize(
    ("address", "host"),
    [("h:80", "h"), ("h:8080", "h:8080"), ("[2001:db8::1]:443", "[2001:db8::1]"), ("[::1]:8080", "[::1]:8080")],
)
def test_http_hears_the_host_as_it_wants_it_written(address: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()

    async def dialled(addresses: Any, connect: Callable[[], BridgeConnection], *_: Any, **__: Any) -> None:
        connect().connection_made(cast(Any, wire))

    monkeypatch.setattr(connections, "dial", dialled)
    owner: Any = SimpleNamespace(dial_started=lambda index: None, socket_opened=lambda connection: None)
    asyncio.run(DialTarget((Address.parse(address),), websocket_path="/mqtt").dial(owner, 0))
    assert f"\r\nHost: {host}\r\n".encode() in wire.said
