"""aiomqtt, both versions, against one gateway: what its users rely on, end to end."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
V311, V5 = aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
EVERY_QOS = pytest.mark.parametrize("qos", [0, 1, 2])
READINGS = (b'{"temp":29}', b'{"temp":31}', b'{"temp":"31"}', b"not json", b'{"site":"b"}')
NUMBERS = itertools.count()


def properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def play(conversation: Callable[[], Awaitable[None]]) -> None:
    """Run a conversation, which must be over in time."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await conversation()

    asyncio.run(bounded())


def guest(gateway: Any, version: Any, name: str = "", *, keep: bool = False, will: Any = None) -> Any:
    """A client, to be entered."""
    how: dict[str, Any] = {"clean_session": not keep}
    if version == V5:
        lasting = properties(PacketTypes.CONNECT, SessionExpiryInterval=300 if keep else 0)
        how = {"clean_start": not keep, "properties": lasting}
    return aiomqtt.Client(
        "127.0.0.1",
        gateway.port,
        identifier=name or f"aiomqtt-{next(NUMBERS)}",
        protocol=version,
        will=will,
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],  # else each PUBLISH after a PUBACK waits 40 ms
        **how,
    )


async def all_from(writer: Any, reader: Any) -> list[Any]:
    """Everything that *writer* has published so far: what comes before a last message, published by it now.

    That is of QoS 2: one of less would overtake QoS 2 messages whose PUBREL is still on its way.
    """
    marker = f"end/{next(NUMBERS)}"
    await reader.subscribe(marker, 2)
    await writer.publish(marker, qos=2)
    found = []
    async for message in reader.messages:
        if message.topic.value == marker:
            break
        found.append(message)
    return found


async def vanish(client: Any) -> None:
    """Lose the connection without DISCONNECT, and see it."""
    client._client.socket().shutdown(socket.SHUT_RDWR)
    with suppress(aiomqtt.MqttError):
        async for _ in client.messages:
            pass


def seen(message: Any) -> tuple[str, bytes, int, bool]:
    return message.topic.value, message.payload, message.qos, message.retain


def codes(granted: Any) -> list[int]:
    """The answers of SUBACK; aiomqtt gives numbers or objects."""
    return [getattr(reason, "value", reason) for reason in granted]


# -- both versions ---------------------------------------------------------------------------------------------


@VERSIONS
@EVERY_QOS
def test_messages_arrive_once_in_order_with_their_qos(gateway: Any, version: Any, qos: int) -> None:
    async def conversation() -> None:
        async with guest(gateway, version) as reader, guest(gateway, version) as writer:
            assert codes(await reader.subscribe("order/+/a", 2)) == [2]
            for number in range(50):
                await writer.publish("order/x/a", b"%d" % number, qos)
            expected = [("order/x/a", b"%d" % number, qos, False) for number in range(50)]
            assert [seen(message) for message in await all_from(writer, reader)] == expected

    play(conversation)


@VERSIONS
@EVERY_QOS
def test_retained_messages_are_kept_and_cleared(gateway: Any, version: Any, qos: int) -> None:
    async def conversation() -> None:
        async with guest(gateway, version) as writer, guest(gateway, version) as reader:
            await writer.publish("kept/a", b"old", qos, retain=True)
            await writer.publish("kept/a", b"new", qos, retain=True)
            assert await all_from(writer, reader) == []
            await reader.subscribe("kept/#", 2)
            assert [seen(message) for message in await all_from(writer, reader)] == [("kept/a", b"new", qos, True)]
            await writer.publish("kept/a", b"", qos, retain=True)
            assert [seen(message) for message in await all_from(writer, reader)] == [("kept/a", b"", qos, False)]
            await reader.subscribe("kept/#", 2)
            assert await all_from(writer, reader) == []

    play(conversation)


@VERSIONS
@EVERY_QOS
def test_a_will_tells_of_an_abnormal_end_only(gateway: Any, version: Any, qos: int) -> None:
    async def conversation() -> None:
        async with guest(gateway, version) as reader:
            await reader.subscribe("status/#", 2)
            async with guest(gateway, version, will=aiomqtt.Will("status/polite", b"offline", qos)):
                pass
            async with guest(gateway, version, will=aiomqtt.Will("status/broken", b"offline", qos)) as device:
                await vanish(device)
            message = await anext(aiter(reader.messages))
            assert seen(message) == ("status/broken", b"offline", qos, False)
            assert await all_from(reader, reader) == []

    play(conversation)


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_kept_session_is_resumed(gateway: Any, version: Any, qos: int) -> None:
    name = f"aiomqtt-keeper-{version}-{qos}"

    async def conversation() -> None:
        async with guest(gateway, version) as writer:
            async with guest(gateway, version, name, keep=True) as keeper:
                await keeper.subscribe("resume/#", 2)
            for number in range(20):
                await writer.publish("resume/a", b"%d" % number, qos)
            async with guest(gateway, version, name, keep=True) as keeper:
                received = [seen(message) for message in await all_from(writer, keeper)]
                assert received == [("resume/a", b"%d" % number, qos, False) for number in range(20)]
            async with guest(gateway, version, name) as keeper:
                await writer.publish("resume/a", b"nobody asked", qos)
                assert await all_from(writer, keeper) == []

    play(conversation)


