"""The handshake of a bridge: versions that a remote refuses, the private protocol bit, and echoes without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebridge.bridge import handshake
from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.handshake import PRIVATE_TRIES, PRIVATE_TRIES_KNOWN, Handshake, HandshakeRetry
from edgebridge.bridge.loop_detection import ECHO_TIMEOUT, LoopDetector
from edgebridge.bridge.options import BridgeOptions, RemoteCapabilities
from edgebridge.bridge.rules import RuleSet, parse_rule
from edgebridge.frontend.bridge_session import BridgeSession
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, V311_BRIDGE, Dialect
from edgebridge.wire.packets import ConnAck, Connect, Publish
from edgebridge.wire.reasons import ReasonCode

from ..support.bridge_world import World
from ..support.open_bridge import ForgetfulSession

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
    assert opening.greeted_version == V311.version
    assert introduced(ends, opening), "it may have been away, and know bridges"
    opening.on_connack(ConnAck())
    assert opening.greeted_version == V311_BRIDGE.version
    assert in_vain(ends, opening) == PRIVATE_TRIES_KNOWN, "but another may be there now"
    assert in_vain(ends, Handshake(OPTIONS, memory(), ends, V311_BRIDGE.version)) == PRIVATE_TRIES_KNOWN


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


OF_VERSION_5 = replace(OPTIONS, dialect=V5)


def spoken(ends: Endpoints, opening: Handshake) -> str:
    """In which version the next connection speaks."""
    ends.remote.clear()
    opening.begin()
    return ends.capabilities.dialect.version


def test_a_remote_that_refuses_version_5_is_spoken_to_in_3_1_1_from_then_on() -> None:
    ends = Endpoints()
    opening = Handshake(OF_VERSION_5, memory(), ends)
    refusal = ConnAck(reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
    for version in ("5", "3.1.1 (bridge)"):
        assert spoken(ends, opening) == version
        assert opening.on_connack(refusal) is HandshakeRetry.AT_ONCE
    assert opening.dialect is V311
    for _ in range(3):
        assert spoken(ends, opening) == "3.1.1"
        assert isinstance(opening.on_connack(ConnAck()), RemoteCapabilities)
        ends.capabilities = RemoteCapabilities(V5)
    [(event, text)] = ends.warnings
    assert (event, "3.1.1" in text) == ("bridge-version", True), "it says so, once"
    assert isinstance(opening.on_connack(refusal), str), "nothing else is left to be said"


def test_a_remote_that_hangs_up_on_version_5_hears_3_1_1_but_one_that_took_version_5_does_not() -> None:
    ends = Endpoints()
    opening = Handshake(OF_VERSION_5, memory(), ends)
    versions = []
    for _ in range(5):
        versions.append(spoken(ends, opening))
        assert opening.on_no_connack(), "another address may be better"
    assert versions == ["5", "5", "3.1.1 (bridge)", "3.1.1", "5"]
    opening.on_connack(ConnAck())
    for _ in range(20):
        assert spoken(ends, opening) == "5", "it is away: 3.1.1 would lose the origin that ends loops"
        opening.on_no_connack()
    again = Handshake(OF_VERSION_5, memory(), ends, opening.greeted_version)
    for _ in range(20):
        assert spoken(ends, again) == "5"
        again.on_no_connack()


def test_the_session_at_a_remote_that_refused_version_5_is_ended_in_3_1_1() -> None:
    """CONNACK of a broker of 3.1.1, which has two bytes in any version [MQTT-3.1.2-2]."""
    bridge = Bridge(BridgeOptions("x", "up", OPTIONS.rules), ForgetfulSession(), lambda: 0)
    bridge.start(0)
    bridge.fire(0)
    bridge.on_connected(0)
    bridge.receive_remote(b"\x20\x02\x00\x01", 0)
    assert bridge.take_commands()[-1] == "hang up"
    bridge.fire(bridge.next_due() or 0)
    bridge.take_remote_output(0)
    bridge.on_connected(0)
    assert bridge.take_remote_output(0)[0][8] == 0x84
    bridge.receive_remote(b"\x20\x02\x00\x00", 0)
    assert (bridge.state, bridge.capabilities.dialect, bridge.handshake.dialect) == ("open", V311_BRIDGE, V311)


@pytest.mark.parametrize(
    ("dialect", "said", "setting", "window"),
    [(V311, 65_535, None, 20), (V311, 65_535, 50, 50), (V5, 65_535, None, 128), (V5, 20, 50, 20), (V5, 65_535, 50, 50)],
)
def test_the_window_to_a_remote_that_cannot_say_is_that_of_a_default_mosquitto(
    dialect: Dialect, said: int, setting: int | None, window: int
) -> None:
    options = replace(OPTIONS, dialect=dialect, inflight_max=setting)
    assert handshake.window_to(options, RemoteCapabilities(dialect, receive_maximum=said)) == window
