"""The settings of peers, and how peers are dialled: what is accepted, and what is refused with which words."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebroker.cli.check import command as check
from edgebroker.cli.links import link_lines
from edgebroker.cli.run import command as run
from edgebroker.federation.options import DEFAULT_OPTIONS
from edgebroker.names import Address
from edgebroker.runtime.peers.connection import DialError, dial
from edgebroker.runtime.peers.membership import load_membership, prepare_change
from edgebroker.runtime.settings import Settings, SettingsRefused

from ..support.topologies import TWO_GATEWAYS

TOPOLOGY = TWO_GATEWAYS.format(7884, 7885)
NEW_SITE = """
[[site]]
name = "yonder"
[[gateway]]
name = "gw-yonder"
site = "yonder"
address = "127.0.0.1:7886"
"""


DIALLED = """
[[link]]
between = ["gw-here", "gw-there"]
dials = "gw-there"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of gw-here."""
    path = tmp_path / "topology.toml"
    path.write_text(TOPOLOGY)
    return Settings.defaults().overridden(topology=path, name="gw-here")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port = 7884", "overlay.port: does nothing without topology; name the topology file, or leave the line out"),
        (
            'topology = "t"\ntls_key = "k"',
            "overlay.tls_key: stands without tls_certificate; tls_certificate, tls_key, tls_ca go together",
        ),
        (
            'topology = "t"\ntls_certificate = "c"\ntls_key = "k"',
            "stands without tls_ca; tls_certificate, tls_key, tls_ca go together",
        ),
        (
            'topology = "t"\ntls_crl = "c"',
            "overlay.tls_crl: does nothing without tls_certificate; set tls_certificate, tls_key, tls_ca, or leave the",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, told: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        Settings.parse(f"[overlay]\n{text}\n", "f.toml", Path())
    assert told in str(refused.value)


def test_a_gateway_takes_part_as_its_settings_say(settings: Settings) -> None:
    text = '[overlay]\ntopology = "t"\nrouting = "dynamic"\nlease_s = 259200\nidle_advertisements_max = 9\n'
    asked = Settings.parse(
        text + "suback_wait_ms = 8\nretained_cache_bytes_max = 7\ndead_gateway_wills_after_s = 6\nroaming = false\n",
        "f.toml",
        Path(),
    )
    overlay = replace(asked.overlay, topology=settings.overlay.topology)
    options = load_membership(replace(settings, overlay=overlay)).options
    assert (options.is_dynamic, options.lease_s, options.idle_advertisements_max) == (True, 259_200, 9)
    assert (options.suback_wait_ms, options.retained_cache_bytes_max) == (8, 7)
    assert (options.dead_gateway_wills_after_s, options.roams) == (6, False)
    assert load_membership(settings).options == DEFAULT_OPTIONS


def test_check_looks_into_the_topology_and_the_certificates(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[node]\nname = "gw-nowhere"\n[overlay]\ntopology = "topology.toml"\n')
    assert "none is called 'gw-nowhere'" in CliRunner().invoke(check, [str(file)]).output
    file.write_text(
        '[node]\nname = "gw-here"\n[overlay]\ntopology = "topology.toml"\n'
        'tls_certificate = "c.crt"\ntls_key = "c.key"\ntls_ca = "ca.crt"\n'
    )
    refused = CliRunner().invoke(check, [str(file)])
    assert refused.exit_code == 2
    assert "overlay.tls_certificate: " in refused.output
    assert "c.crt cannot be read: No such file" in refused.output


FAR = TOPOLOGY.replace("127.0.0.1:7885", "gw-there.example:7885")


@pytest.mark.parametrize(
    ("text", "exposed"),
    [
        (FAR, "gw-here dials gw-there at gw-there.example:7885"),  # and nobody dials it
        (TOPOLOGY.replace("127.0.0.1:7885", "192.0.2.7:7885"), "gw-here dials gw-there at 192.0.2.7:7885"),
        (
            TOPOLOGY.replace("127.0.0.1:7884", "[2001:db8::1]:7884") + DIALLED,
            "gw-here awaits peers at [2001:db8::1]:7884",
        ),
        (TOPOLOGY.replace("127.0.0.1:7884", "0.0.0.0:7884") + DIALLED, "gw-here awaits peers at 0.0.0.0:7884"),
    ],
)
def test_peers_beyond_this_machine_need_tls_or_a_word_of_the_operator(
    tmp_path: Path, settings: Settings, text: str, exposed: str
) -> None:
    path = settings.overlay.topology
    assert path is not None
    path.write_text(text)
    file = tmp_path / "gateway.toml"
    file.write_text('[node]\nname = "gw-here"\n[overlay]\ntopology = "topology.toml"\n')
    refused = CliRunner().invoke(check, [str(file)])
    assert refused.exit_code == 2
    assert f"{file}:3: overlay.insecure: {path}: {exposed} without TLS: whoever is on the way" in refused.output
    assert (
        "; set tls_certificate, tls_key and tls_ca under [overlay] (`edgebroker certificate gateway`" in refused.output
    )
    started = CliRunner().invoke(run, ["--topology", str(path), "--name", "gw-here", "--memory", "--port", "0"])
    assert exposed in str(started.exception)
    file.write_text(file.read_text() + "insecure = true\n")
    assert CliRunner().invoke(check, [str(file)]).exit_code == 0
    assert load_membership(settings.overridden(insecure=True)).tls is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "[::1]", "localhost"])
def test_peers_on_this_machine_need_no_tls(settings: Settings, host: str) -> None:
    path = settings.overlay.topology
    assert path is not None
    path.write_text(TOPOLOGY.replace("127.0.0.1", host))
    assert load_membership(settings).tls is None


def test_peers_beyond_this_machine_without_tls_are_not_taken_up_by_a_reload(settings: Settings) -> None:
    before = load_membership(settings)
    assert settings.overlay.topology is not None
    settings.overlay.topology.write_text(FAR)
    with pytest.raises(SettingsRefused, match=r"gw-here dials gw-there at gw-there\.example:7885 without TLS"):
        prepare_change(before, settings)


@pytest.mark.parametrize(
    ("text", "is_new_run", "lines"),
    [
        (
            TOPOLOGY.replace("7885", "7999"),
            False,
            ["topology: gateway gw-there has address 127.0.0.1:7999, had 127.0.0.1:7885"],
        ),
        (
            TOPOLOGY + 'clients = "mqtt://127.0.0.1:1884"\n',
            False,
            ["topology: gateway gw-there has clients mqtt://127.0.0.1:1884, had none"],
        ),
        (
            TOPOLOGY.replace('name = "there"\n', 'name = "there"\nuplink = "metered"\n'),
            True,
            ["topology: site there has another uplink: metered, 1000 ms, had wan, 2 ms"],
        ),
        (TOPOLOGY + NEW_SITE, True, ["topology: site yonder is new", "topology: gateway gw-yonder is new"]),
    ],
)
def test_a_new_topology_holds_at_once(settings: Settings, text: str, is_new_run: bool, lines: list[str]) -> None:
    path = settings.overlay.topology
    assert path is not None
    before = load_membership(settings)
    path.write_text(text)
    change = prepare_change(before, settings)
    assert list(change.lines) == lines
    assert change.is_new_run == is_new_run
    assert change.membership.topology is not before.topology


ROW = (
    TOPOLOGY.replace('"a"', '["a-b-c"]')
    .replace(
        '[[gateway]]\nname = "gw-there"',
        """[[gateway]]
