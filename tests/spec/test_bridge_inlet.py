"""The end of a bridge at our own front end: what waits there while that wants a pause, and what it ends with."""

from __future__ import annotations

import asyncio

from edgebridge.frontend.refusal import Refusal, count_qos_0
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, PingReq, Publish
from edgebroker.world.bridging.inlet import Inlet
from edgebroker.world.gateway import Gateway
from tests.spec.inprocess import with_gateway

QOS_0 = encode_packet(Publish("a", b"x" * 200, 0), V5)
QOS_1 = encode_packet(Publish("a", b"x", 1, packet_id=1), V5)


class Silent:
    def told(self, inlet: Inlet, data: bytes) -> None: ...
    def closed(self, inlet: Inlet) -> None: ...
    def pause_reading(self, is_full: bool) -> None: ...


def test_what_waits_for_a_front_end_that_goes_is_counted() -> None:
    """Of QoS 0; what is QoS 1 was not acknowledged, and the remote says it again."""

    async def story(gateway: Gateway) -> None:
        reactor = gateway.insight.reactor
        inlet = Inlet(reactor, Silent(), "cloud", "")
        inlet.say(encode_packet(Connect("$bridge/cloud"), V5))
        inlet.say(QOS_0)
        inlet.pause_reading()
        inlet.say(QOS_0 + QOS_1 + QOS_0)
        inlet.say(QOS_0)
        inlet.leave()
        inlet.say(QOS_0)
        await asyncio.sleep(0)
        publishing = gateway.frontend.publishing
        assert publishing.refusals == {Refusal.UNREAD: 4}
        assert gateway.frontend.ledger.published == 1
        notes, _ = gateway.frontend.notes.take()
        assert {note.client for note in notes if "not read" in note.text} == {"$bridge/cloud"}

    with_gateway(story)


def test_only_whole_messages_of_qos_0_count() -> None:
    large = encode_packet(Publish("a", b"x" * 20_000, 0), V5)
    ping = encode_packet(PingReq(), V5)
    assert count_qos_0(QOS_0 + ping + QOS_1 + large + large[:-1]) == 2
    assert count_qos_0(QOS_0 + large[:3]) == 1
    assert count_qos_0(QOS_0 + b"\x30\xff\xff\xff\xff\xff") == 1
    assert count_qos_0(b"\x30") == 0
