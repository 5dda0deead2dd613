"""Acknowledgements of a remote that are of the wrong kind, come twice or never come."""

from __future__ import annotations

import pytest

from edgebridge.bridge.endpoints import BridgeState
from edgebridge.bridge.shaper import UNSHAPED
from edgebridge.wire.packets import Ack, Packet, PubAck, PubComp, Publish, PubRec, PubRel
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND

from ..support.open_bridge import OpenBridge

REFUSED = ReasonCode.NOT_AUTHORIZED


def carried(qos: int, *answers: Ack) -> OpenBridge:
    """A bridge that sent one message of *qos*, and got *answers*."""
    trip = OpenBridge(UNSHAPED)
    trip.ours(Publish("out/a", b"1", qos, packet_id=7))
    assert [type(packet) for packet in trip.sent()] == [Publish]
    trip.theirs(*answers)
    return trip


@pytest.mark.parametrize(
    ("qos", "answers", "to_us", "to_them", "kinds"),
    [
        (1, [PubRec(7), PubComp(7)], [PubAck(7)], [PubRel(7)], {"PUBREC to QoS 1": 1}),
        (1, [PubRec(7), PubRec(7), PubComp(7)], [PubAck(7)], [PubRel(7), PubRel(7)], {"PUBREC to QoS 1": 1}),
        (1, [PubRec(7, REFUSED)], [PubAck(7, REFUSED)], [], {"PUBREC to QoS 1": 1}),
        (1, [PubComp(7)], [PubAck(7)], [], {"PUBCOMP to QoS 1": 1}),
        (2, [PubAck(7)], [PubRec(7)], [], {"PUBACK to QoS 2": 1}),
        (2, [PubAck(7, REFUSED)], [PubRec(7, REFUSED)], [], {"PUBACK to QoS 2": 1}),
        (2, [PubComp(7)], [PubRec(7)], [], {"PUBCOMP to QoS 2": 1}),
        (2, [PubRec(7), PubAck(7)], [PubRec(7)], [], {"PUBACK to QoS 2": 1}),
        (2, [PubRec(7), PubComp(7)], [PubRec(7)], [], {"PUBCOMP to QoS 2": 1}),
        (1, [PubAck(7), PubAck(7)], [PubAck(7)], [], {"PUBACK to no message": 1}),
        (2, [PubRec(7), PubRec(7)], [PubRec(7)], [], {}),
        (1, [PubAck(7), PubRec(7), PubComp(7)], [PubAck(7)], [PubRel(7)], {}),
    ],
)
def test_a_message_goes_on_as_far_as_the_kind_of_its_answer_says(
    qos: int, answers: list[Ack], to_us: list[Packet], to_them: list[Packet], kinds: dict[str, int]
) -> None:
    trip = carried(qos, *answers)
    assert trip.answered() == to_us
    assert trip.sent() == to_them
    assert trip.bridge.outbound_counters.described()["wrong_acknowledgements"] == kinds
    assert {event for event, _ in trip.bridge.take_warnings()} == ({"bridge-answers"} if kinds else set())
    assert trip.bridge.state is BridgeState.OPEN


@pytest.mark.parametrize("answers", [[PubAck(7)], [PubComp(7)], [PubRec(7), PubAck(7)]])
def test_the_rest_of_the_handshake_ends_here_and_later_messages_have_the_qos_that_the_remote_can(
    answers: list[Ack],
) -> None:
    trip = carried(2, *answers)
    trip.answered()
    trip.ours(PubRel(7))
    assert (trip.answered(), trip.sent()) == ([PubComp(7)], []), "it is finished there"
    trip.ours(Publish("out/a", b"2", 2, packet_id=8), Publish("out/b", b"3", 2, packet_id=9))
    assert [(one.qos, one.packet_id) for one in trip.sent() if isinstance(one, Publish)] == [(1, 8), (1, 9)]
    trip.theirs(PubAck(8), PubAck(9))
    assert trip.answered() == [PubRec(8), PubRec(9)]
    assert trip.bridge.sends_qos_1
    assert sum(trip.bridge.outbound_counters.wrong_acknowledgements.values()) == 1, "now it answers as it should"
    trip.bridge.on_connection_lost("cut", trip.now)
    trip.connect()
    trip.ours(PubRel(8), Publish("out/a", b"4", 2, packet_id=10))
    assert [one.qos for one in trip.sent() if isinstance(one, Publish)] == [1], "on the next connection too"
    assert PubComp(8) in trip.answered()


def test_a_message_on_its_way_is_finished_as_it_began() -> None:
    trip = OpenBridge(UNSHAPED)
    trip.ours(*(Publish("out/a", b"", 2, packet_id=number) for number in (1, 2, 3)))
    trip.theirs(PubRec(1), PubAck(2), PubRec(3))
    assert trip.answered() == [PubRec(1), PubRec(2), PubRec(3)]
    trip.sent()
    trip.ours(PubRel(1), PubRel(2), PubRel(3))
    assert trip.sent() == [PubRel(1), PubRel(3)]
    trip.theirs(PubRec(3), PubComp(1), PubComp(3))
    assert trip.sent() == [PubRel(3)], "it asks once more, and is told once more"
    assert trip.answered() == [PubComp(2), PubComp(1), PubComp(3)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_remote_that_never_answers_is_not_open_for_longer_than_it_may(qos: int) -> None:
    trip = carried(qos)
    trip.until(61 * SECOND)
    assert trip.bridge.state is not BridgeState.OPEN
    assert "has not acknowledged a message within 60 s" in trip.bridge.reason


def test_one_that_answers_slowly_stays() -> None:
    trip = OpenBridge(UNSHAPED)
    trip.ours(*(Publish("out/a", b"", 2, packet_id=number) for number in range(1, 11)))
    for number in range(1, 11):
        for answer in (PubRec(number), PubComp(number)):
            trip.until(trip.now + 25 * SECOND)
            trip.theirs(answer)
            if isinstance(answer, PubRec):
                trip.ours(PubRel(number))
    assert trip.bridge.state is BridgeState.OPEN
    trip.until(trip.now + 3_600 * SECOND)
    assert trip.bridge.state is BridgeState.OPEN, "nothing is to be answered"


def test_what_our_own_front_end_owes_is_not_the_remotes() -> None:
    trip = carried(2, PubRec(7))
    trip.until(3_600 * SECOND)
    assert trip.bridge.state is BridgeState.OPEN
