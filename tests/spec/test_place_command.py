"""`edgebroker place plan`, the page behind it, what gateways tell each other for it, and its settings."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebroker.cli import main
from edgebroker.cli import place as place_module
from edgebroker.federation.options import RelocationMode
from edgebroker.overlay.messages import STATUS_REPORT_BYTES_MAX
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.relocation.placement import PlacementGoal, PlacementPriority
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.metrics import metrics_page
from edgebroker.runtime.http.pages import HttpPages
from edgebroker.runtime.peers.membership import load_membership, relocation_options
from edgebroker.runtime.peers.placement import federation_placements
from edgebroker.runtime.peers.status import decode_report, encode_report
from edgebroker.runtime.settings import Settings, SettingsRefused
from edgebroker.runtime.settings.schema import Activation

from ..support.gateway_in_process import with_gateway
from ..support.topologies import TWO_GATEWAYS

PUMP = {
    "client": "pump",
    "to": "gw-there",
    "delay_ms": {"here": 4.3, "there": 3.8},
    "load": {"here": 2.0, "there": 1.0},
    "gain_percent": {"delay": 11.6, "load": 50.0},
    "uplinks": [{"from": "here", "to": "there", "bytes_per_minute": {"here": 16_384, "there": 0}}],
    "way": "reconnect",
    "version": "5",
    "confidence": {"sessions": 3, "unusable": 1, "last": None, "events": 100, "deliveries": 100, "age_s": 62.0},
}
HERE: dict[str, Any] = {
    "name": "gw-here",
    "mode": "propose",
    "priority": "delay",
    "weight": 50,
    "gain_min": 5,
    "publishers": 14,
    "proposed": 2,
    "proposals": [PUMP],
    "stays": {"best": 11, "unseen": 1, "gain": 0},
    "untracked": 3,
}
OFF = HERE | {"name": "gw-off", "mode": "off", "proposals": []}


def planned(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(place_module, "get_json", lambda *_, **query: answer | {"query": query})
    result = CliRunner().invoke(main, ["place", "plan", *arguments])
    return result.exit_code, result.output


def test_a_plan_says_who_should_go_where_why_and_why_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    code, told = planned(monkeypatch, {"gateways": [HERE], "unreached": []})
    assert code == 0
    heading, row, _, *lines = told.splitlines()
    assert heading.split()[:3] == ["PUBLISHER", "AT", "BETTER"]
    assert [cell.strip() for cell in row.split("  ") if cell.strip()] == [
        "pump",
        "gw-here",
        "gw-there",
        "4.3 -> 3.8 ms",
        "2.00 -> 1.00",
        "16 KiB -> 0 B",
        "reconnect",
        "3 (1 unusable)",
        "1 min 2 s",
    ]
    assert lines == [
        "gw-here: 2 of 14 publishers should be elsewhere (delay first, weight 50, gain 5 %)",
        "  1 of them are shown",
        "  11 stay: its gateway is the best one",
        "  1 stay: too little is known of it yet",
        "  3 were not looked at: there are too many",
    ]
    told = planned(monkeypatch, {"gateways": [HERE], "unreached": []}, "--json", "--limit", "1")[1]
    assert json.loads(told)["query"] == {"all": "no", "limit": 1}


def test_the_exit_code_says_whether_somebody_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    away = [{"name": "gw-away", "reason": "it does not answer"}]
    for gateways, unreached, code in (([HERE, OFF], [], 0), ([OFF], [], 1), ([HERE], away, 1)):
        found, told = planned(monkeypatch, {"gateways": gateways, "unreached": unreached}, "--all")
        assert found == code
        assert ('gw-off: relocation.mode is "off"' in told) == (OFF in gateways)
        assert ("gw-away is missing: it does not answer" in told) == bool(unreached)


def test_a_gateway_that_does_not_answer_is_an_error() -> None:
    result = CliRunner().invoke(main, ["place", "plan", "--http", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert "127.0.0.1:1" in result.output


def test_a_gateway_alone_has_nowhere_to_place_publishers() -> None:
    async def story(gateway: Gateway) -> HTTPStatus:
        return (await HttpPages(gateway.view)("/place")).status

    assert with_gateway(story) is HTTPStatus.NOT_FOUND


def test_the_page_has_the_gateways_own_publishers_and_those_of_others_with_reasons_why_not(tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    (tmp_path / "two.toml").write_text(TWO_GATEWAYS.format(*ports))

    async def story(gateway: Gateway) -> None:
        page = await HttpPages(gateway.view)("/place?limit=5")
        assert isinstance(page.body, bytes)
        [found] = json.loads(page.body)["gateways"]
        assert (found["name"], found["mode"], found["publishers"], found["proposals"]) == ("gw-there", "propose", 0, [])
        assert gateway.peer_manager is not None
        topology, own = gateway.peer_manager.membership.topology, gateway.peer_manager.placement(5)
        nothing: dict[str, bytes] = {}
        for told, reason in (
            (nothing, "it does not answer"),
            ({"gw-here": encode_report([])}, "it tells nothing of publishers"),
            ({"gw-here": b"{"}, "Expecting property name"),
        ):
            [missing] = federation_placements(topology, "gw-there", own, told)["unreached"]
            assert missing["name"] == "gw-here"
            assert missing["reason"].startswith(reason)
        told = {"gw-here": encode_report([], {"placement": HERE})}
        answer = federation_placements(topology, "gw-there", own, told)
        assert [(one["name"], one["publishers"]) for one in answer["gateways"]] == [("gw-there", 0), ("gw-here", 14)]
        text = (await metrics_page(gateway.view)).decode()
        assert 'edgebroker_relocation_sessions_ended_total{outcome="proposed"} 0' in text

        assert gateway.reloader is not None
        relocation = parsed('mode = "off"\nweight = 90').relocation
        outcome = await gateway.reloader.apply(replace(gateway.reloader.settings, relocation=relocation))
        assert [str(change) for change in outcome.changes] == [
            "relocation.mode: propose -> off",
            "relocation.weight: 50 -> 90",
        ]
        assert {change.applied for change in outcome.changes} == {Activation.LIVE}
        after = gateway.peer_manager.placement(5)
        assert (after["mode"], after["weight"]) == ("off", 90)
        assert gateway.peer_manager.membership.options.relocation.goal.weight == 90

    with_gateway(story, topology=tmp_path / "two.toml", name="gw-there")


def test_what_others_are_told_of_publishers_goes_first_if_there_is_no_room() -> None:
    links = [{"peer": f"gw-{number}", "up": True, "reason": f"{number * 7919:x}" * 20} for number in range(60)]
    report = encode_report(links, {"placement": HERE})
    assert decode_report(report)["placement"] == HERE
    noise = [f"{number * 2_654_435_761 % (1 << 61):x}" for number in range(20_000)]
    report = encode_report(links, {"placement": noise})
    assert len(report) <= STATUS_REPORT_BYTES_MAX
    assert decode_report(report) == {"links": links}


# -- settings ----------------------------------------------------------------------------------------------------------


def parsed(text: str) -> Settings:
    return Settings.parse(f"[relocation]\n{text}\n", "gateway.toml", Path())


TOPOLOGY = Topology.product(Scot(Factor.parse("a"), 2))


def test_settings_become_a_goal_and_exclusions() -> None:
    text = 'priority = "load"\nweight = 80\ngain_min = 10\nexclude = ["client plc-*", "topic alarms/#"]'
    options = relocation_options(parsed(text).relocation, TOPOLOGY, "a.0")
    assert options.goal == PlacementGoal(PlacementPriority.LOAD, 80, 0.1)
    assert options.excluded_clients == ("plc-*",)
    assert [one.text for one in options.excluded_topics] == ["alarms/#"]


def test_other_settings_hold_for_the_gateways_of_a_site() -> None:
    text = """mode = "apply"
