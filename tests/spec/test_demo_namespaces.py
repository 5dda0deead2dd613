"""The demo in network namespaces: what would be run, what is left over, and what is refused."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from ipaddress import ip_interface
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebroker.cli import Refused, main
from edgebroker.cli.topology.toml_text import toml_text
from edgebroker.runtime.topology_file import load_topology
from edgelab.demo.federation import kernel, namespace_network
from edgelab.demo.federation.kernel import CommandFailed, DeviceCounters, counters, has_netem
from edgelab.demo.federation.layout import Layout
from edgelab.demo.federation.namespace_network import NamespaceNetwork
from edgelab.demo.federation.namespaces import Command, NamespacePlan, left_over, of_run
from edgelab.demo.federation.outcome import ReceivedBytes

RUN = 4_194_303
"""The largest process identifier of Linux: names are longest."""
PAIR = ("gw-north1", "gw-south1")


def made(sites: int, gateways: int, delay_us: int = 10_000) -> tuple[NamespacePlan, list[Command]]:
    plan = NamespacePlan(RUN, Layout(sites, gateways), delay_us)
    return plan, list(plan.making())


@pytest.mark.parametrize(("sites", "gateways"), [(2, 1), (3, 3), (5, 5)])
def test_all_names_and_addresses_are_our_own_and_no_two_are_alike(sites: int, gateways: int) -> None:
    plan, commands = made(sites, gateways)
    namespaces = [command[3] for command in commands if command[:3] == ("ip", "netns", "add")]
    assert Counter(namespaces) == Counter(plan.names)
    assert of_run(RUN, ["other", *namespaces, "edgebroker-12-desk"]) == sorted(namespaces)
    devices = [name for command in commands for key, name in pairwise(command) if key == "name"]
    devices += [command[5] for command in commands if command[3:5] == ("link", "add")]
    assert max(Counter(devices).values()) == 1
    assert all(len(name) <= 15 and str(RUN) in name for name in devices)
    for command in commands:
        assert command[:3] == ("ip", "netns", "add") or (command[1] == "-n" and command[2] in namespaces), command
    addresses = [ip_interface(command[5]) for command in commands if command[3:5] == ("address", "add")]
    assert max(Counter(one.ip for one in addresses).values()) == 1
    shared = Counter(one.network for one in addresses)
    assert shared.pop(ip_interface("10.77.0.254/24").network) == sites * gateways + 1
    assert set(shared.values()) == {2}, "each link is a network of its own"


def test_an_uplink_is_delayed_and_bounded_at_both_ends_and_a_link_inside_a_site_is_not() -> None:
    _, commands = made(2, 2)
    shaped = [command for command in commands if command[0] == "tc"]
    assert len(shaped) == 2 * 2 * len(Layout(2, 2).uplinks)
    begin = ("tc", "-n", f"edgebroker-{RUN}-gw-north1", "qdisc", "add", "dev", f"eb{RUN}u1a")
    assert [command[len(begin) :] for command in shaped if command[: len(begin)] == begin] == [
        ("root", "handle", "1:", "netem", "delay", "10000us"),
        tuple("parent 1:1 handle 10: tbf rate 10000000bit burst 1600 limit 16384".split()),
    ]


def test_without_netem_only_the_rate_is_bounded() -> None:
    plan, commands = made(2, 1, delay_us=0)
    assert [command[7:] for command in commands if command[0] == "tc"] == 2 * [
        tuple("root handle 10: tbf rate 10000000bit burst 1600 limit 16384".split())
    ]
    assert [command[4:] for command in plan.squeezing(PAIR, 250.0)] == [
        ("change", "dev", device, *"root handle 10: tbf rate 2000bit burst 1600 limit 16384".split())
        for device in plan.wires[PAIR].devices
    ]


def test_an_uplink_is_squeezed_at_both_ends_and_cut_at_one() -> None:
    plan, _ = made(2, 1)
    here = f"edgebroker-{RUN}-gw-north1"
    rates = [[command[13] for command in plan.squeezing(PAIR, rate)] for rate in (250.0, None)]
    assert rates == [["2000bit"] * 2, ["10000000bit"] * 2]
    for is_on, state in ((False, "down"), (True, "up")):
        assert [*plan.switching(PAIR, is_on)] == [("ip", "-n", here, "link", "set", f"eb{RUN}u0a", state)]


def test_what_a_killed_run_left_is_found_and_what_others_have_is_not() -> None:
    there = ["edgebroker-7-desk", "edgebroker-7-gw-north1", "edgebroker-8-desk", "edgebroker-desk", "mine", "x-7-desk"]
    assert left_over(there, lambda number: number == 8) == there[:2]


@pytest.mark.parametrize(("sites", "gateways"), [(2, 1), (5, 5)])
def test_gateways_find_each_other_at_the_addresses_of_their_links(sites: int, gateways: int, tmp_path: Path) -> None:
    layout = Layout(sites, gateways)
    path = tmp_path / "topology.toml"
    path.write_text(toml_text(NamespaceNetwork(RUN, layout, print, has_netem=True).draft()))
    topology, plan = load_topology(path), NamespacePlan(RUN, layout, 0)
    assert topology.digest == layout.topology.digest
    for one, other in layout.links:
        (address,) = topology.connection(one, other).dial.addresses
        assert address.host == plan.wires[one, other].addresses[1]
        awaited = next(gateway.address for gateway in topology.draft.gateways if gateway.name == other)
        assert address in awaited


# -- the kernel ------------------------------------------------------------------------------------------------------

PROC_NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier comp
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0    0
eb9u0a: 7904     120    0    0    0     0          0         0   313976     212    0    0    0     0       0       0
"""


