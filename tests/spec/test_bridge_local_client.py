"""The local client of a bridge: what it buffers while the front end pauses it, and why it ends."""

from __future__ import annotations

import asyncio

from edgebridge.frontend.handlers.publish_admission import Refusal, count_qos_0
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PingReq, Publish
from edgebroker.runtime.bridges.local_client import LocalClient
from edgebroker.runtime.gateway import Gateway
from tests.support.gateway_in_process import with_gateway

QOS_0 = encode_packet(Publish("a", b"x" * 200, 0), V5)
QOS_1 = encode_packet(Publish("a", b"x", 1, packet_id=1), V5)


class Silent:
    def told(self, local_client: LocalClient, data: bytes) -> None: ...
    def closed(self, local_client: LocalClient) -> None: ...
    def pause_reading(self, is_full: bool) -> None: ...


def test_what_waits_for_a_front_end_that_goes_is_counted() -> None:
    """Of QoS 0; what is QoS 1 was not acknowledged, and the remote says it again."""

    async def story(gateway: Gateway) -> None:
        reactor = gateway.view.reactor
        local_client = LocalClient(reactor, Silent(), "cloud", "")
        local_client.send(encode_packet(Connect("$bridge/cloud"), V5))
        local_client.send(QOS_0)
        local_client.pause_reading()
        local_client.send(QOS_0 + QOS_1 + QOS_0)
        local_client.send(QOS_0)
        local_client.disconnect()
        local_client.send(QOS_0)
        await asyncio.sleep(0)
        publish_handler = gateway.frontend.publish_handler
        assert publish_handler.refusals == {Refusal.UNREAD: 4}
        assert gateway.frontend.ledger.published == 1
        notes, _ = gateway.frontend.events.take()
        assert {note.client for note in notes if "not read" in note.text} == {"$bridge/cloud"}

    with_gateway(story)


def test_only_whole_messages_of_qos_0_count() -> None:
    large = encode_packet(Publish("a", b"x" * 20_000, 0), V5)
    ping = encode_packet(PingReq(), V5)
    assert count_qos_0(QOS_0 + ping + QOS_1 + large + large[:-1]) == 2
    assert count_qos_0(QOS_0 + large[:3]) == 1
    assert count_qos_0(QOS_0 + b"\x30\xff\xff\xff\xff\xff") == 1
    assert count_qos_0(b"\x30") == 0
