"""Any bytes in place of TLS, or TLS with a mistake in it, end that connection and have no other effect.

A client in memory says what clients say; on the way to the gateway bits flip, bytes are cut out, doubled and put in.
EDGEBROKER_FUZZ_INPUTS=20000 makes it 20,000 connections.
"""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path
from random import Random
from typing import Any

import pytest

from edgebridge.frontend.options import ListenerContext
from edgebroker.cli.init.authority import Authority, KeyPair
from edgebroker.runtime.listeners.layer import ConnectionRefusals
from edgebroker.runtime.listeners.tls import TlsLayer
from edgebroker.runtime.operator_log import OperatorLog

CONNECTIONS = int(os.environ.get("EDGEBROKER_FUZZ_INPUTS", "400"))
SAID = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04name" * 50

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl is not installed; it makes the certificates"
)


class Peer:
    certificate: Any = None
    listener_context = ListenerContext()
    peer = "fuzz"
    closing = False


class Above:
    """A door that notes what comes through."""

    def __init__(self) -> None:
        self.heard = b""
        self.connection = Peer()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def begin_handshake(self) -> None: ...

    def end_handshake(self) -> None: ...

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.transport.write(b"answer" * 10)


class Below:
    """A socket that notes what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert data
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("ca")
    authority = Authority.make(folder, "Test")
    pair: KeyPair = authority.server(folder, ["localhost"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    return server, ssl.create_default_context(cafile=str(authority.pair.certificate))


def spoilt(flight: bytes, chance: Random) -> bytes:
    at, to = sorted(chance.randrange(len(flight) + 1) for _ in range(2))
    match chance.randrange(4):
        case 0:
            changed = bytearray(flight)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            return bytes(changed)
        case 1:
            return flight[:at] + flight[to:]
        case 2:
            return flight[:to] + flight[at:]
        case _:
            return flight[:at] + chance.randbytes(chance.randrange(1, 400)) + flight[to:]


def converse(contexts: tuple[ssl.SSLContext, ssl.SSLContext], chance: Random, spoil: int) -> tuple[Above, Below]:
    """A conversation of which flight number *spoil* of the client is spoilt; -1: none is."""
    above, below = Above(), Below()
    layer = TlsLayer(above, contexts[0], ConnectionRefusals(OperatorLog(lambda line: None)))  # type: ignore[arg-type]
    layer.connection_made(below)  # type: ignore[arg-type]
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts[1].wrap_bio(incoming, outgoing, server_hostname="localhost")
    is_open = has_said = False
    for flight_number in range(6):
        try:
            if not is_open:
                client.do_handshake()
                is_open = True
            if not has_said:
                client.write(SAID)
                has_said = True
            client.read(1 << 16)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            break
        flight = outgoing.read()
        if not flight:
            break
        if flight_number == spoil:
            flight = spoilt(flight, chance)
        pieces = chance.choice([1, 7, 100, 100_000])
        for at in range(0, len(flight), pieces):
            if not below.is_closed:
                layer.data_received(flight[at : at + pieces])
        incoming.write(below.written)
        below.written = b""
    layer.close()
    return above, below


def test_spoilt_handshakes_and_records_end_their_own_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], chance: Random
) -> None:
    good, _ = converse(contexts, chance, -1)
    assert good.heard == SAID
    whole = 0
    for number in range(CONNECTIONS):
        above, below = converse(contexts, chance, number % 2)
        assert below.is_closed
        assert SAID.startswith(above.heard), "nothing comes through that was not said"
        whole += above.heard == SAID
    assert whole < CONNECTIONS // 2
