"""The subscriptions of a bridge at its remote: those it makes, and those it removes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.endpoints import BridgeCommand
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, Disconnect, Publish, Subscribe, UnsubAck, Unsubscribe
from edgebridge.wire.properties import Property
from edgebroker.runtime.bridges.state import STATE_FILE, BridgeStateFile
from edgebroker.runtime.operator_log import Level, OperatorLog

from ..support.open_bridge import ForgetfulSession, decoded


def greeted(session_present: bool) -> Bridge:
    options = BridgeOptions("x", "up", [parse_rule("new/# in"), parse_rule("stays in")])
    bridge = Bridge(options, ForgetfulSession(), lambda: 0, {"old/#", "stays"})
    bridge.start(0)
    bridge.fire(0)
    bridge.on_connected(0)
    bridge.take_remote_output(0)
    bridge.receive_remote(encode_packet(ConnAck(session_present), V5), 0)
    bridge.on_local_open(0)
    assert not bridge.take_remote_output(0), (
        "if we died now we would not know it any more, and throw away what it keeps"
    )
    bridge.receive_local(encode_packet(ConnAck(), V5), 0)
    return bridge


class Subscribed(ForgetfulSession):
    def is_known(self) -> bool:
        return True

    def subscribed(self) -> Sequence[str]:
        return ("old/#",)


def test_what_no_rule_wants_to_go_out_fills_the_queue_no_longer_though_the_remote_is_away() -> None:
    bridge = Bridge(BridgeOptions("x", "up", [parse_rule("new/# in")]), Subscribed(), lambda: 0)
    bridge.start(0)
    assert bridge.take_commands() == [BridgeCommand.OPEN]
    bridge.on_local_open(0)
    [gone] = [packet for packet in decoded(bridge.take_local_output(), V5) if isinstance(packet, Unsubscribe)]
    assert gone.topic_filters == ["old/#"]
    bridge.receive_local(encode_packet(ConnAck(True), V5) + encode_packet(UnsubAck(gone.packet_id, [0]), V5), 0)
    assert bridge.take_commands() == [BridgeCommand.CLOSE]


def test_a_remote_that_kept_our_session_is_asked_no_longer_for_what_no_rule_wants() -> None:
    bridge = greeted(True)
    assert bridge.requested_subscriptions == {"old/#", "stays", "new/#"}, "known before anything is written"
    said = decoded(bridge.take_remote_output(0), V5)
    [gone] = [packet for packet in said if isinstance(packet, Unsubscribe)]
    assert gone.topic_filters == ["old/#"]
    ids = [packet.packet_id for packet in said if isinstance(packet, Subscribe | Unsubscribe)]
    assert len(set(ids)) == 3
    bridge.receive_remote(encode_packet(UnsubAck(gone.packet_id, [0]), V5), 1)
    assert bridge.requested_subscriptions == {"stays", "new/#"}


def test_one_that_forgot_us_has_nothing_to_forget() -> None:
    bridge = greeted(False)
    assert bridge.requested_subscriptions == {"stays", "new/#"}
    assert not [packet for packet in decoded(bridge.take_remote_output(0), V5) if isinstance(packet, Unsubscribe)]


def test_who_leaves_for_good_ends_the_session_there() -> None:
    bridge = greeted(True)
    bridge.take_remote_output(1)
    assert bridge.remove(2)
    assert decoded(bridge.take_remote_output(2), V5) == [Disconnect(properties={Property.SESSION_EXPIRY_INTERVAL: 0})]


def test_it_is_known_over_restarts(tmp_path: Path) -> None:
    lines: list[bytes] = []
    notices = OperatorLog(lines.append, Level.WARNING)
    kept = BridgeStateFile(tmp_path, notices)
    kept.set_subscriptions("x", frozenset({"a", "b"}))
    kept.set_paused("y", True)
    kept.record_greeting("y", "me", "5")
    again = BridgeStateFile(tmp_path, notices)
    assert (again.subscriptions_at_remote("x"), again.is_paused("x"), again.is_paused("y")) == ({"a", "b"}, False, True)
    assert (again.greeted_version("x"), again.greeted_version("y")) == ("", "5")
    assert (again.client_id_at_remote("x"), again.client_id_at_remote("y")) == (None, "me")
    again.keep_only({"x"})
    assert not lines
    assert json.loads((tmp_path / STATE_FILE).read_text()) == {"x": {"paused": False, "asked": ["a", "b"]}}
    again.keep_only(())
    assert b"may go on collecting a, b for it" in lines.pop()
    assert not (tmp_path / STATE_FILE).exists()
    assert not lines
    (tmp_path / STATE_FILE).write_text("{")
    assert not BridgeStateFile(tmp_path, notices).is_paused("y")
    assert b"bridges-forgotten" in lines[0]
    assert b"it is set aside as bridges.json.damaged" in lines[0]
    assert ((tmp_path / STATE_FILE).exists(), (tmp_path / f"{STATE_FILE}.damaged").read_text()) == (False, "{")


def test_the_end_of_many_subscriptions_is_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one less that the remote has of us. What it is asked for is on disk before it is asked."""
    texts: list[str] = []
    seen: list[bool] = []
    monkeypatch.setattr("edgebroker.runtime.bridges.state.replace_private", lambda file, text: texts.append(text))

    async def story() -> None:
        kept = BridgeStateFile(tmp_path, OperatorLog(lambda line: None))
        kept.set_subscriptions("x", left := frozenset(map(str, range(500))))
        assert (texts, kept.is_on_disk("x"), kept.is_on_disk("y")) == ([], False, True), "the loop waits for no disk"
        kept.on_written(lambda: seen.append(kept.is_on_disk("x")))
        await kept.wait_written()
        assert (len(texts), seen) == (1, [True])
        for one in sorted(left):
            kept.set_subscriptions("x", left := left - {one})
        assert kept.is_on_disk("x")
        kept.set_subscriptions("y", frozenset({"new"}))
        assert not kept.is_on_disk("y")
        await kept.wait_written()

    asyncio.run(story())
    assert len(texts) <= 3
    assert json.loads(texts[-1]) == {name: {"paused": False, "asked": to} for name, to in (("x", []), ("y", ["new"]))}


def test_who_hears_that_the_bridge_is_there_can_count_on_its_subscriptions() -> None:
    """The remote is asked later than usual where it was never met: a notification before that would be too early."""
    options = BridgeOptions("x", "up", [parse_rule("new/# in")], notification_topic="here/up")
    bridge = Bridge(options, ForgetfulSession(), lambda: 0)
    bridge.start(0)
    bridge.fire(0)
    bridge.on_connected(0)
    bridge.take_remote_output(0)
    bridge.receive_remote(encode_packet(ConnAck(), V5), 0)
    bridge.on_local_open(0)
    bridge.receive_local(encode_packet(ConnAck(), V5), 0)
    assert [type(packet) for packet in decoded(bridge.take_remote_output(0), V5)] == [Subscribe, Publish]
