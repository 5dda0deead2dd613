"""A group of processes in network namespaces, each with a link of its own to one bridge. It needs root.

The bridge is in a namespace, too, so nothing is created in that of the machine. Each of the others has one end of a
virtual cable; `tc` limits both of its directions to the rate of the link.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from shutil import which
from typing import Final

from edgebroker.cli import Refused
from edgelab.demo.federation.kernel import CommandFailed, execute
from edgelab.demo.federation.namespaces import Command, inside, namespace, removing

HUB: Final = "hub"
BRIDGE: Final = "bridge"
PREFIX_LENGTH: Final = 24
BURST: Final = "64kb"
QUEUE: Final = "100ms"
"""What waits longer at a link is dropped, as in a switch."""
END_TIMEOUT_S: Final = 10


class StarNetwork:
    """Namespaces for *nodes*, whose names are IPv4 addresses of one /24 network. Use it as a context."""

    def __init__(self, nodes: Sequence[str], megabits: float) -> None:
        self._nodes = nodes
        self._shape = ("root", "tbf", "rate", f"{megabits:g}mbit", "burst", BURST, "latency", QUEUE)
        self._undo = ExitStack()
        self._hub = self.namespace(HUB)

    def namespace(self, node: str) -> str:
        """Return the name of a node's namespace."""
        return namespace(os.getpid(), node.rpartition(".")[2])

    def __enter__(self) -> StarNetwork:
        if os.geteuid() or which("ip") is None or which("tc") is None:
            raise Refused("--netns needs root, and the commands ip and tc")
        with ExitStack() as undo:
            try:
                for name in map(self.namespace, (HUB, *self._nodes)):
                    execute([("ip", "netns", "add", name)])
                    undo.callback(execute, removing([name]))
                execute(self._links())
            except CommandFailed as failure:
                raise Refused(f"--netns does not work on this machine: {failure}") from None
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _links(self) -> Iterator[Command]:
        """Yield the commands that make the bridge, and the cables to it."""
        yield "ip", "-n", self._hub, "link", "add", BRIDGE, "type", "bridge"
        yield "ip", "-n", self._hub, "link", "set", BRIDGE, "up"
        for node in self._nodes:
            name, port = self.namespace(node), self._port(node)
            yield "ip", "-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name
            yield "ip", "-n", self._hub, "link", "set", port, "master", BRIDGE, "up"
            yield "ip", "-n", name, "address", "add", f"{node}/{PREFIX_LENGTH}", "dev", "eth0"
            yield "ip", "-n", name, "link", "set", "eth0", "up"
            yield "tc", "-n", name, "qdisc", "add", "dev", "eth0", *self._shape
            yield "tc", "-n", self._hub, "qdisc", "add", "dev", port, *self._shape

    def _port(self, node: str) -> str:
        return f"port{node.rpartition('.')[2]}"

    def sent(self, node: str) -> int:
        """Return the bytes that a node has sent, with the headers of TCP and Ethernet."""
        command = (*inside(self._hub), "ip", "-json", "-statistics", "link", "show", self._port(node))
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(json.loads(shown)[0]["stats64"]["rx"]["bytes"])

    def transfer(self, source: str, members: Sequence[str], fan_out: int, capacity: int, size: int) -> float:
        """Let *source* send *size* bytes to *members*, each a process. Returns the seconds until all have reported."""
        shared = {"source": source, "members": members, "fan_out": fan_out, "capacity": capacity, "size": size}
        processes: dict[str, subprocess.Popen[str]] = {}
        try:
            for node in (source, *members):
                processes[node] = self._start({**shared, "node": node})
            for node, process in processes.items():
                if _line_of(process) != "ready":
                    raise Refused(f"the process of {node} did not start")
            sending = processes[source]
            assert sending.stdin is not None
            sending.stdin.write("go\n")
            sending.stdin.flush()
            return float(_line_of(sending) or "inf")
        finally:
            for process in processes.values():
                assert process.stdin is not None
                process.stdin.close()
            for process in processes.values():
                _end(process)

    def _start(self, options: dict[str, object]) -> subprocess.Popen[str]:
        node = f"{options['node']}"
        command = [sys.executable, "-m", "edgelab.experiment.lbdd_process", json.dumps(options)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.Popen(
            [*inside(self.namespace(node)), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process whose standard input has ended, or kill it."""
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
