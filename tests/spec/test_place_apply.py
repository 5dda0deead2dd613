"""`edgebroker place apply`, `history` and `undo`: who is moved and who is left, why, and what is remembered of it."""

from __future__ import annotations

import asyncio
import copy
import json
import socket
from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebridge.wire.dialect import V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect
from edgebroker.cli import main
from edgebroker.cli import place as place_module
from edgebroker.cli.http_client import GatewayAnswerInvalid, GatewayEndpoint, OrderRefused, get_json, post_json
from edgebroker.cli.parameters import HttpAddress
from edgebroker.federation.relocation import PlacementEstimate
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.overlay.advertisements import LocalPublisher
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.peers.placement import MeanCosts, told_measurements
from edgebroker.runtime.peers.status import encode_report
from edgebroker.runtime.placement_history import HISTORY_FILE, HISTORY_MAX, AppliedMove, PlacementHistory

from ..support.gateway_in_process import Paper, come, with_gateway
from ..support.topologies import TWO_GATEWAYS


def proposal(client: str, to: str = "gw-there", delay: float = 40.0, way: str = "server reference") -> dict[str, Any]:
    gains = {"delay": delay, "load": 10.0}
    return {
        "client": client,
        "to": to,
        "way": way,
        "why_none": "it is not connected" * (way == "none"),
        "gain_percent": gains,
    }


