"""A small MQTT client on the broker's own codec, for `pub`, `sub`, `announce` and the demo.

It supports MQTT 3.1.1 and 5.0 and all QoS levels, one connection per client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscriptionOption,
    UnsubAck,
)
from edgebridge.wire.properties import Properties, Property, number, text_property
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.cli.transport import ANSWER_TIMEOUT_S, BrokerTransport, ByteReader, ByteWriter, error_text
from edgebroker.errors import EdgebrokerError
from edgebroker.limits import PACKET_BYTES_MAX

CHUNK_BYTES: Final = 64 * 1024
INBOX_MESSAGES_MAX: Final = 1_000  # with more the connection is not read, and TCP stops the broker
WINDOW_MAX: Final = 20  # unacknowledged publications: 20 hide a round trip of a millisecond, more gain nothing

Reply = TypeVar("Reply", ConnAck, PubAck, PubRec, PubComp, SubAck)


class BrokerRefusal(EdgebrokerError):
    """The broker refused; `reason` is its reason code."""

    def __init__(self, action: str, reason: int, properties: Properties) -> None:
        super().__init__(f"{action}: {reason_text(reason, properties)}")
        self.reason = reason


class ConnectionLost(EdgebrokerError):
    """The connection ended while it was needed."""


def reason_text(reason: int, properties: Properties) -> str:
    """Returns the broker's reason string if there is one, and the name of the code *reason*."""
    try:
        name = ReasonCode(reason).name.replace("_", " ").lower()
    except ValueError:
        name = "unknown reason"
    reason_string = text_property(properties, Property.REASON_STRING)
    return f"{reason_string} ({name}, 0x{reason:02X})" if reason_string else f"{name} (0x{reason:02X})"


@asynccontextmanager
async def connect(transport: BrokerTransport, packet: Connect) -> AsyncIterator[MqttClient]:
    """Opens a connection over *transport* and sends *packet*; sends DISCONNECT at the end.

    Raises BrokerNoAnswer, or BrokerRefusal if CONNACK has a failure.
    """
    reader, writer = await transport.open()
    client = MqttClient(reader, writer, packet.dialect)
    try:
        await client._connect(str(transport), packet)
        yield client
    finally:
        await client._disconnect()