@VERSIONS
def test_wildcards_and_unsubscribing(gateway: Any, version: Any) -> None:
    topics = ["w/north/temp", "w/south/temp", "w/north", "w/north/a/b", "w/south/a"]

    async def conversation() -> None:
        async with guest(gateway, version) as reader, guest(gateway, version) as writer:
            assert codes(await reader.subscribe([("w/+/temp", 0), ("w/north/#", 1)])) == [0, 1]
            for topic in topics:
                await writer.publish(topic, b"", 1)
            assert [message.topic.value for message in await all_from(writer, reader)] == topics[:4]
            await reader.unsubscribe("w/north/#")
            for topic in topics:
                await writer.publish(topic, b"", 1)
            assert [message.topic.value for message in await all_from(writer, reader)] == topics[:2]

    play(conversation)


@VERSIONS
@EVERY_QOS
def test_a_mebibyte(gateway: Any, version: Any, qos: int) -> None:
    payload = bytes(range(256)) * 4096

    async def conversation() -> None:
        async with guest(gateway, version) as reader, guest(gateway, version) as writer:
            await reader.subscribe("large", qos)
            await writer.publish("large", payload, qos)
            assert (await anext(aiter(reader.messages))).payload == payload

    play(conversation)


@VERSIONS
def test_three_clients_at_once(gateway: Any, version: Any) -> None:
    """Each publishes 200 messages while it receives those of all; nobody's order is disturbed."""

    async def chatter(client: Any, number: int) -> list[Any]:
        for count in range(200):
            await client.publish(f"crowd/{number}", b"%d" % count, 1)
        received = []
        async for message in client.messages:
            received.append((message.topic.value, int(message.payload)))
            if len(received) == 600:
                break
        return received

    async def conversation() -> None:
        async with guest(gateway, version) as a, guest(gateway, version) as b, guest(gateway, version) as c:
            for one in (a, b, c):
                await one.subscribe("crowd/+", 1)
            for received in await asyncio.gather(*(chatter(one, number) for number, one in enumerate((a, b, c)))):
                for number in range(3):
                    own = [count for topic, count in received if topic == f"crowd/{number}"]
                    assert own == list(range(200))

    play(conversation)


# -- content filters -------------------------------------------------------------------------------------------


@VERSIONS
def test_a_filter_in_the_topic(gateway: Any, version: Any) -> None:
    async def conversation() -> None:
        async with guest(gateway, version) as reader, guest(gateway, version) as writer:
            assert codes(await reader.subscribe("$filter/temp%3E30/sensors/#", 1)) == [1]
            for payload in READINGS:
                await writer.publish("sensors/a", payload, 1)
            assert [message.payload for message in await all_from(writer, reader)] == [b'{"temp":31}']

    play(conversation)


@VERSIONS
def test_a_bad_filter_is_refused_and_the_other_granted(gateway: Any, version: Any) -> None:
    async def conversation() -> None:
        async with guest(gateway, version) as reader, guest(gateway, version) as writer:
            answers = codes(await reader.subscribe([("$filter/temp%3E%3E30/sensors/#", 1), ("fine", 1)]))
            assert answers == ([0x8F, 1] if version == V5 else [0x80, 1])
            await writer.publish("sensors/a", READINGS[1], 1)
            await writer.publish("fine", b"", 1)
            assert [message.topic.value for message in await all_from(writer, reader)] == ["fine"]

    play(conversation)


@VERSIONS
def test_a_shared_subscription_is_granted(gateway: Any, version: Any) -> None:
    async def conversation() -> None:
        async with guest(gateway, version) as reader:
            assert codes(await reader.subscribe("$share/g/$filter/temp%3E30/sensors/#", 1)) == [1]
            for payload in ('{"temp":20}', '{"temp":31}'):
                await reader.publish("sensors/a", payload, 1)
            message = await anext(reader.messages)
            assert message.payload == b'{"temp":31}'

    play(conversation)


# -- version 5 only --------------------------------------------------------------------------------------------


def test_a_filter_as_user_property(gateway: Any) -> None:
    where = properties(PacketTypes.SUBSCRIBE, UserProperty=("$where", "temp > 30 OR site IN ('a', 'b')"))
    bad = properties(PacketTypes.SUBSCRIBE, UserProperty=("$where", "temp >"))

    async def conversation() -> None:
        async with guest(gateway, V5) as reader, guest(gateway, V5) as writer:
            assert codes(await reader.subscribe("sensors/#", 1, properties=bad)) == [0x8F]
            assert codes(await reader.subscribe("sensors/#", 1, properties=where)) == [1]
            for payload in READINGS:
                await writer.publish("sensors/a", payload, 1)
            received = [message.payload for message in await all_from(writer, reader)]
            assert received == [b'{"temp":31}', b'{"site":"b"}']

    play(conversation)


@EVERY_QOS
def test_properties_travel(gateway: Any, qos: int) -> None:
    told: dict[str, Any] = {
        "UserProperty": [("site", "north"), ("site", "é")],
        "ContentType": "application/cbor",
        "ResponseTopic": "answers/here",
        "CorrelationData": b"\x00\xff",
    }

    async def conversation() -> None:
        async with guest(gateway, V5) as reader, guest(gateway, V5) as writer:
            await reader.subscribe("props", 2, properties=properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=7))
            carried = properties(PacketTypes.PUBLISH, MessageExpiryInterval=1_000, TopicAlias=1, **told)
            await writer.publish("props", b"\xa0", qos, properties=carried)
            await writer.publish("", b"\xa1", qos, properties=properties(PacketTypes.PUBLISH, TopicAlias=1))
            first, second = await all_from(writer, reader)
            assert {name: getattr(first.properties, name) for name in told} == told
            assert 1_000 - PATIENCE_S < first.properties.MessageExpiryInterval <= 1_000
            assert first.properties.SubscriptionIdentifier == [7]
            assert seen(second) == ("props", b"\xa1", qos, False)

    play(conversation)
