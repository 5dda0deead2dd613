"""A subscriber at one gateway of the federation: an MQTT client of paho, which reconnects to its session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic_ns
from typing import Any, Final

from edgebridge.wire.dialect import V5
from edgebridge.wire.properties import user_properties
from edgelab.demo.audit import Receipt
from edgelab.demo.subscriber import SubscriptionRefused
from edgelab.demo.subscriber_specs import SubscriberSpec

KEEP_ALIVE_S: Final = 60
SESSION_EXPIRY_S: Final = 3_600
SUBACK_S_MAX: Final = 15.0
RETRY_S: Final = (1, 2)
"""Delays in seconds, the first and the longest, after which paho reconnects."""


class SiteSubscriber:
    """One subscription at *gateway*. Its session outlives connections, so that QoS 1 and 2 miss nothing."""

    def __init__(self, spec: SubscriberSpec, gateway: str) -> None:
        self.spec = spec
        self.gateway = gateway
        self.receipts: list[Receipt] = []
        self.connections = 0
        self._answered = threading.Event()
        self._granted: list[Any] = []
        self._client = self._new_client()

    @property
    def client_id(self) -> str:
        """Return its MQTT client identifier."""
        return f"demo-{self.spec.name}"

    @property
    def has_broken(self) -> bool:
        """Return whether its connection broke, so that unacknowledged copies are sent again."""
        return self.connections > 1

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[None]:
        """Subscribe, and receive until the block is left. Raises SubscriptionRefused and OSError."""
        client = self._client
        properties = self._properties("CONNECT", SessionExpiryInterval=SESSION_EXPIRY_S)
        await asyncio.to_thread(client.connect, host, port, KEEP_ALIVE_S, properties=properties)
        client.loop_start()
        try:
            answered = await asyncio.to_thread(self._answered.wait, SUBACK_S_MAX)
            if not answered or any(reason.is_failure for reason in self._granted):
                reason_text = ", ".join(map(str, self._granted)) or "no answer"
                raise SubscriptionRefused(f"{self.gateway} refused the subscription {self.spec.name!r}: {reason_text}")
            yield
        finally:
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)

    def _new_client(self) -> Any:
        from paho.mqtt.client import Client  # paho is an extra
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

        is_v5 = self.spec.dialect is V5
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            clean_session=None if is_v5 else False,
            protocol=MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311,
        )
        client.reconnect_delay_set(*RETRY_S)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _properties(self, packet: str, **values: Any) -> Any:
        """Return properties of MQTT 5 for a *packet* of this name; None for MQTT 3.1.1, which has none."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        if self.spec.dialect is not V5:
            return None
        properties: Any = Properties(getattr(PacketTypes, packet))  # type: ignore[no-untyped-call]
        for name, value in values.items():
            setattr(properties, name, value)
        return properties

    # -- in paho's thread -----------------------------------------------------------------------------------------

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            return
        self.connections += 1
        if self.connections == 1:
            option, more = self.spec.option, user_properties(self.spec.properties)
            asked = self._properties("SUBSCRIBE", UserProperty=more) if more else None
            client.subscribe(option.topic_filter, option.qos, properties=asked)

    def _on_subscribe(self, client: Any, userdata: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        self._granted = reasons
        self._answered.set()

    def _on_message(self, client: Any, userdata: Any, message: Any) -> None:
        payload, at_us = bytes(message.payload), monotonic_ns() // 1_000
        self.receipts.append(Receipt(message.topic, payload, message.qos, at_us, message.dup))
