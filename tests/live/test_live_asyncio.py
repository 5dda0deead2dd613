"""Where the system has no epoll, the gateway runs on asyncio's own loop."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys

import pytest

from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Publish, Subscribe, SubscriptionOption

pytestmark = pytest.mark.live

PATIENCE_S = 30.0
WITHOUT_EPOLL = (
    "import select; del select.epoll; from edgebroker.cli import main; main(['run', '--port', '0', '--json'])"
)


def test_messages_pass_on_plain_asyncio() -> None:
    process = subprocess.Popen([sys.executable, "-c", WITHOUT_EPOLL], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], PATIENCE_S)[0]
        address = ("127.0.0.1", json.loads(process.stdout.readline())["port"])
        with (
            socket.create_connection(address, PATIENCE_S) as reader,
            socket.create_connection(address, PATIENCE_S) as writer,
        ):
            heard = reader.makefile("rb")
            reader.sendall(encode_packet(Connect("reader", dialect=V311), V311))
            assert heard.read(4) == bytes.fromhex("20020000")
            reader.sendall(encode_packet(Subscribe(1, [SubscriptionOption("t/#", 1)]), V311))
            assert heard.read(5) == bytes.fromhex("9003000101")
            writer.sendall(encode_packet(Connect("writer", dialect=V5), V5))
            for number in range(100):
                writer.sendall(encode_packet(Publish("t/1", b"%d" % number), V5))
            expected = b"".join(encode_packet(Publish("t/1", b"%d" % number), V311) for number in range(100))
            assert heard.read(len(expected)) == expected
            process.send_signal(signal.SIGTERM)
            assert heard.read() == b""
        output, complaints = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, complaints) == (0, b"")
        accounts = json.loads(output.splitlines()[-1])
        assert (accounts["published"], accounts["delivered"]) == (100, 100)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