name = "gw-far"
site = "here"
positions = ["c", "b"]
address = "127.0.0.1:7887"
[[gateway]]
name = "gw-there\"""",
    )
    .replace(
        'site = "here"\naddress = "127.0.0.1:7884"',
        """site = "here"
positions = ["a"]
address = "127.0.0.1:7884\"""",
    )
)
NEW_MIDDLE = """
[[gateway]]
name = "gw-middle"
number = 3
site = "here"
positions = ["b"]
address = "127.0.0.1:7888"
"""


def test_a_gateway_loses_peers_while_it_runs(settings: Settings) -> None:
    path = settings.overlay.topology
    assert path is not None
    path.write_text(ROW)
    before = load_membership(settings)
    path.write_text(ROW.replace('["c", "b"]', '["c"]') + NEW_MIDDLE)
    change = prepare_change(before, settings)
    assert change.lines == ("topology: gateway gw-far loses b", "topology: gateway gw-middle is new")
    assert change.is_new_run
    assert change.membership.topology.gateway("gw-here").neighbours == ("gw-middle",)


def test_what_running_gateways_cannot_take_is_refused(settings: Settings) -> None:
    before = load_membership(settings)
    assert settings.overlay.topology is not None
    settings.overlay.topology.write_text(TOPOLOGY.replace('name = "gw-there"', 'name = "gw-there"\nnumber = 7'))
    with pytest.raises(SettingsRefused, match="gateway gw-there has number 7, had 1; a federation takes that only if"):
        prepare_change(before, settings)