class PaperGateway:
    """The HTTP interface of a gateway as the commands see it; its answers are what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *proposals: dict[str, Any]) -> None:
        self.plan: dict[str, Any] = {
            "name": "gw-here",
            "unix_s": 10_000,
            "gateways": [{"name": "gw-here", "proposals": list(proposals)}],
            "unreached": [],
        }
        self.moves: list[dict[str, Any]] = []
        self.orders: list[tuple[str, str, dict[str, str]]] = []
        self.pauses: list[float] = []
        self.connected = {row["client"] for row in proposals}
        self.interrupts_at = 0
        monkeypatch.setattr(place_module, "get_json", self.get)
        monkeypatch.setattr(place_module, "post_json", self.post)
        monkeypatch.setattr("edgebroker.cli.place.time.sleep", self.sleep)

    @property
    def proposals(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plan["gateways"][0]["proposals"]
        return found

    def get(self, _: object, path: str, **query: Any) -> dict[str, Any]:
        if path == "/place/history":
            return {"name": "gw-here", "unix_s": 10_000, "moves": self.moves}
        if path == "/client":
            if query["name"] not in self.connected:
                raise GatewayAnswerInvalid("there is no such client")
            return {"connected": True}
        return self.plan

    def post(self, endpoint: Any, path: str, **query: str) -> dict[str, Any]:
        if query["name"] == "unruly":
            raise OrderRefused("gw-here refuses /place: no path is open")
        self.orders.append((str(endpoint), path, query))
        self.moves.insert(0, moved(query["name"], query["to"], query.get("plan", "")))
        return {"moved": True, "reference": "there:1883", "refused_s": 30, "session_kept": True, "forgotten": ""}

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self.interrupts_at:
            raise KeyboardInterrupt


def moved(client: str, to: str = "gw-there", plan: str = "p", outcome: str = "arrived", **more: Any) -> dict[str, Any]:
    costs: dict[str, Any] = {"delay_ms": {"here": 4.3, "there": 3.8}, "load": {"here": 2.0, "there": 1.0}}
    costs |= {"uplink_bytes": {"here": 8.0, "there": 0.0}, "realised": None, "pause_ms": None}
    row = {"client": client, "to": to, "plan": plan, "ago_s": 62, "way": "use_another_server", "outcome": outcome}
    return row | costs | more


def run(*arguments: str, text: str = "") -> tuple[int, list[str]]:
    result = CliRunner().invoke(main, ["place", *arguments], input=text)
    return result.exit_code, result.output.splitlines()


def apply(tmp_path: Path, plan: dict[str, Any], *arguments: str, text: str = "") -> tuple[int, list[str]]:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    return run("apply", str(file), *arguments, text=text)


def test_a_plan_is_executed_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gateway = PaperGateway(monkeypatch, proposal("pump"), proposal("fan"), proposal("belt"))
    code, lines = apply(tmp_path, gateway.plan, "--rate", "30", text="y\n")
    assert code == 0
    assert lines[0].startswith("move 3 publishers from gw-here? [y/N]")
    assert lines[-3:] == [
        f"{number}/3 {name} is told to go to there:1883; for 30 s it is refused here; its session waits"
        for number, name in enumerate(("pump", "fan", "belt"), 1)
    ]
    assert gateway.pauses == [2, 2]
    asked = {"do": "move", "to": "gw-there", "plan": "gw-here 10000"}
    assert gateway.orders == [("127.0.0.1:9883", "/place", asked | {"name": name}) for name in ("pump", "fan", "belt")]


def test_nobody_is_moved_without_consent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gateway = PaperGateway(monkeypatch, proposal("pump"))
    assert apply(tmp_path, gateway.plan, text="n\n")[0] == 1
    assert gateway.orders == []


@pytest.mark.parametrize(
    ("now", "connected", "why"),
    [
        (None, False, "it is not connected to gw-here now"),
        (None, True, "there is no better gateway for it now"),
        (proposal("pump", to="gw-yard"), True, "the best gateway for it is gw-yard now"),
        (proposal("pump", delay=29), True, "it would gain 29 % of delay now, and not 40 %"),
        (proposal("pump", delay=51), True, "it would gain 51 % of delay now, and not 40 %"),
        (proposal("pump", way="none"), True, "it is not connected"),
        (proposal("pump", delay=31), True, ""),
    ],
    ids=["gone", "fine", "elsewhere", "less", "more", "no way", "nearly the same"],
)
def test_what_has_drifted_is_left_and_the_rest_is_executed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, now: dict[str, Any] | None, connected: bool, why: str
) -> None:
    gateway = PaperGateway(monkeypatch, proposal("pump"), proposal("fan"))
    before = copy.deepcopy(gateway.plan)
    gateway.proposals[:1] = [] if now is None else [now]
    if not connected:
        gateway.connected.discard("pump")
    code, lines = apply(tmp_path, before, "--yes", "--json")
    rows = {row["client"]: row for row in map(json.loads, lines)}
    assert (code, rows["fan"]["outcome"]) == (bool(why), "moved")
    assert (rows["pump"]["outcome"], rows["pump"].get("why", "")) == ("left" if why else "moved", why)


def test_an_old_plan_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gateway = PaperGateway(monkeypatch, proposal("pump"))
    before = copy.deepcopy(gateway.plan)
    gateway.plan["unix_s"] += 3_601
    code, lines = apply(tmp_path, before, "--yes")
    assert (code, gateway.orders) == (1, [])
    assert "is 1 h old, and holds for 1 h; make a new one" in lines[0]


def test_a_paused_plan_goes_on_with_those_that_were_not_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gateway = PaperGateway(monkeypatch, *map(proposal, ("pump", "fan", "belt")))
    gateway.interrupts_at = 2
    code, lines = apply(tmp_path, gateway.plan, "--yes")
    assert (code, lines[-1]) == (1, "belt is left: paused before its turn")
    code, lines = apply(tmp_path, gateway.plan, "--yes")
    assert code == 0
    assert lines[:2] == ["pump: it has been moved", "fan: it has been moved"]
    assert [query["name"] for _, _, query in gateway.orders] == ["pump", "fan", "belt"]
    assert {query["plan"] for _, _, query in gateway.orders} == {"gw-here 10000"}


def test_an_order_that_is_refused_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gateway = PaperGateway(monkeypatch, proposal("unruly"), proposal("fan"))
    gateway.plan["gateways"].append({"name": "gw-yard", "proposals": [proposal("crane")]})
    code, lines = apply(tmp_path, gateway.plan, "--yes")
    assert code == 1
    assert lines[:2] == [
        "1 of the plan are at gw-yard: apply it there, too",
        "unruly is left: gw-here refuses /place: no path is open",
    ]
    assert [query["name"] for _, _, query in gateway.orders] == ["fan"]


def test_only_some_of_a_plan_are_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gateway = PaperGateway(monkeypatch, *map(proposal, ("pump", "fan")))
    assert apply(tmp_path, gateway.plan, "--yes", "--only", "fan")[0] == 0
    assert [query["name"] for _, _, query in gateway.orders] == ["fan"]
    code, lines = apply(tmp_path, gateway.plan, "--yes", "--only", "fin")
    assert (code, "has no move of fin from gw-here" in lines[0]) == (2, True)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "a", "unix_s": 1, "gateways": [{"name": "a"}]}'])
def test_what_is_no_plan_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    gateway = PaperGateway(monkeypatch)
    (tmp_path / "plan").write_text(text)
    code, lines = run("apply", str(tmp_path / "plan"), "--yes")
    assert (code, gateway.orders) == (2, [])
    assert "is no plan of `edgebroker place plan --json`" in lines[0]


def test_the_history_shows_what_was_predicted_and_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = PaperGateway(monkeypatch)
    assert run("history") == (1, ["no plan has moved a publisher away from gw-here"])
    realised = {"delay_ms": 3.94, "load": 1.2, "uplink_bytes": 0.8, "age_s": 3.0}
    gateway.moves = [moved("pump", realised=realised, pause_ms=1_234.5), moved("fan")]
    code, lines = run("history")
    assert code == 0
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    head = ["gw-there", "1 min 2 s ago", "use another server", "arrived"]
    assert cells[1] == ["pump", *head, "1,234 ms", "4.3 -> 3.8, 3.9 ms", "2.00 -> 1.00, 1.20", "8 -> 0, 1"]
    assert cells[2] == ["fan", *head, "-", "4.3 -> 3.8, - ms", "2.00 -> 1.00, -", "8 -> 0, -"]


def test_the_last_plan_is_undone_where_its_clients_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = PaperGateway(monkeypatch)
    assert run("undo") == (0, ["nobody is away from gw-here because of the last plan"])
    gateway.moves = [
        moved("pump", plan="b"),
        moved("crane", "gw-yard", plan="b"),
        moved("fan", plan="b", outcome="returned"),
        moved("belt", plan="a"),
    ]
    code, lines = run("undo", "--at", "gw-there=10.0.0.7:99", "--yes")
    assert (code, lines[0]) == (1, "crane is left: it was sent to gw-yard; say --at gw-yard=HOST:PORT")
    assert gateway.orders == [("10.0.0.7:99", "/clients", {"do": "move", "name": "pump", "to": "gw-here"})]
    assert run("undo", "--at", "gw-there")[0] == 2
    assert run("undo", "--only", "belt", "--at", "gw-there=10.0.0.7:99", "--yes")[0] == 0
    assert gateway.orders[1:] == [("10.0.0.7:99", "/clients", {"do": "move", "name": "belt", "to": "gw-here"})]


# -- a gateway ---------------------------------------------------------------------------------------------------------

COSTS = MeanCosts(2.0, 1.0, 8.0)
CLIENTS = 'clients = "mqtt://127.0.0.1:1883"\n'
ESTIMATE = PlacementEstimate(
    "gw-here",
    None,
    200,
    100,
    delay_here=4.0 * MILLISECOND,
    delay_there=3.0 * MILLISECOND,
    way_there=2 * MILLISECOND,
    deliveries=100,
    events=100,
    payload_bytes=800,
    lasted=5 * SECOND,
    uplinks_here=((0, 1, 100),),
    uplinks_there=(),
    made_at=0,
)


def endpoint_of(http: str) -> GatewayEndpoint:
    return GatewayEndpoint(HttpAddress("127.0.0.1", int(http.rpartition(":")[2])))


def with_publishers(
    tmp_path: Path, story: Callable[[Gateway, str], Any], has_fan: bool = True, **overrides: Any
) -> None:
    """Run *story* with gw-there, whose pump (MQTT 5), fan (3.1.1) and bert (away) should be at gw-here."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    here, there = TWO_GATEWAYS.format(*ports).rsplit("[[gateway]]", 1)
    (tmp_path / "two.toml").write_text(f"{here}{CLIENTS}[[gateway]]{there}")

    async def play(gateway: Gateway) -> None:
        assert gateway.peer_manager is not None
        peers = gateway.peer_manager.overlay.peers
        come(gateway, "pump")
        if has_fan:
            connection = gateway.frontend.opened("test:2", 0)
            connection.transport = Paper(gateway, connection)
            gateway.frontend.feed(connection, encode_packet(Connect("fan", dialect=V311, keep_alive_s=0), V311), 0)
        for number, name in enumerate(("pump", "fan", "bert"), 1):
            peers.relocation.add(LocalPublisher(name, number, 0), clock())
        for one in peers.relocation.publishers:
            one.estimate, one.due = ESTIMATE, None  # it is never looked at, however long the story takes
        assert gateway.http_address is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(peers.gossip.link_state), "is_reachable", lambda self, gateway: True)
            http = str(HttpAddress(*gateway.http_address))
            await (story(gateway, http) if iscoroutinefunction(story) else asyncio.to_thread(story, gateway, http))

    with_gateway(play, topology=tmp_path / "two.toml", name="gw-there", http=("127.0.0.1", 0), **overrides)


