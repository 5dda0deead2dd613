"""Changes of a gateway's bridges: by settings, by HTTP orders while it runs, and from its state file."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from edgebridge.frontend.options import ListenerContext
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import ConnAck, Connect, Disconnect
from edgebridge.wire.properties import Property
from edgebroker.instants import SECOND
from edgebroker.runtime.bridges.bridges import BridgeManager, BridgeNameTaken
from edgebroker.runtime.bridges.plan import BridgePlan, BridgePlanner
from edgebroker.runtime.bridges.state import load_added, save_added
from edgebroker.runtime.http.bridges import run_bridge_order
from edgebroker.runtime.http.server import HttpConnection, HttpResponse, HttpServer, text_response
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.simulation import Simulation

from ..support.http_transport import RecordingTransport

REQUEST = b"POST /bridges?do=pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nEdgebroker-Control: 1\r\n\r\n"
BRIDGE = '[[bridge]]\nname = "{}"\naddresses = ["h:1"]\ntopic = ["a"]\n'


def bridging_of(folder: Path, text: str = "") -> BridgeManager:
    return BridgeManager(settings_of(text), cast(Any, None), OperatorLog(lambda line: None), folder)


def settings_of(text: str) -> Settings:
    return Settings.parse(text, "f.toml", Path("/"))


def there_is(bridge_manager: BridgeManager, settings: BridgeSettings, **more: Any) -> SimpleNamespace:
    """As if it had begun."""
    plan = BridgePlanner(Settings.defaults(), bridge_manager.identity).plan(settings)
    present = SimpleNamespace(settings=settings, options=plan.options, dial_target=plan.dial_target, **more)
    bridge_manager.bridges[settings.name] = cast(Any, present)
    return present


def reload(bridge_manager: BridgeManager, text: str, meanwhile: Any = lambda: None) -> list[str]:
    prepared = asyncio.run(bridge_manager.prepare(settings_of(text)))
    meanwhile()
    return list(prepared.commit())


def test_a_bridge_that_is_added_while_a_reload_is_prepared_stays(tmp_path: Path) -> None:
    bridge_manager = bridging_of(tmp_path)
    [late] = settings_of(BRIDGE.format("late")).bridges

    def add() -> None:
        bridge_manager.added["late"] = late
        there_is(bridge_manager, late)

    assert reload(bridge_manager, "", add) == []
    assert list(bridge_manager.bridges) == ["late"]


def test_one_that_is_removed_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "bridges.toml").write_text(BRIDGE.format("early"))
    bridge_manager = bridging_of(tmp_path)

    def remove() -> None:
        del bridge_manager.added["early"]

    assert reload(bridge_manager, "", remove) == []
    assert not bridge_manager.bridges


def test_nobody_waits_for_the_disk_but_who_has_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if who has asked has gone, or if settings come meanwhile."""
    bridge_manager, goes_on, begun = bridging_of(tmp_path), threading.Event(), []
    file = tmp_path / "bridges.toml"
    one, two, three = (settings_of(BRIDGE.format(name)).bridges[0] for name in ("one", "two", "three"))

    def slow(folder: Path, bridges: Any) -> None:
        assert goes_on.wait(30)
        save_added(folder, bridges)

    def begin(plan: BridgePlan) -> None:
        begun.append(plan.settings.name)
        assert f'name = "{begun[-1]}"' in file.read_text()
        there_is(bridge_manager, plan.settings)

    monkeypatch.setattr("edgebroker.runtime.bridges.bridges.save_added", slow)
    monkeypatch.setattr(bridge_manager, "_add", begin)

    async def story() -> list[Any]:
        prepared = await bridge_manager.prepare(settings_of(""))
        asked = [asyncio.create_task(bridge_manager.add(each)) for each in (one, two, two)]
        await asyncio.sleep(0.01)
        asked[0].cancel()
        bridge_manager.added["three"] = three  # as if it had been there before
        assert list(prepared.commit()) == []
        assert begun == []
        goes_on.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    cancelled, added, refused = asyncio.run(story())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert added is bridge_manager.bridges["two"]
    assert isinstance(refused, BridgeNameTaken)
    assert begun == ["one", "two"]
    assert [each.name for each in load_added(tmp_path).bridges] == ["three", "one", "two"]
    assert list(bridge_manager.added) == ["three", "one", "two"]


def test_one_that_is_in_both_files_is_the_settings_file_s(tmp_path: Path) -> None:
    (tmp_path / "bridges.toml").write_text(BRIDGE.format("both"))
    bridge_manager = bridging_of(tmp_path, BRIDGE.format("both"))
    there_is(bridge_manager, bridge_manager.added["both"])
    assert not bridge_manager.is_added("both")
    with pytest.raises(BridgeNameTaken, match="stands in the settings file"):
        asyncio.run(bridge_manager.remove("both"))
    assert list(bridge_manager.bridges) == ["both"]
    assert reload(bridge_manager, "") == []
    assert bridge_manager.is_added("both"), "now it is of bridges.toml alone"


def test_renewed_certificates_hold_when_it_is_dialled_again(tmp_path: Path) -> None:
    """The settings are the same, and what their files say is not."""
    text = BRIDGE.format("up") + "tls = true\n"
    bridge_manager = bridging_of(tmp_path, text)
    present = there_is(bridge_manager, settings_of(text).bridges[0])
    before = present.dial_target.context
    assert reload(bridge_manager, text) == []
    assert present.dial_target.context is not before


def test_whoever_shows_no_token_names_no_file_of_elsewhere(tmp_path: Path) -> None:
    bridge_manager = bridging_of(tmp_path)
    text = BRIDGE.format("x") + 'username = "u"\npassword_file = "{}"\n'
    for file in ("/etc/hostname", "../secret"):
        target = f"/bridges?do=add&settings={quote(text.format(file))}"
        answer = asyncio.run(run_bridge_order(bridge_manager, target, has_token=False))
        assert answer.status is HTTPStatus.BAD_REQUEST
        assert b"is elsewhere" in cast(bytes, answer.body)
    assert not bridge_manager.added


def test_from_elsewhere_nothing_is_done_without_a_token() -> None:
    async def done(target: str) -> HttpResponse:
        return text_response(HTTPStatus.OK, "done")

    async def story() -> list[bytes]:
        said = []
        for is_local in (False, True):
            server = HttpServer(done)
            server.order_handlers["/bridges"] = done
            server.is_local = is_local
            line, visit = RecordingTransport(), HttpConnection(server)
            visit.connection_made(line)
            visit.data_received(REQUEST)
            while not line.is_over:
                await asyncio.sleep(0)
            said.append(line.said[:12])
        return said

    assert asyncio.run(asyncio.wait_for(story(), 30)) == [b"HTTP/1.1 403", b"HTTP/1.1 200"]


def test_a_bridge_under_another_user_has_the_session_of_before() -> None:
    """`local_user` changed: what waits for the remote waits on."""
    simulation = Simulation()
    broker = SimulatedBroker(simulation)
    present = []
    for user in ("one", "two", ""):
        broker.entrance = ListenerContext("bridge", -1, verdict=AuthenticationResult(user=user))
        client = SimulatedClient("bridge", broker)
        client.send(Connect("$bridge/up", False, properties={Property.SESSION_EXPIRY_INTERVAL: 300}, dialect=V5))
        simulation.run_until(simulation.now + SECOND)
        [connack] = [packet for packet in client.receive() if isinstance(packet, ConnAck)]
        present.append(connack.session_present)
        client.send(Disconnect())
        simulation.run_until(simulation.now + SECOND)
    assert present == [False, True, True]