def test_counters_of_devices_are_read() -> None:
    assert counters(PROC_NET_DEV) == {"lo": DeviceCounters(0, 0, 0), "eb9u0a": DeviceCounters(7_904, 120, 313_976)}


def test_received_bytes_exclude_headers_and_show_what_came_another_way() -> None:
    tally = ReceivedBytes.sum([ReceivedBytes(660, 5, 300), ReceivedBytes(670, 5, 370)])
    assert tally == (1_330, 10, 670)
    assert (tally.payload, tally.is_possible) == (670, True)
    assert "(+0.0% of the 670 that the gateways say)" in str(tally)
    assert not ReceivedBytes(660, 5, 661).is_possible


class Machine:
    """Runs no command: notes it, and fails at what contains *broken*."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
        self.done: list[Command] = []
        self.there: list[str] = []
        self._broken = broken
        for module in (kernel, namespace_network):
            monkeypatch.setattr(module, "execute", self.execute)
            monkeypatch.setattr(module, "names", lambda: list(self.there))

    def execute(self, commands: list[Command]) -> None:
        for command in commands:
            if self._broken in " ".join(command):
                raise CommandFailed(f"{' '.join(command)}: no")
            self.done.append(command)
            if command[:3] == ("ip", "netns", "add"):
                self.there.append(command[3])
            elif command[:3] == ("ip", "netns", "delete"):
                self.there.remove(command[3])


@pytest.mark.parametrize(("broken", "found"), [("netem", False), ("nothing", True)])
def test_netem_is_tried_out_and_nothing_is_left(broken: str, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, broken)
    assert has_netem("scratch") is found
    assert machine.there == []


def test_a_kernel_without_tbf_is_refused_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, "tbf")
    with pytest.raises(Refused, match=r"does not work on this machine: tc .* tbf .*: no; mend that, or leave out"):
        has_netem("scratch")
    assert machine.there == []


def test_what_was_made_is_removed_if_the_rest_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, "u0a gso_max_segs")

    async def play() -> None:
        async with NamespaceNetwork(RUN, Layout(2, 1), print, has_netem=True).open():
            raise AssertionError("it cannot be opened")

    machine.there.append("edgebroker-8-desk")
    with pytest.raises(CommandFailed, match="u0a"):
        asyncio.run(play())
    assert machine.there == ["edgebroker-8-desk"], "what others made stays"
    assert len([command for command in machine.done if command[2] == "delete"]) == 3


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("programs", "user", "said"),
    [
        ((), 0, "--netns needs ip and tc: install iproute2"),
        (("ip",), 0, "--netns needs tc: install iproute2"),
        (("ip", "tc"), 1_000, "only root may: run it with sudo, or leave out --netns"),
    ],
)
def test_where_namespaces_cannot_be_made_it_says_how_to_mend_that(
    programs: tuple[str, ...], user: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda name: name if name in programs else None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    arguments = ["demo", "--sites", "2", "--netns", "--dir", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert not (tmp_path / "out").exists()


def test_namespaces_join_several_sites(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--netns", "--dir", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "give --sites 2 or more too" in result.stderr
