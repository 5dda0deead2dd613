"""Where a client is sent that moves to another gateway: an address of `clients` in the topology that it can use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.pages import HttpPages
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.peers.client_ways import ClientWays
from edgebroker.runtime.settings.sections import ListenerSettings
from edgebroker.runtime.topology_file import parse_topology

from ..support.gateway_in_process import come, with_gateway

TOPOLOGY = """
[federation]
name = "plant"
[factor]
tree = "a"
[[site]]
name = "here"
[[gateway]]
name = "gw-here"
site = "here"
address = "h:1"
[[site]]
name = "both"
[[gateway]]
name = "gw-both"
site = "both"
clients = ["mqtts://b:8883", "mqtt://b:1883", "mqtts://[::1]:8883"]
[[site]]
name = "safe"
[[gateway]]
name = "gw-safe"
site = "safe"
clients = "mqtts://s:8883"
address = "s:1"
[[site]]
name = "mute"
[[gateway]]
name = "gw-mute"
site = "mute"
address = "m:1"
"""
PLAIN = ListenerSettings()
TLS = ListenerSettings(tls_certificate=SimpleNamespace())  # type: ignore[arg-type]
PROXY = ListenerSettings(proxy_protocol=True)
WEBSOCKET = ListenerSettings(protocol="websocket")


def reference(
    listener: ListenerSettings, gateway: str, is_v5: bool = True, is_reachable: bool = True, text: str = TOPOLOGY
) -> str:
    """The Server Reference for a client that came in by *listener*."""
    paths: Any = SimpleNamespace(is_reachable=lambda name: is_reachable)
    nothing: Any = SimpleNamespace()
    door = Listener(nothing, 7, nothing)
    door.update(listener, None)
    session: Any = SimpleNamespace(
        client_id="pump-3", connection=SimpleNamespace(is_v5=is_v5, listener_context=door.context)
    )
    return ClientWays(parse_topology(text, "t.toml"), "gw-here", paths, {}).server_reference(session, gateway)


@pytest.mark.parametrize(
    ("listener", "gateway", "told"),
    [
        (PLAIN, "gw-both", "b:1883"),
        (TLS, "gw-both", "b:8883 [::1]:8883"),
        (PROXY, "gw-both", "b:8883 b:1883 [::1]:8883"),
        (PROXY, "gw-safe", "s:8883"),
    ],
)
def test_a_client_is_told_addresses_of_its_own_kind(listener: ListenerSettings, gateway: str, told: str) -> None:
    assert reference(listener, gateway) == told
    assert reference(listener, gateway, is_v5=False) == "", "its version has no words for it"


@pytest.mark.parametrize(
    ("listener", "gateway", "why"),
    [
        (PLAIN, "gw-safe", "pump-3 is connected without TLS, and `clients` of gw-safe has no mqtt://"),
        (WEBSOCKET, "gw-both", "pump-3 is connected by WebSocket, and `clients` has addresses of MQTT over TCP alone"),
        (PLAIN, "gw-mute", "where clients connect to gw-mute is not known: give it `clients` in the topology file"),
        (PLAIN, "gw-here", "the clients of this gateway are at gw-here already"),
        (PLAIN, "gw-bot", "gateway: none is called 'gw-bot'; did you mean gw-both?"),
    ],
)
def test_an_order_that_cannot_be_followed_is_refused(listener: ListenerSettings, gateway: str, why: str) -> None:
    with pytest.raises(EdgebrokerError) as refused:
        reference(listener, gateway)
    assert str(refused.value) == why


def test_a_client_with_tls_is_not_led_to_a_connection_without() -> None:
    with pytest.raises(EdgebrokerError, match=r"with TLS, and `clients` of gw-safe has no mqtts://$"):
        reference(TLS, "gw-safe", text=TOPOLOGY.replace("mqtts://s:8883", "mqtt://s:1883"))


def test_a_gateway_that_is_not_reached_gets_no_clients() -> None:
    with pytest.raises(EdgebrokerError, match="no path is open to gw-both"):
        reference(TLS, "gw-both", is_reachable=False)


def test_a_gateway_alone_has_nowhere_to_send_clients() -> None:
    async def story(gateway: Gateway) -> None:
        come(gateway, "a")
        order = HttpPages(gateway.view).order_routes["/clients"]
        for query, status, why in (
            ("name=a&to=b", 409, "this gateway is in no federation"),
            ("name=a", 400, "to which gateway? say to="),
            ("name=a&to=b&for_good=perhaps", 400, "for_good is 'perhaps'"),
            ("name=a&too=b", 400, "did you mean to?"),
            ("name=$bridge/x&to=b", 400, "there is no client"),
        ):
            answer = await order(f"/clients?do=move&{query}")
            assert isinstance(answer.body, bytes)
            assert (answer.status.value, why in answer.body.decode()) == (status, True), answer.body

    with_gateway(story)
