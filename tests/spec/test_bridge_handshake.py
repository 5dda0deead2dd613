"""The handshake of a bridge with a 3.1.1 remote: the private protocol bit, and echoes recognised without it."""

from __future__ import annotations

from dataclasses import replace

from edgebridge.bridge import handshake
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.handshake import PRIVATE_TRIES, PRIVATE_TRIES_KNOWN, Handshake, HandshakeRetry
from edgebridge.bridge.loop_detection import ECHO_TIMEOUT, LoopDetector
from edgebridge.bridge.options import BridgeOptions, RemoteCapabilities
from edgebridge.bridge.rules import RuleSet, parse_rule
from edgebridge.frontend.bridge_session import BridgeSession
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.packets import ConnAck, Connect, Publish
from edgebridge.wire.reasons import ReasonCode

from ..support.bridge_world import World

OPTIONS = BridgeOptions("x", "up", [parse_rule("both/# both 1")], V311)


def memory() -> BridgeSession:
    """Of a bridge that never met its remote."""
    return BridgeSession(World(OPTIONS).here.frontend, OPTIONS.local_client_id)


def introduced(ends: Endpoints, opening: Handshake) -> bool:
    """Whether the next connection says that this is a bridge."""
    ends.remote.clear()
    opening.begin()
    return bool(ends.remote[0][8] & 0x80)


def in_vain(ends: Endpoints, opening: Handshake) -> int:
    """How many connections say that this is a bridge, if nobody answers, before one does not."""
    count = 0
    while introduced(ends, opening):
        opening.on_no_connack()
        count += 1
        assert count < 100
    return count


def test_a_remote_that_knows_bridges_is_not_taken_for_another_because_it_is_away() -> None:
    ends = Endpoints()
    opening = Handshake(OPTIONS, memory(), ends)
    assert in_vain(ends, opening) == PRIVATE_TRIES
    opening.on_connack(ConnAck())
    assert not opening.knows_bridges
    assert introduced(ends, opening), "it may have been away, and know bridges"
    opening.on_connack(ConnAck())
    assert opening.knows_bridges
    assert in_vain(ends, opening) == PRIVATE_TRIES_KNOWN, "but another may be there now"
    assert in_vain(ends, Handshake(OPTIONS, memory(), ends, True)) == PRIVATE_TRIES_KNOWN


def test_an_answer_that_is_lost_leaves_a_doubt_until_another_is_acted_upon() -> None:
    def doubts(opening: Handshake) -> bool:
        opening.begin()
        granted = opening.on_connack(ConnAck(True))
        assert isinstance(granted, RemoteCapabilities)
        return granted.is_in_doubt

    plain = Handshake(replace(OPTIONS, try_private=False), memory(), Endpoints())
    plain.begin()
    plain.on_no_connack()
    assert doubts(plain)
    assert doubts(plain), "the connection broke before our front end had heard of it"
    plain.confirm()
    assert not doubts(plain)
    plain.begin()
    plain.on_connack(ConnAck(reason=ReasonCode.SERVER_BUSY))
    assert not doubts(plain), "who refuses us begins no session"

    private = Handshake(OPTIONS, memory(), Endpoints())
    for _ in range(PRIVATE_TRIES):
        private.begin()
        private.on_no_connack()
    assert not doubts(private), "who cannot bear what bridges say first does not either"


def test_a_remote_that_refuses_the_will_is_asked_for_less() -> None:
    ends = Endpoints()
    options = BridgeOptions("x", "up", OPTIONS.rules, notification_topic="up/there", try_private=False)
    opening = Handshake(options, memory(), ends)
    wills = []
    for reason in (ReasonCode.SUCCESS, ReasonCode.RETAIN_NOT_SUPPORTED, ReasonCode.QOS_NOT_SUPPORTED):
        assert (opening.on_connack(ConnAck(reason=reason)) is HandshakeRetry.AT_ONCE) == (reason != ReasonCode.SUCCESS)
        ends.remote.clear()
        opening.begin()
        connect = decode_packet(ends.remote[0][0], ends.remote[0][2:], V5)
        assert isinstance(connect, Connect)
        assert connect.will is not None
        wills.append((connect.will.qos, connect.will.retain))
    assert wills == [(1, True), (1, False), (0, False)]
    assert isinstance(opening.on_connack(ConnAck(reason=ReasonCode.QOS_NOT_SUPPORTED)), str), "no more than that"
    assert not handshake.notification_publish(options, RemoteCapabilities(V5, retains=False), b"1").retain


def test_nobody_awaits_echoes_for_ever() -> None:
    rules = RuleSet(OPTIONS.rules)
    rules.set_remote(False)
    guard = LoopDetector(OPTIONS, rules)
    guard.begin(RemoteCapabilities(V311, session_present=True))
    for payload in (b"1", b"2"):
        assert guard.admit_outbound(Publish("both/a", payload, 1, packet_id=7), {}, 0)
    assert not guard.admit_inbound(Publish("both/a", b"1", 1, packet_id=3), 0)
    later = 2 * ECHO_TIMEOUT
    guard.begin(RemoteCapabilities(V311, session_present=True))
    assert not guard.admit_inbound(Publish("both/a", b"1", 1, dup=True, packet_id=3), later), (
        "the line was away meanwhile"
    )
    assert guard.admit_inbound(Publish("both/a", b"3", 1, packet_id=4), later + 2 * ECHO_TIMEOUT)
    assert not guard.awaits_echoes


def test_an_echo_that_is_repeated_is_an_echo() -> None:
    rules = RuleSet(OPTIONS.rules)
    rules.set_remote(False)
    guard = LoopDetector(OPTIONS, rules)
    guard.begin(RemoteCapabilities(V311, session_present=True))
    assert guard.admit_outbound(Publish("both/a", b"1", 1, packet_id=7), {}, 0)
    echo = Publish("both/a", b"1", 1, packet_id=3)
    assert not guard.admit_inbound(echo, 0)
    guard.begin(RemoteCapabilities(V311, session_present=True))
    again = Publish("both/a", b"1", 1, dup=True, packet_id=3)
    assert not guard.admit_inbound(again, 0), "our answer was lost"
    assert guard.admit_inbound(Publish("both/a", b"1", 1, packet_id=3), 0), "somebody there says the same"
    assert guard.admit_outbound(Publish("both/a", b"2", 1, packet_id=8), {}, 0)
    assert not guard.admit_inbound(Publish("both/a", b"2", 1, dup=True, packet_id=4), 0), (
        "the first was lost on its way"
    )
