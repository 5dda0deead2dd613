"""What an operator reads about a client that speaks something other than plain MQTT."""

from __future__ import annotations

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node


@pytest.mark.parametrize(
    ("said", "looks"),
    [
        (b"\x16\x03\x01\x02\x00\x01", ": it looks like TLS, and this listener has none"),
        (b"GET / HTTP/1.1\r\n\r\n", ": it looks like HTTP or WebSocket, and this listener speaks plain MQTT"),
        (b"\xc0\0", ""),
    ],
)
def test_who_speaks_something_else_is_recognised(said: bytes, looks: str) -> None:
    frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned")
    frontend.start(0)
    connection = frontend.opened("10.0.0.9:1", 0)
    frontend.feed(connection, said, 0)
    assert connection.closing
    [note], missed = frontend.events.take()
    assert not missed
    assert note.text.startswith(f"the first packet is not CONNECT{looks} [3.1.1: MQTT-3.1.0-1")
