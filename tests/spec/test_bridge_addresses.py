"""Which address of a remote is dialled next: another one if who answers is of no use."""

from __future__ import annotations

import pytest

from edgebridge.bridge.bridge import CONNACK_TIMEOUT, Bridge
from edgebridge.bridge.endpoints import BridgeCommand, BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, Disconnect
from edgebridge.wire.reasons import ReasonCode

from ..support.open_bridge import ForgetfulSession


def greeting(dialect: Dialect = V5) -> Bridge:
    bridge = Bridge(BridgeOptions("x", "up", [], dialect), ForgetfulSession(), lambda: 0)
    bridge.start(0)
    dial(bridge)
    return bridge


def dial(bridge: Bridge) -> None:
    due = bridge.next_due()
    assert due is not None
    bridge.fire(due)
    assert BridgeCommand.DIAL in bridge.take_commands()
    bridge.on_connected(due)
    assert bridge.state is BridgeState.GREETING


@pytest.mark.parametrize("reason", [ReasonCode.SERVER_UNAVAILABLE, ReasonCode.NOT_AUTHORIZED])
def test_a_refusal(reason: ReasonCode) -> None:
    bridge = greeting()
    bridge.receive_remote(encode_packet(ConnAck(reason=reason), V5), 1)
    assert BridgeCommand.ELSEWHERE in bridge.take_commands()


def test_silence() -> None:
    bridge = greeting()
    bridge.fire(CONNACK_TIMEOUT)
    assert BridgeCommand.ELSEWHERE in bridge.take_commands()


@pytest.mark.parametrize(
    ("reason", "moves_on"),
    [
        (ReasonCode.USE_ANOTHER_SERVER, True),
        (ReasonCode.SERVER_SHUTTING_DOWN, True),
        (ReasonCode.QUOTA_EXCEEDED, False),
    ],
)
def test_a_good_bye(reason: ReasonCode, moves_on: bool) -> None:
    bridge = greeting()
    bridge.receive_remote(encode_packet(ConnAck(), V5), 1)
    bridge.on_local_open(1)
    bridge.receive_remote(encode_packet(Disconnect(reason), V5), 1)
    assert (BridgeCommand.ELSEWHERE in bridge.take_commands()) == moves_on


def test_a_connection_that_is_lost_when_it_was_open_is_dialled_again_where_the_session_is() -> None:
    bridge = greeting()
    bridge.receive_remote(encode_packet(ConnAck(), V5), 1)
    bridge.on_connection_lost("cut", 2)
    assert BridgeCommand.ELSEWHERE not in bridge.take_commands()


def test_who_hangs_up_on_bridges_is_greeted_as_any_client_first() -> None:
    bridge = greeting(V311)
    levels, moved = [], []
    for _ in range(4):
        levels.append(bridge.take_remote_output(0)[0][8])
        bridge.on_connection_lost("closed", bridge.since)
        moved.append(BridgeCommand.ELSEWHERE in bridge.take_commands())
        dial(bridge)
    assert levels == [0x84, 0x84, 0x04, 0x84]
    assert moved == [False, False, True, False]
