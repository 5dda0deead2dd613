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
INBOX_MESSAGES_MAX: Final = 1_000  # beyond these the connection is not read, and TCP holds the broker back
WINDOW_MAX: Final = 20  # unanswered publications; more gain nothing, 20 already hide a round trip of a millisecond

Answer = TypeVar("Answer", ConnAck, PubAck, PubRec, PubComp, SubAck)


class BrokerRefusal(EdgebrokerError):
    """The broker said no; `reason` is its reason code."""

    def __init__(self, what: str, reason: int, properties: Properties) -> None:
        super().__init__(f"{what}: {reason_text(reason, properties)}")
        self.reason = reason


class ConnectionLost(EdgebrokerError):
    """The connection ended while it was needed."""


def reason_text(reason: int, properties: Properties) -> str:
    """What the broker says about *reason*: its reason string if there is one, else the name of the code."""
    try:
        name = ReasonCode(reason).name.replace("_", " ").lower()
    except ValueError:
        name = "unknown reason"
    said = text_property(properties, Property.REASON_STRING)
    return f"{said} ({name}, 0x{reason:02X})" if said else f"{name} (0x{reason:02X})"


@asynccontextmanager
async def connect(way: BrokerTransport, packet: Connect) -> AsyncIterator[MqttClient]:
    """A connection by *way* that introduces itself with *packet*; left with DISCONNECT.

    Raises Unreachable, or Refused if CONNACK says no.
    """
    reader, writer = await way.open()
    client = MqttClient(reader, writer, packet.dialect)
    try:
        await client._connect(str(way), packet)
        yield client
    finally:
        await client._disconnect()


class MqttClient:
    """One connection. `connack` is what the broker said to our CONNECT. Made by `connect`."""

    def __init__(self, reader: ByteReader, writer: ByteWriter, dialect: Dialect) -> None:
        self.connack = ConnAck()
        self.window = WINDOW_MAX
        self._reader = reader
        self._writer = writer
        self._dialect = dialect
        self._last_id = 0
        self._waiting: dict[tuple[type[Packet], int], asyncio.Future[Packet]] = {}
        self._inbox: deque[Publish] = deque()
        self._unreleased: set[int] = set()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._failure: EdgebrokerError | None = None
        self._tasks = [asyncio.create_task(self._read())]

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Properties | None = None
    ) -> ReasonCode:
        """Publish and wait until the exchange is complete; QoS 0 until it is handed to the operating system.

        At most `window` calls may be under way at once. Raises Refused or ConnectionLost.
        """
        packet = Publish(topic, payload, qos, retain, properties=properties or {})
        if qos == 0:
            await self._send(packet)
            return ReasonCode.SUCCESS
        packet.packet_id = self._free_id()
        what = f"the broker refused the message to {topic!r}"
        if qos == 1:
            puback = await self._ask(packet, PubAck, packet.packet_id)
            return _accepted(what, puback.reason, puback.properties)
        pubrec = await self._ask(packet, PubRec, packet.packet_id)
        reason = _accepted(what, pubrec.reason, pubrec.properties)
        await self._ask(PubRel(packet.packet_id), PubComp, packet.packet_id)
        return reason

    async def subscribe(self, subscriptions: list[SubscriptionOption], properties: Properties | None = None) -> SubAck:
        """Subscribe. The answer has one reason per subscription; nothing is raised for those that failed."""
        packet = Subscribe(self._free_id(), subscriptions, properties or {})
        return await self._ask(packet, SubAck, packet.packet_id)

    async def messages(self) -> AsyncIterator[Publish]:
        """Every message as it comes, acknowledged when it is taken: what stays untaken the broker keeps.

        Raises ConnectionLost, or Refused if the broker ends the connection with a reason.
        """
        while True:
            while not self._inbox:
                if self._failure:
                    raise self._failure
                self._news.clear()
                await self._news.wait()
            message = self._inbox.popleft()
            self._room.set()
            if message.qos == 1:
                await self._send(PubAck(message.packet_id))
            elif message.qos == 2:
                await self._send(PubRec(message.packet_id))
            yield message

    # -- the connection's ends ---------------------------------------------------------------------------------

    async def _connect(self, where: str, packet: Connect) -> None:
        if self._dialect.has_properties:
            limits = {Property.RECEIVE_MAXIMUM: INBOX_MESSAGES_MAX, Property.MAXIMUM_PACKET_SIZE: PACKET_BYTES_MAX}
            packet.properties = {**limits, **packet.properties}
        try:
            self.connack = await self._ask(packet, ConnAck, 0)
        except ConnectionLost as error:
            raise ConnectionLost(f"{where} does not answer as an MQTT broker: {error}") from None
        _accepted(f"{where} refused the connection", self.connack.reason, self.connack.properties)
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
                if not self._failure:
                    self._writer.write(encode_packet(Disconnect(), self._dialect))
                self._writer.close()
                await self._writer.wait_closed()

    async def _ping(self, keep_alive_s: int) -> None:
        """Half the keep-alive between pings: one that is late by a scheduling delay does no harm."""
        while True:
            await asyncio.sleep(keep_alive_s / 2)
            with suppress(ConnectionLost):
                await self._send(PingReq())

    # -- packets -----------------------------------------------------------------------------------------------

    async def _send(self, packet: Packet) -> None:
        if self._failure:
            raise self._failure
        octets = encode_packet(packet, self._dialect)
        bytes_max = number(self.connack.properties, Property.MAXIMUM_PACKET_SIZE, len(octets))
        if len(octets) > bytes_max:
            what = f"a packet of {len(octets)} bytes is more than the broker's {bytes_max}"
            raise BrokerRefusal(what, ReasonCode.PACKET_TOO_LARGE, {})
        self._writer.write(octets)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLost(f"the connection ended: {error_text(error)}") from None

    async def _ask(self, packet: Packet, kind: type[Answer], packet_id: int) -> Answer:
        """Send *packet* and wait for its answer of *kind*."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[kind, packet_id] = waiting
        try:
            await self._send(packet)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await waiting
        except TimeoutError:
            raise ConnectionLost(f"no {kind.__name__.upper()} in {ANSWER_TIMEOUT_S} s") from None
        finally:
            self._waiting.pop((kind, packet_id), None)
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # looked at, or asyncio would complain of one that met us in the middle of sending
        assert isinstance(answer, kind)
        return answer

    def _free_id(self) -> int:
        used = {packet_id for _, packet_id in self._waiting}
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
                return  # sent again: the first copy is or will be answered
            self._unreleased.add(message.packet_id)
        self._inbox.append(message)
        self._news.set()
        if len(self._inbox) >= INBOX_MESSAGES_MAX:
            self._room.clear()
        await self._room.wait()

    def _complete(self, packet: Packet, packet_id: int) -> None:
        waiting = self._waiting.get((type(packet), packet_id))
        if waiting and not waiting.done():
            waiting.set_result(packet)

    def _fail(self, error: EdgebrokerError) -> None:
        self._failure = error
        self._news.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


def _accepted(what: str, reason: ReasonCode, properties: Properties) -> ReasonCode:
    if reason >= FAILURE:
        raise BrokerRefusal(what, reason, properties)
    return reason
