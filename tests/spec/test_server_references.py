"""Clients that go where servers send them: the followers of docs/recipes.md, and the devices of `edgedevices`.

They follow four references in a row at most, tell "for now" from "for good", wait longer each time, and take no
reference that could lead them from TLS to a connection without.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiomqtt
import pytest

from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import ConnAck, Disconnect
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND
from edgedevices.broker import BrokerAddress
from edgedevices.ledger import MessageLedger
from edgedevices.server_reference import ReferenceFollower, ServerReference
from edgedevices.session import DeviceDialect, DeviceIdentity, DeviceSession

from ..support.recipes import recipe, recipe_lines

LINES_MAX = 60
FOR_NOW, FOR_GOOD, LOST = 0x9C, 0x9D, 0x80
HOME = ("home", 8883)
STRANGE = ["", " ", "mqtt://b:1", "b:1:2", "[::1", "b:70000", "b:0"]


def words(reference: str) -> SimpleNamespace:
    return SimpleNamespace(ServerReference=reference)


@pytest.mark.parametrize("file", ["follow_paho.py", "follow_aiomqtt.py"])
def test_a_follower_is_short_enough_to_be_read(file: str) -> None:
    assert len(recipe_lines(file)) <= LINES_MAX


# -- paho-mqtt --------------------------------------------------------------------------------------------------------


class PahoStandIn:
    """Takes from a follower where to connect, and plays the servers."""

    on_connect = on_disconnect = on_connect_fail = None

    def __init__(self) -> None:
        self.address: tuple[str, int] = ("", 0)
        self.delays: list[float] = []
        self.follower = recipe("follow_paho.py")["Follower"](self, *HOME)

    def connect_async(self, host: str, port: int) -> None:
        self.address = (host, port)

    def reconnect_delay_set(self, least: float, most: float) -> None:
        self.delays.append(round(least, 3))

    def accept(self) -> None:
        self.on_connect(self, None, None, SimpleNamespace(value=0, is_failure=False), words(""))  # type: ignore[misc]

    def refuse(self, reason: int, reference: str) -> None:
        """As paho does it: the refusal, then the end of the connection."""
        self.on_connect(self, None, None, SimpleNamespace(value=reason, is_failure=True), words(reference))  # type: ignore[misc]
        self.end(LOST)

    def end(self, reason: int, reference: str = "") -> None:
        self.on_disconnect(self, None, None, SimpleNamespace(value=reason), words(reference))  # type: ignore[misc]


def test_the_follower_for_paho_tells_for_now_from_for_good() -> None:
    client = PahoStandIn()
    client.accept()
    client.end(FOR_NOW, "b.example:1884 c.example")
    assert client.address == ("b.example", 1884)
    client.accept()
    client.end(LOST)
    assert client.address == HOME
    client.refuse(FOR_GOOD, "[2001:db8::2]")
    assert (client.address, client.follower.home) == (("2001:db8::2", 8883), ("2001:db8::2", 8883))
    client.accept()
    client.end(FOR_NOW, "d.example:1")
    client.on_connect_fail(client, None)  # type: ignore[misc]
    assert client.address == ("2001:db8::2", 8883), "the server for now is not there"


def test_the_follower_for_paho_ends_a_circle_and_backs_off(monkeypatch: pytest.MonkeyPatch) -> None:
    client = PahoStandIn()
    for number in range(6):
        client.accept()
        client.end(FOR_NOW, f"s{number}:1")
        assert client.address == ((f"s{number}", 1) if number < 4 else HOME)
    assert client.delays == [0.1, 1, 10, 100]
    client.accept()
    client.follower.since -= 60
    client.end(FOR_NOW, "b:1")
    assert (client.address, client.delays[4:]) == (("b", 1), [1, 0.1])


@pytest.mark.parametrize("reference", STRANGE)
def test_the_follower_for_paho_takes_no_reference_with_a_scheme(reference: str) -> None:
    client = PahoStandIn()
    client.accept()
    client.end(FOR_GOOD, reference)
    assert (client.address, client.follower.home) == (HOME, HOME)


def test_the_follower_for_paho_stays_away_when_the_program_says_so() -> None:
    client = PahoStandIn()
    client.accept()
    client.address = ("", 0)
    client.end(0)
    assert client.address == ("", 0)


# -- aiomqtt ----------------------------------------------------------------------------------------------------------


def addresses_of(*ends: tuple[int, str]) -> tuple[list[tuple[str, int]], list[float]]:
    """Where the follower for aiomqtt connects, and how long it waits before, if its connections end as *ends* say."""
    names, asked, waits = recipe("follow_aiomqtt.py"), [], []
    script = iter(ends)

    class StandIn:
        referred: tuple[int, Any] = 0, None

        def __init__(self, host: str, port: int, **options: Any) -> None:
            asked.append((host, port))

        async def __aenter__(self) -> Any:
            reason, reference = next(script, (0, ""))
            if reason:
                self.referred = reason, words(reference)
                raise aiomqtt.MqttError("the connection ended")
            return self

        async def __aexit__(self, *error: object) -> None: ...

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))

    async def conversation(client: Any) -> None: ...

    names["ReferredClient"], names["asyncio"] = StandIn, SimpleNamespace(sleep=sleep)
    asyncio.run(names["follow"](*HOME, conversation))
    return asked, waits


def test_the_follower_for_aiomqtt_tells_for_now_from_for_good() -> None:
    asked, _ = addresses_of((FOR_NOW, "b.example:1884 c.example"), (LOST, ""), (FOR_GOOD, "[2001:db8::2]"), (LOST, ""))
    moved = ("2001:db8::2", 8883)
    assert asked == [HOME, ("b.example", 1884), HOME, moved, moved]


def test_the_follower_for_aiomqtt_ends_a_circle_and_backs_off() -> None:
    asked, waits = addresses_of(*((FOR_NOW, f"s{number}:1") for number in range(6)))
    assert asked == [HOME, *((f"s{number}", 1) for number in range(4)), HOME, HOME]
    assert waits == [0.1, 1, 10, 100, 1, 2]


@pytest.mark.parametrize("reference", STRANGE)
def test_the_follower_for_aiomqtt_takes_no_reference_with_a_scheme(reference: str) -> None:
    assert addresses_of((FOR_GOOD, reference))[0] == [HOME, HOME]


# -- edgedevices ------------------------------------------------------------------------------------------------------


def test_a_device_hears_where_it_is_sent() -> None:
    session = DeviceSession(DeviceIdentity("d", DeviceDialect.V5), MessageLedger())
    session.connect()
    said = {Property.SERVER_REFERENCE: "b:1"}
    session.receive(encode_packet(ConnAck(reason=ReasonCode.SERVER_MOVED, properties=dict(said)), V5), 0)
    assert session.reference == ServerReference("b:1", is_lasting=True)
    session.connect()
    assert session.reference is None
    session.receive(encode_packet(ConnAck(), V5), 0)
    session.receive(encode_packet(Disconnect(ReasonCode.USE_ANOTHER_SERVER, dict(said)), V5), 0)
    assert session.reference == ServerReference("b:1", is_lasting=False)


def test_a_device_tells_for_now_from_for_good_and_ends_a_circle() -> None:
    home = BrokerAddress(*HOME)
    follower = ReferenceFollower(home)
    assert follower.next_server(ServerReference("b:1 c", False), 0) == BrokerAddress("b", 1)
    assert follower.next_server(None, SECOND) == home
    moved = BrokerAddress("2001:db8::2", 8883)
    assert follower.next_server(ServerReference("[2001:db8::2]", True), SECOND) == moved
    found = [follower.next_server(ServerReference(f"s{number}:1", False), 2 * SECOND) for number in range(3)]
    assert found == [BrokerAddress("s0", 1), BrokerAddress("s1", 1), moved]
    assert follower.next_server(ServerReference("b:1", False), 70 * SECOND) == BrokerAddress("b", 1)
    assert follower.followed == 5


@pytest.mark.parametrize("reference", ["mqtt://b:1", "mqtts://b", "b:0"])
def test_a_device_takes_no_reference_with_a_scheme(reference: str) -> None:
    follower = ReferenceFollower(BrokerAddress(*HOME))
    assert follower.next_server(ServerReference(reference, True), 0) == BrokerAddress(*HOME)
