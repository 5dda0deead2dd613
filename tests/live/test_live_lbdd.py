"""A group of processes that send a file on: over loopback, and in network namespaces with links of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
from shutil import which

import pytest

from edgebroker.dissemination.group_view import group_view, view_member
from edgelab.experiment.lbdd_netns import StarNetwork
from edgelab.experiment.lbdd_process import DisseminationProcess

pytestmark = pytest.mark.live
NODES = [f"127.0.74.{number}" for number in range(1, 8)]


def test_seven_nodes_hand_a_file_on_over_tcp() -> None:
    async def transfer() -> list[bool]:
        view = group_view("g", 1, [view_member(node) for node in NODES[1:]], 2)
        nodes = [DisseminationProcess(node, NODES[0], view) for node in NODES]
        for node in nodes:
            await node.serve()
        nodes[0].publish(bytes(2_000_000))
        await asyncio.wait_for(nodes[0].ended.wait(), 60)
        return [node.ended.is_set() for node in nodes]

    assert asyncio.run(transfer()) == [True] * 7


def has_namespaces() -> bool:
    if os.geteuid() or which("ip") is None or which("tc") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", "lbdd-probe"], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "delete", "lbdd-probe"], capture_output=True, check=False)
    return made


def test_three_processes_in_namespaces_send_a_file_and_nothing_is_left_behind() -> None:
    if not has_namespaces():
        pytest.skip("needs root, and the commands ip and tc")
    addresses = [f"10.231.74.{number}" for number in (1, 2, 3)]
    with StarNetwork(addresses, 20) as network:
        seconds = network.transfer(addresses[0], addresses[1:], 1, 1, 1 << 20)
        assert seconds > (1 << 20) * 8 / 20e6 * 0.9, "the link limits the rate"
        assert 1 < network.sent(addresses[0]) / (1 << 20) < 1.3, "the other copy is the first receiver's"
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"edgebroker-{os.getpid()}-" not in left
