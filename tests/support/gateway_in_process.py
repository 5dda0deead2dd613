"""A gateway in the process of the test, with clients whose transport accepts all output."""

from __future__ import annotations

import asyncio
from typing import Any

from edgebridge.frontend.connection import Connection
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.settings import Settings


class Paper:
    """A transport that takes everything and closes at once."""

    def __init__(self, gateway: Gateway, connection: Connection) -> None:
        self.close = self.abort = lambda: gateway.frontend.closed(connection, clock())

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def come(gateway: Gateway, client: str, *filters: str, expiry_s: int = 60) -> Connection:
    connection = gateway.frontend.opened("test:1", 0)
    connection.transport = Paper(gateway, connection)
    properties = {Property.SESSION_EXPIRY_INTERVAL: expiry_s}
    say(gateway, connection, Connect(client, dialect=V5, keep_alive_s=0, properties=properties))
    if filters:
        say(gateway, connection, Subscribe(1, [SubscriptionOption(text, 1) for text in filters]))
    return connection


def say(gateway: Gateway, connection: Connection, packet: Any) -> None:
    gateway.frontend.feed(connection, encode_packet(packet, V5), 0)


def with_gateway(story: Any, **overrides: Any) -> Any:
    """Run *story* with a gateway that listens."""

    async def play() -> Any:
        gateway = Gateway(Settings.defaults().overridden(port=0, **overrides), tell=lambda line: None)
        [listener] = await gateway.start()
        port = listener.described()["port"]
        try:
            return await (story(gateway, port) if "port" in story.__annotations__ else story(gateway))
        finally:
            await gateway.stop()

    return asyncio.run(play())
