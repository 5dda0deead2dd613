"""What a remote, or anybody's message, may make a bridge hold or say is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.counters import BridgeCounters
from edgebridge.bridge.endpoints import Endpoints
from edgebridge.bridge.inbound import InboundFlow
from edgebridge.bridge.loop_detection import LoopDetector
from edgebridge.bridge.options import BridgeOptions, RemoteCapabilities
from edgebridge.bridge.rules import RuleSet, parse_rule
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, Publish
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebridge.wire.user_properties import GATEWAY_CHARS_MAX, ORIGIN_PROPERTY, Origin
from edgebroker.runtime.bridges.plan import is_global
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.toml import toml_value

from ..support.open_bridge import ForgetfulSession


@pytest.mark.parametrize(
    ("said", "origin"),
    [
        ("gw 3", Origin("gw", 3)),
        ("G" * GATEWAY_CHARS_MAX + " 1", Origin("G" * GATEWAY_CHARS_MAX, 1)),
        ("G" * (GATEWAY_CHARS_MAX + 1) + " 1", Origin()),
        ("gw 1000", Origin()),
        (" 1", Origin()),
    ],
)
def test_an_origin_that_could_not_be_passed_on_says_nothing(said: str, origin: Origin) -> None:
    assert Origin.of({Property.USER_PROPERTY: [(ORIGIN_PROPERTY, said)]}) == origin


def test_a_remote_that_does_not_wait_for_answers_is_left() -> None:
    options = BridgeOptions("x", "up", [parse_rule("# in 2")], V311, receive_maximum=1)
    rules, ends = RuleSet(options.rules), Endpoints()
    rules.set_remote(False)
    ends.capabilities = RemoteCapabilities(V311)
    guard = LoopDetector(options, rules)
    guard.begin(ends.capabilities)
    inbound = InboundFlow(ends, rules, guard, BridgeCounters(), options, ForgetfulSession())
    payload = bytes(1 << 20)
    sent = 0
    while not inbound.full_reason and sent < 100:
        sent += 1
        inbound.packet_bytes = len(payload)
        inbound.publish(Publish("t", payload, 2, packet_id=sent), 0)
    assert inbound.full_reason == "the remote sends more than it may before it is answered"
    assert sent == 18, "one is on its way, and 16 MiB wait"


@pytest.mark.parametrize(
    ("host", "is_the_same"),
    [
        ("mqtt.example.org", True),
        ("8.8.8.8", True),
        ("127.0.0.1", False),
        ("192.168.1.10", False),
        ("mosquitto", False),
    ],
)
def test_a_private_address_is_another_machine_elsewhere(host: str, is_the_same: bool) -> None:
    assert is_global(host) == is_the_same


def test_values_are_written_so_that_toml_reads_them(tmp_path: Path) -> None:
    import tomllib

    values: tuple[object, ...] = (
        "\U0001f600",
        "\x7f",
        'a"b\\c',
        'it\'s "x"',
        'a"\n',
        "'",
        ["x", "\U0001f600", 'a "" b'],
        [],
        7,
        True,
    )
    for value in values:
        assert tomllib.loads(f"k = {toml_value(value)}")["k"] == value


def test_quotes_in_a_text_are_not_escaped_where_single_quotes_can_hold_them() -> None:
    assert toml_value(['x/# in 0 "" y/', "a\\b", "plain"]) == """['x/# in 0 "" y/', 'a\\b', "plain"]"""
    assert toml_value('it\'s "x"') == '"it\'s \\"x\\""'
    assert toml_value('"\t"') == '"\\"\\t\\""'


def test_what_a_remote_says_is_shown_on_one_line_and_moves_no_cursor() -> None:
    said = {Property.REASON_STRING: "no\x1b[2J\nup: all is well"}
    bridge = Bridge(BridgeOptions("x", "up", []), ForgetfulSession(), lambda: 0)
    bridge.start(0)
    bridge.fire(0)
    bridge.on_connected(0)
    bridge.receive_remote(encode_packet(ConnAck(reason=ReasonCode.NOT_AUTHORIZED, properties=said), V5), 1)
    assert bridge.reason == "the remote refuses us: not authorized (0x87): no\\x1b[2J\\nup: all is well"


def test_a_password_is_in_no_repr() -> None:
    assert "secret" not in repr(BridgeOptions("x", "up", [], password=b"secret"))


def test_a_file_has_room_for_as_many_bridges_as_the_documentation_says() -> None:
    """docs/settings.md: 64 bridges of eight keys with six rules each."""
    keys = 'addresses = ["broker.example.org:8883"]\nusername = "gateway"\ntls = true\n'
    keys += "keep_alive_s = 60\nqueue_messages_max = 5000"
    rules = ",\n".join(f'    "sensors/{number}/# out 1"' for number in range(6))
    text = "".join(
        f'[[bridge]]\nname = "plant-{number}"\nclient_id = "gateway-{number}"\n{keys}\ntopic = [\n{rules}\n]\n'
        for number in range(64)
    )
    assert len(Settings.parse(text, "f", Path()).bridges) == 64