class MqttClient:
    """One connection, made by `connect`. `connack` is the broker's CONNACK."""

    def __init__(self, reader: ByteReader, writer: ByteWriter, dialect: Dialect) -> None:
        self.connack = ConnAck()
        self.window = WINDOW_MAX
        self._reader = reader
        self._writer = writer
        self._dialect = dialect
        self._last_id = 0
        self._replies: dict[tuple[type[Packet], int], asyncio.Future[Packet]] = {}
        self._inbox: deque[Publish] = deque()
        self._unreleased: set[int] = set()
        self._has_message = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._error: EdgebrokerError | None = None
        self._tasks = [asyncio.create_task(self._read())]

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> ReasonCode:
        """Publishes and waits until the exchange is complete; with QoS 0 until the write buffer has room.

        At most `window` calls may be in progress at once. Raises BrokerRefusal or ConnectionLost.
        """
        packet = Publish(topic, payload, qos, retain, properties=properties or {})
        if qos == 0:
            await self._send(packet)
            return ReasonCode.SUCCESS
        packet.packet_id = self._free_id()
        action = f"the broker refused the message to {topic!r}"
        if qos == 1:
            puback = await self._request(packet, PubAck, packet.packet_id)
            return _check_reason(action, puback.reason, puback.properties)
        pubrec = await self._request(packet, PubRec, packet.packet_id)
        reason = _check_reason(action, pubrec.reason, pubrec.properties)
        await self._request(PubRel(packet.packet_id), PubComp, packet.packet_id)
        return reason

    async def subscribe(self, subscriptions: list[SubscriptionOption], properties: Properties | None = None) -> SubAck:
        """Subscribes. The SUBACK has one reason code per subscription; nothing is raised for failures."""
        packet = Subscribe(self._free_id(), subscriptions, properties or {})
        return await self._request(packet, SubAck, packet.packet_id)

    async def messages(self) -> AsyncIterator[Publish]:
        """Yields every message, acknowledged when it is taken: the broker keeps those that are not taken.

        Raises ConnectionLost, or BrokerRefusal if the broker ends the connection with a reason.
        """
        while True:
            while not self._inbox:
                if self._error:
                    raise self._error
                self._has_message.clear()
                await self._has_message.wait()
            message = self._inbox.popleft()
            self._has_room.set()
            if message.qos == 1:
                await self._send(PubAck(message.packet_id))
            elif message.qos == 2:
                await self._send(PubRec(message.packet_id))
            yield message

    # -- connecting and disconnecting -----------------------------------------------------------------------------

    async def _connect(self, address: str, packet: Connect) -> None:
        if self._dialect.has_properties:
            limits = {Property.RECEIVE_MAXIMUM: INBOX_MESSAGES_MAX, Property.MAXIMUM_PACKET_SIZE: PACKET_BYTES_MAX}
            packet.properties = {**limits, **packet.properties}
        try:
            self.connack = await self._request(packet, ConnAck, 0)
        except ConnectionLost as error:
            raise ConnectionLost(f"{address} does not answer as an MQTT broker: {error}") from None
        _check_reason(f"{address} refused the connection", self.connack.reason, self.connack.properties)
        self.window = min(WINDOW_MAX, number(self.connack.properties, Property.RECEIVE_MAXIMUM, WINDOW_MAX))
        keep_alive_s = number(self.connack.properties, Property.SERVER_KEEP_ALIVE, packet.keep_alive_s)
        if keep_alive_s:
            self._tasks.append(asyncio.create_task(self._ping(keep_alive_s)))

    async def _disconnect(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if not self._error:
                    self._writer.write(encode_packet(Disconnect(), self._dialect))
                self._writer.close()
                await self._writer.wait_closed()

    async def _ping(self, keep_alive_s: int) -> None:
        """Sends PINGREQ at half of the keep-alive interval, so that a scheduling delay does no harm."""
        while True:
            await asyncio.sleep(keep_alive_s / 2)
            with suppress(ConnectionLost):
                await self._send(PingReq())

    # -- packets -----------------------------------------------------------------------------------------------

    async def _send(self, packet: Packet) -> None:
        if self._error:
            raise self._error
        data = encode_packet(packet, self._dialect)
        bytes_max = number(self.connack.properties, Property.MAXIMUM_PACKET_SIZE, len(data))
        if len(data) > bytes_max:
            action = f"a packet of {len(data)} bytes is more than the broker's {bytes_max}"
            raise BrokerRefusal(action, ReasonCode.PACKET_TOO_LARGE, {})
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLost(f"the connection ended: {error_text(error)}") from None

    async def _request(self, packet: Packet, kind: type[Reply], packet_id: int) -> Reply:
        """Sends *packet* and waits for its reply of type *kind*."""
        reply = asyncio.get_running_loop().create_future()
        self._replies[kind, packet_id] = reply
        try:
            await self._send(packet)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await reply
        except TimeoutError:
            raise ConnectionLost(f"no {kind.__name__.upper()} in {ANSWER_TIMEOUT_S} s") from None
        finally:
            self._replies.pop((kind, packet_id), None)
            if reply.done() and not reply.cancelled():
                reply.exception()  # retrieved, or asyncio would report an error that occurred during the send
        assert isinstance(response, kind)
        return response

    def _free_id(self) -> int:
        used = {packet_id for _, packet_id in self._replies}
        self._last_id = self._last_id % 0xFFFF + 1
        while self._last_id in used:
            self._last_id = self._last_id % 0xFFFF + 1
        return self._last_id

    async def _read(self) -> None:
        framer = Framer(PACKET_BYTES_MAX)
        try:
            while chunk := await self._reader.read(CHUNK_BYTES):
                framer.feed(chunk)
                while frame := framer.next_frame():
                    await self._dispatch(decode_packet(*frame, self._dialect))
            self._fail(ConnectionLost("the broker closed the connection"))
        except OSError as error:
            self._fail(ConnectionLost(f"the connection ended: {error_text(error)}"))
        except ProtocolError as error:
            self._fail(ConnectionLost(f"the broker sent what cannot be read: {error}"))
        except EdgebrokerError as error:
            self._fail(error)

    async def _dispatch(self, packet: Packet) -> None:
        match packet:
            case Publish():
                await self._enqueue(packet)
            case PubRel():
                self._unreleased.discard(packet.packet_id)
                await self._send(PubComp(packet.packet_id))
            case Disconnect():
                raise BrokerRefusal("the broker ended the connection", packet.reason, packet.properties)
            case ConnAck():
                self._complete(packet, 0)
            case PubAck() | PubRec() | PubComp() | SubAck() | UnsubAck():
                self._complete(packet, packet.packet_id)

    async def _enqueue(self, message: Publish) -> None:
        if message.qos == 2:
            if message.packet_id in self._unreleased:
                return  # a retransmission: the first copy is or will be acknowledged
            self._unreleased.add(message.packet_id)
        self._inbox.append(message)
        self._has_message.set()
        if len(self._inbox) >= INBOX_MESSAGES_MAX:
            self._has_room.clear()
        await self._has_room.wait()

    def _complete(self, packet: Packet, packet_id: int) -> None:
        reply = self._replies.get((type(packet), packet_id))
        if reply and not reply.done():
            reply.set_result(packet)

    def _fail(self, error: EdgebrokerError) -> None:
        self._error = error
        self._has_message.set()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)


def _check_reason(action: str, reason: ReasonCode, properties: Properties) -> ReasonCode:
    if reason >= FAILURE:
        raise BrokerRefusal(action, reason, properties)
    return reason
