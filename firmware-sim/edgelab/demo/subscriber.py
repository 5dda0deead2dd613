"""A subscriber of the demo: connects, subscribes, and records every message that it receives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from edgebridge.wire.packets import Connect
from edgebridge.wire.reasons import FAILURE
from edgebroker.cli.mqtt_client import MqttClient, connect, reason_text
from edgebroker.cli.transport import BrokerTransport
from edgebroker.errors import EdgebrokerError
from edgelab.demo.audit import Receipt
from edgelab.demo.subscriber_specs import SubscriberSpec

KEEP_ALIVE_S: Final = 60
QUIET_S: Final = 1.0  # a copy needs about a millisecond; after a second without one no message is on its way
QUIET_S_MAX: Final = 15.0  # a subscriber that still receives after this time receives messages that nobody publishes
POLL_EVERY_S: Final = 0.1


class SubscriptionRefused(EdgebrokerError):
    """The gateway refused a subscription of the demo."""


class DemoSubscriber:
    """One connection with one subscription. `failure` is the error that ended it early, if any."""

    def __init__(self, spec: SubscriberSpec) -> None:
        self.spec = spec
        self.receipts: list[Receipt] = []
        self.failure: EdgebrokerError | None = None

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[None]:
        """Subscribe, and receive until the block is left. Raises SubscriptionRefused and the errors of `connect`."""
        client_id = f"demo-{self.spec.name.replace(' ', '-')}"
        connect_packet = Connect(client_id, keep_alive_s=KEEP_ALIVE_S, dialect=self.spec.dialect)
        async with connect(BrokerTransport(host, port), connect_packet) as client:
            suback = await client.subscribe([self.spec.option], self.spec.properties)
            if suback.reasons[0] >= FAILURE:
                reason = reason_text(suback.reasons[0], suback.properties)
                raise SubscriptionRefused(f"the gateway refused the subscription {self.spec.name!r}: {reason}")
            receiving = asyncio.create_task(self._receive(client))
            try:
                yield
            finally:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)

    async def _receive(self, client: MqttClient) -> None:
        try:
            async for message in client.messages():
                self.receipts.append(Receipt(message.topic, message.payload, message.qos))
        except EdgebrokerError as error:
            self.failure = error


async def quiet(subscribers: Sequence[DemoSubscriber]) -> bool:
    """Wait until no subscriber has received anything for QUIET_S; returns False if that does not happen within
    QUIET_S_MAX.
    """
    began = since = monotonic()
    received = -1
    while monotonic() - since < QUIET_S:
        if monotonic() - began > QUIET_S_MAX:
            return False
        now_received = sum(len(subscriber.receipts) for subscriber in subscribers)
        if now_received != received:
            received, since = now_received, monotonic()
        await asyncio.sleep(POLL_EVERY_S)
    return True
