"""A device's lasting connection: queue, window, acknowledgements, reconnects."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from random import Random
from time import monotonic_ns
from typing import Any

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgedevices.access import ANYONE, Access
from edgedevices.address import Address
from edgedevices.call import Call, CallFailed
from edgedevices.identity import SESSION_EXPIRY_S, Dialect, Identity
from edgedevices.ledger import Ledger
from edgedevices.message import Message

# paho resends everything unacknowledged at once after a reconnect, whatever the broker's receive maximum; Mosquitto's
# is 20 and it disconnects who exceeds it. So the window is ours and smaller.
WINDOW = 16
WAITING_MAX = 1_000  # a device at 5 messages a second bridges 200 s without a broker; beyond, the newest are given up
KEEP_ALIVE_S = 60
PACKET_IDENTIFIER_NOT_FOUND = 0x92  # MQTT 5.0, table 2-6; section 3.7.2.1: no error after a reconnect
BACKOFF_FIRST_S = 0.25
BACKOFF_MAX_S = 15.0


class Line:
    """Takes messages with `offer` at any time and sends them in order while the broker is there.

    The session survives reconnects, so that QoS 1 and 2 are resumed and not repeated. It starts and ends empty: in
    MQTT 5 by clean start and expiry, in 3.1.1 by a short connection with "clean session" before and after.
    """

    def __init__(
        self, address: Address, identity: Identity, ledger: Ledger, random: Random, access: Access = ANYONE
    ) -> None:
        self.address = address
        """Where the broker is."""
        self._access = access
        self._identity = identity
        self._ledger = ledger
        self._random = random
        self._client = self._new_client(clean=False)
        self._client.on_publish = self._on_publish
        self._call: Call | None = None
        self._window = WINDOW
        self._waiting: deque[Message] = deque()
        self._outstanding: dict[int, Message] = {}
        self._unwritten: tuple[Message, MQTTMessageInfo] | None = None
        self._signed_off = False
        self._leaving = asyncio.Event()
        self._moved = asyncio.Event()
        self.first_up = asyncio.Event()
        """Set when the broker has accepted this device for the first time."""
        self.last_refusal = "no attempt"
        """Why the last attempt to connect failed."""

    @property
    def name(self) -> str:
        """The device's name."""
        return self._identity.device

    async def run(self) -> None:
        """Keep the connection until `leave`; backs off, with seeded jitter, while the broker is away."""
        failures = 0
        wiped = self._identity.dialect is Dialect.V5
        while not self._leaving.is_set():
            try:
                if not wiped:
                    await self._wipe()
                    wiped = True
                await self._connection()
                failures = 0
            except CallFailed as failure:
                failures += 1
                self.last_refusal = str(failure)
                self._ledger.losses[str(failure)] += 1
            if not self._leaving.is_set():
                await self._pause(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures, 10)))
        if self._identity.dialect is Dialect.V311 and self.first_up.is_set():
            try:
                await self._wipe()
            except CallFailed as failure:
                self._ledger.losses[str(failure)] += 1

    def offer(self, message: Message) -> None:
        """Send *message* as soon as possible, after everything offered before."""
        self._ledger.publish(message)
        if len(self._waiting) >= WAITING_MAX:
            self._ledger.fail(message, "backlog full")
            return
        self._waiting.append(message)
        self._pump()

    async def room(self) -> None:
        """Wait until fewer than a window's worth of messages is waiting to be sent."""
        while len(self._waiting) >= WINDOW:
            await self._next_move()

    async def drained(self) -> None:
        """Wait until every offered message has been sent and, where the QoS asks for it, acknowledged."""
        while self._waiting or self._outstanding or self._unwritten:
            await self._next_move()

    def sign_off(self) -> None:
        """Say "offline" as the last message; a clean disconnect would leave "online" behind."""
        if self._identity.status_topic is not None and self.first_up.is_set():
            self._signed_off = True
            self.offer(self._identity.status("offline"))

    def hang_up(self) -> None:
        """Drop the connection without DISCONNECT; `run` dials again."""
        if self._call is not None:
            self._call.hang_up()

    def leave(self) -> None:
        """Disconnect cleanly; `run` returns soon after."""
        self._leaving.set()
        if self._call is not None and self._call.is_up:
            self._client.disconnect(properties=self._expiry(PacketTypes.DISCONNECT, 0))
            self._call.flush()

    def give_up(self, cause: str) -> None:
        """Book every message whose fate is open as failed; an acknowledgement that comes later is not counted."""
        if self._unwritten is not None:
            self._ledger.fail(self._unwritten[0], cause)
            self._unwritten = None
        for message in (*self._outstanding.values(), *self._waiting):
            self._ledger.fail(message, cause)
        self._outstanding.clear()
        self._waiting.clear()

    async def _connection(self) -> None:
        """One connection from dialling to its end."""
        call = Call(self._client, self._pump)
        receive_maximum = await call.dial()
        self._call = call
        self._window = min(WINDOW, receive_maximum or WINDOW)
        self._ledger.connected += 1
        self._ledger.online += 1
        self._ledger.reconnects += self.first_up.is_set()
        if self._identity.status_topic is not None and not self._signed_off:
            birth = self._identity.status("online")
            self._ledger.publish(birth)
            self._waiting.appendleft(birth)
        self.first_up.set()
        if self._leaving.is_set():
            self.leave()
        self._pump()
        try:
            reason = await call.end()
        finally:
            call.cut()
            self._call = None
            self._ledger.online -= 1
        if self._unwritten is not None:
            self._ledger.fail(self._unwritten[0], "connection lost")
            self._unwritten = None
        if not self._leaving.is_set():
            self._ledger.losses[reason] += 1

    async def _wipe(self) -> None:
        """Make the broker forget a 3.1.1 session of our name: connect with "clean session", disconnect."""
        call = Call(self._new_client(clean=True))
        await call.dial()
        call.client.disconnect()
        call.flush()
        await call.end()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds * self._random.uniform(0.5, 1.5)):
                await self._leaving.wait()
        except TimeoutError:
            pass

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _pump(self) -> None:
        """Send what the window allows. A QoS 0 message counts as sent once the system took its last byte."""
        call = self._call
        self._settle_written()
        while self._waiting and call is not None and call.is_up and self._unwritten is None:
            if len(self._outstanding) >= self._window:
                break
            self._publish(self._waiting.popleft())
            call.flush()
        self._moved.set()

    def _publish(self, message: Message) -> None:
        payload = message.payload()
        message = replace(message, sent_us=monotonic_ns() // 1_000)
        self._ledger.payload_bytes += len(payload)
        info = self._client.publish(message.topic, payload, message.qos, message.retain, self._said_with(message))
        if message.qos > 0 and info.rc != MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            self._outstanding[info.mid] = message  # also when the line broke just now: paho resends it
        elif info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._ledger.fail(message, "connection lost" if message.qos == 0 else "no free packet identifier")
        else:
            self._unwritten = (message, info)
            self._settle_written()

    def _settle_written(self) -> None:
        if self._unwritten is not None:
            message, info = self._unwritten
            if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
                self._ledger.fail(message, "connection lost")
                self._unwritten = None
            elif info.is_published():
                self._ledger.send(message)
                self._unwritten = None

    def _on_publish(
        self, client: Client, userdata: Any, mid: int, reason: ReasonCode, properties: Properties | None
    ) -> None:
        message = self._outstanding.pop(mid, None)  # None: a QoS 0 message was written
        # A PUBREL that is sent again after the line broke finds nothing left to release: the message was taken.
        if message is not None and reason.is_failure and reason.value != PACKET_IDENTIFIER_NOT_FOUND:
            self._ledger.fail(message, f"refused: {reason}")
        elif message is not None:
            self._ledger.acknowledge(message)

    def _new_client(self, clean: bool) -> Client:
        identity = self._identity
        is_v5 = identity.dialect is Dialect.V5
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=identity.device,
            clean_session=None if is_v5 else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        self._access.present(client)
        if identity.status_topic is not None and not clean:
            will = identity.status("offline")
            client.will_set(will.topic, will.payload(), will.qos, will.retain)
        client.connect_async(
            self.address.host,
            self.address.port,
            KEEP_ALIVE_S,
            properties=self._expiry(PacketTypes.CONNECT, SESSION_EXPIRY_S),
        )
        return client

    def _said_with(self, message: Message) -> Properties | None:
        kept = message.properties() if self._identity.dialect is Dialect.V5 else {}
        if not kept:
            return None
        properties: Properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in kept.items():
            setattr(properties, name, value)
        return properties

    def _expiry(self, packet: int, seconds: int) -> Properties | None:
        if self._identity.dialect is Dialect.V311:
            return None
        properties: Properties = Properties(packet)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = seconds
        return properties