class Caller(asyncio.Protocol):
    """Somebody who dials."""


@pytest.fixture
def closed() -> Iterator[Address]:
    """Where nobody listens: the port is taken, and stays silent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Address("127.0.0.1", taken.getsockname()[1])


def test_addresses_are_dialled_one_after_the_other(closed: Address) -> None:
    async def reach() -> int:
        came = asyncio.Event()
        server = await asyncio.get_running_loop().create_server(lambda: Answerer(came), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await dial([closed, Address("127.0.0.1", port)], Caller, None)
        await came.wait()
        server.close()
        return 1

    assert asyncio.run(reach())


class Answerer(asyncio.Protocol):
    """Somebody who is dialled."""

    def __init__(self, came: asyncio.Event) -> None:
        self._came = came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._came.set()


def test_if_nobody_answers_it_is_said_of_each_address_why(closed: Address) -> None:
    with pytest.raises(DialError) as no_answer:
        asyncio.run(dial([closed, Address("no-such-host.invalid", 1)], Caller, None))
    first, second = str(no_answer.value).split("; ")
    assert first.startswith(f"{closed}: ")
    assert second.startswith("no-such-host.invalid:1: ")


def test_links_are_shown_with_the_reason_of_those_that_are_down() -> None:
    row = {
        "peer": "gw-there", "up": False, "refused": True, "reason": "the topologies differ", "congested": False,
        "links": ["aLink", "iLink a"], "round_trip_ms": None, "offset_ms": None, "waiting": 12, "waiting_bytes": 2048,
        "dropped": {"queue_full": 3}, "congestion_index": 24.0,
        "routes": {"interests": 7, "publishers": 5, "publishers_wanted": 2,
                   "answers": {"exact": 20, "widened": 3, "anything": 1}},
    }  # fmt: skip
    crowd = {"at": "gw-here", "for": "gw-there"}
    found = {"name": "gw-here", "federation": "plant", "tls": True, "links": [row], "crowded": [crowd]}
    *_, line, reason, inexact, crowded = link_lines(json.loads(json.dumps(found)))
    assert (
        line.split()
        == "gw-there refused aLink, iLink a - - 12 2.0 KiB 24 7 filters, 2 of 5 prefixes 3 queue_full".split()
    )
    assert reason == "gw-there: the topologies differ"
    assert inexact == (
        "gw-there: of 24 advertisements, it was told exactly what we want of 20, something wider of 3, and "
        "anything of 1"
    )
    assert crowded == "gw-there: too much waits for it at gw-here; what it wants is refused until there is room"


@pytest.mark.parametrize(
    ("links", "routes", "said"),
    [
        (["aLink"], {"interests": None, "publishers": None, "publishers_wanted": None}, "anything"),
        (["iLink a"], {"interests": None, "publishers": 3, "publishers_wanted": 0}, "0 of 3 prefixes"),
        (["iLink b"], {"interests": None, "publishers": None, "publishers_wanted": None}, "-"),
    ],
)
def test_what_a_peer_is_sent_is_told_by_its_links(links: list[str], routes: dict[str, Any], said: str) -> None:
    row = {
        "peer": "p", "up": True, "refused": False, "reason": "", "congested": True, "links": links,
        "round_trip_ms": 1.0, "offset_ms": 0.5, "waiting": 0, "waiting_bytes": 0, "dropped": {},
        "congestion_index": 0.0, "routes": {**routes, "answers": {"exact": 4, "widened": 0, "anything": 0}},
    }  # fmt: skip
    (*_, line) = link_lines({"name": "g", "federation": "f", "tls": False, "links": [row], "crowded": []})
    assert f"congested  {', '.join(links)}" in line
    assert re.split(" {2,}", line)[-2:] == [said, "-"]