moves_per_minute = 2
exclude = ["client plc-*"]
[[relocation.site]]
name = "1"
mode = "off"
priority = "load"
weight = 0
exclude = ["topic alarms/#"]
"""
    settings = parsed(text).relocation
    here, there = (relocation_options(settings, TOPOLOGY, name) for name in ("a.0", "a.1"))
    assert (here.mode, here.goal, here.excluded_topics, here.moves_per_minute) == (
        RelocationMode.APPLY,
        PlacementGoal(),
        (),
        2,
    )
    assert (there.mode, there.goal) == (RelocationMode.OFF, PlacementGoal(PlacementPriority.LOAD, 0))
    assert (there.excluded_clients, [one.text for one in there.excluded_topics]) == (("plc-*",), ["alarms/#"])
    assert str(settings.site[0]) == "1 mode=off priority=load weight=0 exclude=topic alarms/#"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('mode = "on"', '"off", "propose", "apply"'),
        ("moves_per_minute = 0", "1 to 60"),
        ("[[relocation.site]]\nweight = 1", "name the site"),
        ('[[relocation.site]]\nname = "yard"\nwheight = 1', "a table has name, mode, priority, weight, exclude"),
        ('[[relocation.site]]\nname = "yard"\nweight = 101', "a table whose weight is 101"),
        ('[[relocation.site]]\nname = "a"\n[[relocation.site]]\nname = "a"', "has two tables for a"),
        ('site = ["yard"]', "a table [[relocation.site]]"),
        ('exclude = ["plc-*"]', 'text like "client plc-*" or "topic alarms/#"'),
        ('exclude = ["topic a#"]', "must be the whole last level"),
        ("weight = 101", "0 to 100"),
    ],
)
def test_other_settings_are_refused_with_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(SettingsRefused, match="relocation") as refused:
        parsed(text)
    assert reason in str(refused.value)


def test_rules_for_a_site_that_is_not_in_the_topology_are_refused_with_its_sites(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO_GATEWAYS.format(1, 2))
    text = '[node]\nname = "gw-here"\n[overlay]\ntopology = "two.toml"\n[[relocation.site]]\nname = "{}"\nweight = 7\n'
    membership = load_membership(Settings.parse(text.format("here"), "gateway.toml", tmp_path))
    assert membership.options.relocation.goal.weight == 7
    with pytest.raises(SettingsRefused) as refused:
        load_membership(Settings.parse(text.format("hear"), "gateway.toml", tmp_path))
    assert "relocation.site: 'hear' is no site of the topology; name one of here, there" in str(refused.value)
