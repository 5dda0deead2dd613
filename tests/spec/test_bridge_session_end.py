"""The session of a removed bridge is ended at its remote, or the log gives the reason why not."""

from __future__ import annotations

import asyncio

import pytest

from edgebridge.bridge.options import BridgeOptions
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Connect, Disconnect, Packet, PingResp
from edgebridge.wire.reasons import ReasonCode
from edgebroker.names import Address
from edgebroker.runtime.bridges.connection import DialTarget, TeardownAttempt


def left(dialect: Dialect, answer: Packet | None, is_there: bool = True) -> tuple[str, list[Packet]]:
    """(why the session stays, what the remote heard), at one that says *answer* to the first packet."""
    heard: list[Packet] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framer = Framer(1 << 20)
        while data := await reader.read(1_000):
            framer.feed(data)
            while (frame := framer.next_frame()) is not None:
                heard.append(decode_packet(*frame, dialect))
                if answer is not None and len(heard) == 1:
                    writer.write(encode_packet(answer, dialect))
        writer.close()

    async def story() -> str:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if not is_there:
            server.close()
            await server.wait_closed()
        why = await TeardownAttempt(
            BridgeOptions("x", "up", [], dialect), DialTarget((Address("127.0.0.1", port),)), 0
        ).run()
        for _ in range(1_000):
            if why or len(heard) > 1:
                break
            await asyncio.sleep(0.001)
        server.close()
        return why

    return asyncio.run(asyncio.wait_for(story(), 30)), heard


@pytest.mark.parametrize("dialect", [V5, V311], ids=["5", "3.1.1"])
def test_a_clean_session_takes_the_place_of_the_other_and_ends(dialect: Dialect) -> None:
    why, heard = left(dialect, ConnAck())
    assert why == ""
    assert [type(packet) for packet in heard] == [Connect, Disconnect]
    assert isinstance(heard[0], Connect)
    assert (heard[0].client_id, heard[0].clean_start, heard[0].properties) == ("up", True, {})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ConnAck(reason=ReasonCode.NOT_AUTHORIZED), "the remote refuses us: not authorized (0x87)"),
        (PingResp(), "the remote says something else than CONNACK"),
        (None, "no answer within 0.05 s"),
    ],
)
def test_a_remote_that_does_not_let_us(answer: Packet | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if answer is None:
        monkeypatch.setattr("edgebroker.runtime.bridges.connection.TEARDOWN_S", 0.05)
    assert left(V5, answer)[0] == why


def test_a_remote_that_is_not_there() -> None:
    assert "127.0.0.1:" in left(V5, None, is_there=False)[0]