def test_a_gateway_executes_a_plan_and_remembers_it_over_a_restart(tmp_path: Path) -> None:
    def first(gateway: Gateway, http: str) -> None:
        code, [told] = run("plan", "--json", "--http", http)
        rows = {row["client"]: row for row in json.loads(told)["gateways"][0]["proposals"]}
        assert code == 0
        assert [rows[name]["way"] for name in ("pump", "fan", "bert")] == ["server reference", "reconnect", "none"]
        assert rows["bert"]["why_none"] == "it is not connected"
        code, lines = apply(tmp_path, json.loads(told), "--yes", "--rate", "600", "--http", http)
        assert code == 1
        assert lines == [
            "bert is left: it is not connected",
            "1/2 fan is disconnected; for 30 s it is refused here",
            "2/2 pump is told to go to 127.0.0.1:1883; for 30 s it is refused here; its session waits",
        ]
        code, lines = apply(tmp_path, json.loads(told), "--yes", "--http", http)
        assert (code, lines) == (
            1,
            ["bert is left: it is not connected", "fan: it has been moved", "pump: it has been moved"],
        )
        gateway.frontend.connect_handler.moves.arrived("fan", clock())
        moves = get_json(endpoint_of(http), "/place/history")["moves"]
        assert [(row["client"], row["outcome"]) for row in moves] == [("pump", "on its way"), ("fan", "arrived")]
        found = {name: tuple(moves[0][name].values()) for name in ("delay_ms", "load", "uplink_bytes")}
        assert found == {"delay_ms": (4.0, 1.0), "load": (2.0, 1.0), "uplink_bytes": (8.0, 0.0)}
        assert moves[1]["pause_ms"] is not None

    def second(gateway: Gateway, http: str) -> None:
        code, lines = run("undo", "--yes", "--json", "--http", http)
        rows = [json.loads(line) for line in lines]
        assert code == 1
        assert rows == [
            {
                "client": "fan",
                "to": "gw-there",
                "outcome": "left",
                "why": "it was sent to gw-here; say --at gw-here=HOST:PORT",
            }
        ], "the pump is back"

    with_publishers(tmp_path, first, data=tmp_path / "data")
    with_publishers(tmp_path, second, has_fan=False, data=tmp_path / "data")


