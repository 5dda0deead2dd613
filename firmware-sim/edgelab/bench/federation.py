"""`edgebroker bench federation`: many gateways start at once on this machine, and are idle then.

docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.http_client import GatewayEndpoint, GatewayNoAnswer, get_json
from edgebroker.cli.parameters import HttpAddress, examples
from edgelab.bench.mqtt import RUN_FAILED, stopped_by_sigterm
from edgelab.bench.subjects import edgebroker
from edgelab.processes import CpuClock, child, free_ports, memory_bytes

HOST: Final = "127.0.0.1"
UP_S_MAX: Final = 20.0
"""The target: all links of 36 gateways are up so soon on two cores."""
IDLE_BYTES_MAX: Final = 3_000
"""The target: an end of an idle link sends so many bytes an hour."""
PATIENCE_S: Final = 180.0
SETTLE_S: Final = 20.0
"""What gateways tell each other when they have met is over by then."""
POLL_S: Final = 0.25
PORTS: Final = 3  # of a gateway: for peers, for clients, and for HTTP


@dataclass(frozen=True, slots=True)
class FederationFigures:
    """What was measured. All but the first two are per gateway or per link end."""

    gateways: int
    link_ends: int
    up_s: float
    """From the start of the first process until all links are up at both ends."""
    start_cpu_s: float
    memory_mib: float
    idle_bytes_per_hour: float
    """Sent by an end of a link."""
    idle_cpu_percent: float

    @property
    def targets_met(self) -> bool:
        """Whether both targets are met."""
        return self.up_s <= UP_S_MAX and self.idle_bytes_per_hour <= IDLE_BYTES_MAX


def topology(sites: int, each: int, ports: list[int]) -> str:
    """Return the topology of *sites* with *each* gateways; the tree of a site is binary."""
    paths = [f"p{(position - 1) // 2}-p{position}" for position in range(1, each)] or ["p0"]
    lines = ["[federation]", 'name = "bench"', "[factor]", f"tree = {json.dumps(paths)}"]
    for site in range(sites):
        lines += ["[[site]]", f'name = "site-{site}"']
    for number in range(sites * each):
        lines += ["[[gateway]]", f'name = "gw-{number}"', f'site = "site-{number // each}"']
        lines += [f'positions = ["p{number % each}"]', f'address = "{HOST}:{ports[number]}"']
    return "\n".join(lines) + "\n"


class BenchFederation:
    """The processes of a federation, in a folder of their own."""

    def __init__(self, sites: int, each: int, folder: Path, cores: list[int], stack: ExitStack) -> None:
        count, subject = sites * each, edgebroker()
        ports = free_ports(PORTS * count)
        file = folder / "topology.toml"
        file.write_text(topology(sites, each, ports[:count]), encoding="utf-8")
        self._endpoints = [GatewayEndpoint(HttpAddress(HOST, port)) for port in ports[2 * count :]]
        self.started_at = time.monotonic()
        self.processes = []
        for number, (port, endpoint) in enumerate(zip(ports[count : 2 * count], self._endpoints, strict=True)):
            home = folder / f"gw-{number}"
            home.mkdir()
            command = [*subject.command(port, home), "--topology", str(file), "--name", f"gw-{number}"]
            command += ["--http", f"{HOST}:{endpoint.address.port}"]
            core = cores[number % len(cores)]
            self.processes.append(
                stack.enter_context(child(command, core, subject.environment, DEVNULL, DEVNULL, DEVNULL))
            )

    def wait_until_linked(self) -> tuple[float, int]:
        """Return the seconds until all links are up, and the number of their ends. Raises Refused after PATIENCE_S."""
        left, ends = set(range(len(self.processes))), 0
        while left:
            for number in sorted(left):
                links = self._links(number)
                if links and all(link["up"] for link in links):
                    left.discard(number)
                    ends += len(links)
            waited = time.monotonic() - self.started_at
            if left and waited > PATIENCE_S:
                raise Refused(f"{len(left)} of {len(self.processes)} gateways lack a link after {waited:.0f} s")
            time.sleep(POLL_S if left else 0)
        return time.monotonic() - self.started_at, ends

    def _links(self, number: int) -> list[dict[str, bool]]:
        try:
            found: list[dict[str, bool]] = get_json(self._endpoints[number], "/links")["links"]
        except GatewayNoAnswer:  # it has not started yet
            return []
        return found

    def sent_bytes(self) -> int:
        """Return the bytes that all gateways have sent to peers."""
        return sum(get_json(endpoint, "/links")["sent_bytes"] for endpoint in self._endpoints)

    def cpu_s(self) -> float:
        """Return the processor time of all gateways."""
        return sum(CpuClock.read(process.pid).used_s for process in self.processes)

    def memory(self) -> float:
        """Return the memory of a gateway in MiB, the mean of all."""
        sizes = [memory_bytes(process.pid) for process in self.processes]
        return sum(size.get("pss", size["rss"]) for size in sizes) / len(sizes) / (1 << 20)


def measure(sites: int, each: int, idle_s: float, cores: list[int]) -> FederationFigures:
    """Start *sites* of *each* gateways, and watch them for *idle_s* seconds when they have met. Raises Refused."""
    with tempfile.TemporaryDirectory(prefix="edgebroker-federation-") as name, ExitStack() as stack:
        made = BenchFederation(sites, each, Path(name), cores, stack)
        up_s, ends = made.wait_until_linked()
        count, start_cpu_s = len(made.processes), made.cpu_s()
        time.sleep(min(SETTLE_S, idle_s))
        sent, cpu_s, begun = made.sent_bytes(), made.cpu_s(), time.monotonic()
        time.sleep(idle_s)
        idle_cpu_s, elapsed = made.cpu_s() - cpu_s, time.monotonic() - begun
        idle_bytes = (made.sent_bytes() - sent) / max(ends, 1) / elapsed * 3_600
        return FederationFigures(
            count,
            ends,
            round(up_s, 2),
            round(start_cpu_s / count, 3),
            round(made.memory(), 1),
            round(idle_bytes),
            round(100 * idle_cpu_s / elapsed / count, 3),
        )


def table(figures: FederationFigures) -> Iterator[str]:
    """Yield the figures as lines for people."""
    yield f"{figures.gateways} gateways, {figures.link_ends} ends of links"
    yield f"all links up after     {figures.up_s:8.2f} s (target <= {UP_S_MAX:g} s for 36 gateways)"
    yield f"processor time of each {figures.start_cpu_s:8.3f} s until then, {figures.idle_cpu_percent:.3f} % idle"
    yield f"memory of each         {figures.memory_mib:8.1f} MiB"
    yield f"an idle end sends      {figures.idle_bytes_per_hour:8.0f} bytes an hour (target <= {IDLE_BYTES_MAX:,})"


@click.command(
    name="federation",
    short_help="Start many gateways at once, and watch them idle.",
    epilog=examples("edgebroker bench federation --sites 2 --gateways 2 --idle 30"),
)
@click.option("--sites", type=click.IntRange(1, 16), default=6, show_default=True)
@click.option("--gateways", type=click.IntRange(1, 16), default=6, show_default=True, help="Of each site.")
@click.option("--idle", "idle_s", type=click.FloatRange(1, 3_600), default=120.0, show_default=True, help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(sites: int, gateways: int, idle_s: float, as_json: bool) -> None:
    """Start a federation on this machine, each gateway a process with its journal, and wait until all links are up.

    Then count what the ends of idle links send. Exit code 0: measured; 1: a target is missed; 2: it cannot be done
    here.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it reads /proc")
    with stopped_by_sigterm():
        figures = measure(sites, gateways, idle_s, sorted(os.sched_getaffinity(0)))
    lines = table(figures)
    click.echo(json.dumps({**asdict(figures), "targets_met": figures.targets_met}) if as_json else "\n".join(lines))
    if not figures.targets_met:
        raise SystemExit(RUN_FAILED)


__all__ = ["command"]
