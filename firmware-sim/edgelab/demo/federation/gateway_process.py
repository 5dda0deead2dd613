"""A gateway of the demo's federation: a process that may be killed and started again at the same address.

The folder of the demo contains the logs of all gateways and the output of their processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final

from edgebroker.cli.http_client import GatewayAnswerInvalid, GatewayEndpoint, GatewayNoAnswer, get_json
from edgebroker.cli.parameters import HttpAddress
from edgebroker.names import Address
from edgelab.demo.child import DemoProcess, child
from edgelab.demo.play import listening

TOPOLOGY: Final = "topology.toml"
SETTINGS: Final = "gateway.toml"
TOKENS: Final = "tokens"
"""In the folder of the journals: what the demo shows to HTTP interfaces, which take no orders from others."""
JOURNAL: Final = "fleet.jsonl"
PROCESSES: Final = ("fleet", "gw-*")
OURS: Final = (
    *(TOPOLOGY, SETTINGS, JOURNAL),
    *(f"{process}.{kind}" for process in PROCESSES for kind in ("out", "log")),
    *(f"log/gw-*/*.{kind}" for kind in ("edl", "edl.part")),
)
"""The files that the demo writes, as patterns."""


def clear(folder: Path) -> None:
    """Create *folder* and delete an earlier demo's files in it, and nothing else. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in chain.from_iterable(map(folder.glob, OURS)):
        path.unlink(missing_ok=True)


LIVE_CLASSES: Final = ("live", "backlog", "bulk")
"""The traffic classes of a link that carry events."""


class GatewayProcess:
    """One gateway. `links` and `status` are its last responses; empty before the first."""

    def __init__(self, name: str, address: Address, inside: Sequence[str], topology: Path, folder: Path, data: Path):
        """*address*: where clients connect; for its host and *inside* see FederationNetwork. *folder*: for its log and
        output; *data*: for its journal, and has TOKENS.
        """
        self.name = name
        self.host, self.port = address
        self.links: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.starts = 0
        self.memory_peak_bytes = 0
        self._inside = inside
        self._topology = topology
        self._folder = folder
        self._data = data / name
        self._token = (data / TOKENS).read_text(encoding="ascii")
        self._http = 0
        self._child: DemoProcess | None = None
        self._stack = AsyncExitStack()
        self._events: dict[tuple[int, str], int] = {}
        self._received_bytes: dict[int, int] = {}

    @property
    def client_address(self) -> str:
        """Return the address for clients."""
        return f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> GatewayEndpoint:
        """Return its HTTP interface; it runs."""
        return GatewayEndpoint(HttpAddress(self.host, self._http), self._token)

    @property
    def log(self) -> Path:
        """Return the folder of its delivery log."""
        return self._folder / "log" / self.name

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._child is not None and self._child.returncode is None

    async def start(self) -> None:
        """Start it, at the ports that it had before. Raises DemoProcessFailed."""
        self.starts += 1
        self._child = await self._stack.enter_async_context(
            child(
                f"{self.name}-{self.starts}",
                self._folder,
                *(
                    "edgebroker",
                    "run",
                    "--json",
                    "--config",
                    str(self._folder / SETTINGS),
                    "--host",
                    self.host,
                    "--port",
                    str(self.port),
                ),
                *("--http", f"{self.host}:{self._http}", "--topology", str(self._topology), "--name", self.name),
                "--insecure-peers",  # in network namespaces they have addresses of their own
                *("--data", str(self._data), "--log-dir", str(self.log)),
                inside=self._inside,
            )
        )
        self.port = await listening(self._child)
        self._http = self._child.answer()["http"]["port"]

    async def kill(self) -> None:
        """Send SIGKILL, which has the effect of a power cut."""
        assert self._child is not None
        self._read_peak_memory()
        self._child.kill()
        await self._child.wait()
        self.links, self.status = {}, {}

    async def end(self) -> int:
        """Send SIGTERM and wait. Returns the exit code."""
        assert self._child is not None
        self._read_peak_memory()
        return await self._child.end()

    def kill_now(self) -> None:
        """Send SIGKILL to the process, if there is one, without waiting."""
        if self._child is not None:
            self._child.kill()

    def last_words(self) -> str:
        """Return its exit code and its last message."""
        assert self._child is not None
        return self._child.last_words()

    async def close(self) -> None:
        """End the process, if it still runs."""
        await self._stack.aclose()

    # -- state --------------------------------------------------------------------------------------------------

    async def poll_status(self) -> None:
        """Request its links and its status. Without a response the last ones remain."""
        if not self.is_running:
            return
        self._read_peak_memory()
        endpoint, start = self.endpoint, self.starts
        try:
            links = await asyncio.to_thread(get_json, endpoint, "/links")
            status = await asyncio.to_thread(get_json, endpoint, "/status", limit=1)
        except (GatewayNoAnswer, GatewayAnswerInvalid):
            return
        if start == self.starts and self.is_running:
            self.links, self.status = links, status
            for row in links["links"]:
                sent = sum(row["queues"][name]["sent"] for name in LIVE_CLASSES)
                self._events[start, row["peer"]] = sent
            self._received_bytes[start] = links["received_bytes"]

    @property
    def is_idle(self) -> bool:
        """Return whether no event waited for a peer, or for its acknowledgement, at the last poll."""
        rows = self.links.get("links", ())
        return bool(rows) and not any(
            row["queues"][name]["waiting"] + row["queues"][name]["unacknowledged"]
            for row in rows
            for name in LIVE_CLASSES
        )

    def events_to(self, peer: str) -> int:
        """Return the events sent to *peer* in all runs, as of the last poll of each."""
        return sum(count for (_, name), count in self._events.items() if name == peer)

    @property
    def bytes_from_peers(self) -> int:
        """Return the bytes that it has received from peers in all runs, as of the last poll of each."""
        return sum(self._received_bytes.values())

    def _read_peak_memory(self) -> None:
        """Read the peak memory of the process; only Linux provides it."""
        if self._child is None:
            return
        try:
            status = Path(f"/proc/{self._child.pid}/status").read_text(encoding="ascii")
        except OSError:
            return
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name == "VmHWM":
                self.memory_peak_bytes = max(self.memory_peak_bytes, int(value.split()[0]) * 1024)