def test_a_gateway_moves_nobody_whom_it_would_not_propose_now(tmp_path: Path) -> None:
    def story(gateway: Gateway, http: str) -> None:
        [told] = run("plan", "--json", "--http", http)[1]
        assert gateway.peer_manager is not None
        for one in gateway.peer_manager.overlay.peers.relocation.publishers:
            one.estimate = None
        code, lines = apply(tmp_path, json.loads(told), "--yes", "--only", "pump", "--http", http)
        assert (code, lines) == (1, ["pump is left: there is no better gateway for it now"])
        endpoint = endpoint_of(http)
        for query, why in (
            ({"name": "pump", "to": "gw-here"}, "pump should not go to gw-here as things are now"),
            ({"name": "pump"}, "say to="),
            ({"name": "pump", "to": "gw-here", "plan": "x" * 41}, "plan has 41 characters"),
        ):
            with pytest.raises(OrderRefused, match=why):
                post_json(endpoint, "/place", do="move", **query)
        assert get_json(endpoint, "/place/history")["moves"] == []

    with_publishers(tmp_path, story)


def test_the_history_is_bounded_and_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    file = tmp_path / HISTORY_FILE

    async def fill() -> None:
        history = PlacementHistory(file)
        for number in range(HISTORY_MAX + 5):
            history.moves.append(AppliedMove(f"c{number}", "b", "p", 1, "closed", COSTS, COSTS))
        last = AppliedMove("last", "b", "p", 1, "closed", COSTS, COSTS)
        assert await history.add(last) == ""
        assert await history.settle({last: last._replace(outcome="arrived", realised=COSTS, pause_ms=3.5)}) == ""
        assert await PlacementHistory(None).add(history.moves[0]) == "there is no data folder"
        again = PlacementHistory(file)
        assert again.read() == ""
        assert list(again.moves) == list(history.moves)
        assert (len(again.moves), again.moves[-1].client) == (HISTORY_MAX, "last")

    asyncio.run(fill())
    for text in ("{", '[{"client": 1}]', "7"):
        file.write_text(text)
        assert f"set aside as {HISTORY_FILE}.damaged" in PlacementHistory(file).read()
        assert not file.exists()


def test_what_other_gateways_measured_is_read_if_it_is_readable() -> None:
    row = {"client": "pump", "delay_ms": 3.9, "load": 1, "uplink_bytes": 8, "age_s": 3}
    told = {
        "b": encode_report([], {"measured": [row]}),
        "c": encode_report([]),
        "d": b"{",
        "e": encode_report([], {"measured": [row | {"load": None}]}),
    }
    assert told_measurements(told) == {"b": {"pump": {"delay_ms": 3.9, "load": 1.0, "uplink_bytes": 8.0, "age_s": 3.0}}}
