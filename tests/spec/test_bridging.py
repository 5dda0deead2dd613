"""The bridges of a gateway as its operator changes them: by settings, while it runs, and from elsewhere."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import pytest

from edgebridge.frontend.entrance import Entrance
from edgebridge.session.verdict import Verdict
from edgebridge.wire.dialect import V5
from edgebridge.wire.packets import ConnAck, Connect, Disconnect
from edgebridge.wire.properties import Property
from edgebroker.instants import SECOND
from edgebroker.simworld.client import Client
from edgebroker.simworld.network import SimulatedBroker
from edgebroker.simworld.simulation import Simulation
from edgebroker.world.bridging.added import load_added, save_added
from edgebroker.world.bridging.bridging import Bridging, NameTaken
from edgebroker.world.bridging.control import control
from edgebroker.world.bridging.planning import Plan
from edgebroker.world.http import Answer, HttpServer, Visit, plain
from edgebroker.world.operatorlog import OperatorLog
from edgebroker.world.settings import Settings
from edgebroker.world.settings.bridge import BridgeSettings
from tests.fuzz.test_fuzz_http import Line

REQUEST = b"POST /bridges?do=pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nEdgebroker-Control: 1\r\n\r\n"
BRIDGE = '[[bridge]]\nname = "{}"\naddresses = ["h:1"]\ntopic = ["a"]\n'


def bridging_of(folder: Path, text: str = "") -> Bridging:
    return Bridging(settings_of(text), cast(Any, None), OperatorLog(lambda line: None), folder)


def settings_of(text: str) -> Settings:
    return Settings.parse(text, "f.toml", Path("/"))


def there_is(bridging: Bridging, settings: BridgeSettings, **more: Any) -> SimpleNamespace:
    """As if it had begun."""
    [plan] = [bridging._planning.plan(settings)]
    present = SimpleNamespace(settings=settings, terms=plan.terms, road=plan.road, **more)
    bridging.bridges[settings.name] = cast(Any, present)
    return present


def reload(bridging: Bridging, text: str, meanwhile: Any = lambda: None) -> list[str]:
    prepared = asyncio.run(bridging.prepare(settings_of(text)))
    meanwhile()
    return list(prepared.commit())


def test_a_bridge_that_is_added_while_a_reload_is_prepared_stays(tmp_path: Path) -> None:
    bridging = bridging_of(tmp_path)
    [late] = settings_of(BRIDGE.format("late")).bridges

    def add() -> None:
        bridging.added["late"] = late
        there_is(bridging, late)

    assert reload(bridging, "", add) == []
    assert list(bridging.bridges) == ["late"]


def test_one_that_is_removed_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "bridges.toml").write_text(BRIDGE.format("early"))
    bridging = bridging_of(tmp_path)

    def remove() -> None:
        del bridging.added["early"]

    assert reload(bridging, "", remove) == []
    assert not bridging.bridges


def test_nobody_waits_for_the_disk_but_who_has_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if who has asked has gone, or if settings come meanwhile."""
    bridging, goes_on, begun = bridging_of(tmp_path), threading.Event(), []
    file = tmp_path / "bridges.toml"
    one, two, three = (settings_of(BRIDGE.format(name)).bridges[0] for name in ("one", "two", "three"))

    def slow(folder: Path, bridges: Any) -> None:
        assert goes_on.wait(30)
        save_added(folder, bridges)

    def begin(plan: Plan) -> None:
        begun.append(plan.settings.name)
        assert f'name = "{begun[-1]}"' in file.read_text()
        there_is(bridging, plan.settings)

    monkeypatch.setattr("edgebroker.world.bridging.bridging.save_added", slow)
    monkeypatch.setattr(bridging, "_add", begin)

    async def story() -> list[Any]:
        prepared = await bridging.prepare(settings_of(""))
        asked = [asyncio.create_task(bridging.add(each)) for each in (one, two, two)]
        await asyncio.sleep(0.01)
        asked[0].cancel()
        bridging.added["three"] = three  # as if it had been there before
        assert list(prepared.commit()) == []
        assert begun == []
        goes_on.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    cancelled, added, refused = asyncio.run(story())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert added is bridging.bridges["two"]
    assert isinstance(refused, NameTaken)
    assert begun == ["one", "two"]
    assert [each.name for each in load_added(tmp_path).bridges] == ["three", "one", "two"]
    assert list(bridging.added) == ["three", "one", "two"]


def test_one_that_is_in_both_files_is_the_settings_file_s(tmp_path: Path) -> None:
    (tmp_path / "bridges.toml").write_text(BRIDGE.format("both"))
    bridging = bridging_of(tmp_path, BRIDGE.format("both"))
    there_is(bridging, bridging.added["both"])
    assert not bridging.is_added("both")
    with pytest.raises(NameTaken, match="stands in the settings file"):
        asyncio.run(bridging.remove("both"))
    assert list(bridging.bridges) == ["both"]
    assert reload(bridging, "") == []
    assert bridging.is_added("both"), "now it is of bridges.toml alone"


def test_renewed_certificates_hold_when_it_is_dialled_again(tmp_path: Path) -> None:
    """The settings are the same, and what their files say is not."""
    text = BRIDGE.format("up") + "tls = true\n"
    bridging = bridging_of(tmp_path, text)
    present = there_is(bridging, settings_of(text).bridges[0])
    before = present.road.context
    assert reload(bridging, text) == []
    assert present.road.context is not before


def test_whoever_shows_no_token_names_no_file_of_elsewhere(tmp_path: Path) -> None:
    bridging = bridging_of(tmp_path)
    text = BRIDGE.format("x") + 'username = "u"\npassword_file = "{}"\n'
    for file in ("/etc/hostname", "../secret"):
        target = f"/bridges?do=add&settings={quote(text.format(file))}"
        answer = asyncio.run(control(bridging, target, has_token=False))
        assert answer.status is HTTPStatus.BAD_REQUEST
        assert b"is elsewhere" in cast(bytes, answer.body)
    assert not bridging.added


def test_from_elsewhere_nothing_is_done_without_a_token() -> None:
    async def done(target: str) -> Answer:
        return plain(HTTPStatus.OK, "done")

    async def story() -> list[bytes]:
        said = []
        for is_local in (False, True):
            server = HttpServer(done)
            server.controls["/bridges"] = done
            server.is_local = is_local
            line, visit = Line(), Visit(server)
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
        broker.entrance = Entrance("bridge", -1, verdict=Verdict(user=user))
        client = Client("bridge", broker)
        client.send(Connect("$bridge/up", False, properties={Property.SESSION_EXPIRY_INTERVAL: 300}, dialect=V5))
        simulation.run_until(simulation.now + SECOND)
        [connack] = [packet for packet in client.take() if isinstance(packet, ConnAck)]
        present.append(connack.session_present)
        client.send(Disconnect())
        simulation.run_until(simulation.now + SECOND)
    assert present == [False, True, True]
