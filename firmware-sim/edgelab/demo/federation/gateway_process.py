"""A gateway of the demo's federation: a process that may be killed and started again at the same address.

The folder of the demo keeps the logs of all gateways and the output of their processes.
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
from edgelab.demo.child import DemoProcess, child
from edgelab.demo.play import listening

TOPOLOGY: Final = "topology.toml"
SETTINGS: Final = "gateway.toml"
JOURNAL: Final = "fleet.jsonl"
PROCESSES: Final = ("fleet", "gw-*")
OURS: Final = (
    *(TOPOLOGY, SETTINGS, JOURNAL),
    *(f"{process}.{kind}" for process in PROCESSES for kind in ("out", "log")),
    *(f"log/gw-*/*.{kind}" for kind in ("edl", "edl.part")),
)
"""Every file that we write, as patterns."""


def clear(folder: Path) -> None:
    """Make *folder* and take an earlier demo's files out of it, and nothing else. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in chain.from_iterable(map(folder.glob, OURS)):
        path.unlink(missing_ok=True)


LIVE_CLASSES: Final = ("live", "backlog", "bulk")
"""The classes of a link in which events travel."""


class GatewayProcess:
    """One gateway. `links` and `status` are its last answers; empty before the first."""

    def __init__(self, name: str, host: str, inside: Sequence[str], topology: Path, folder: Path, data: Path) -> None:
        """*host*, *inside*: see Network. *folder*: for its log and what it says; *data*: for its journal."""
        self.name = name
        self.host = host
        self.port = 0
        self.links: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.starts = 0
        self.memory_peak_bytes = 0
        self._inside = inside
        self._topology = topology
        self._folder = folder
        self._data = data / name
        self._http = 0
        self._child: DemoProcess | None = None
        self._stack = AsyncExitStack()
        self._events: dict[tuple[int, str], int] = {}
        self._heard: dict[int, int] = {}

    @property
    def door(self) -> str:
        """Where clients reach it."""
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """Its delivery log."""
        return self._folder / "log" / self.name

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._child is not None and self._child.returncode is None

    async def start(self) -> None:
        """Start it, at the ports that it had before. Raises ChildFailed."""
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
                *("--data", str(self._data), "--log-dir", str(self.log)),
                inside=self._inside,
            )
        )
        self.port = await listening(self._child)
        self._http = self._child.answer()["http"]["port"]

    async def kill(self) -> None:
        """End it as a power cut would: SIGKILL."""
        assert self._child is not None
        self._look_at_memory()
        self._child.kill()
        await self._child.wait()
        self.links, self.status = {}, {}

    async def end(self) -> int:
        """Ask it to end, and wait. The exit code."""
        assert self._child is not None
        self._look_at_memory()
        return await self._child.end()

    def kill_now(self) -> None:
        """End the process, if there is one, without waiting."""
        if self._child is not None:
            self._child.kill()

    def last_words(self) -> str:
        """How it ended and what it said last."""
        assert self._child is not None
        return self._child.last_words()

    async def close(self) -> None:
        """See that there is no process any more."""
        await self._stack.aclose()

    # -- looking at it ------------------------------------------------------------------------------------------

    async def poll_status(self) -> None:
        """Ask it how it is. One that does not answer keeps its last answers."""
        if not self.is_running:
            return
        self._look_at_memory()
        asked, start = GatewayEndpoint(HttpAddress(self.host, self._http)), self.starts
        try:
            links = await asyncio.to_thread(get_json, asked, "/links")
            status = await asyncio.to_thread(get_json, asked, "/status", limit=1)
        except (GatewayNoAnswer, GatewayAnswerInvalid):
            return
        if start == self.starts and self.is_running:
            self.links, self.status = links, status
            for row in links["links"]:
                sent = sum(row["queues"][name]["sent"] for name in LIVE_CLASSES)
                self._events[start, row["peer"]] = sent
            self._heard[start] = links["received_bytes"]

    @property
    def is_idle(self) -> bool:
        """Whether no event waited for a peer, or for its answer, at the last look."""
        rows = self.links.get("links", ())
        return bool(rows) and not any(
            row["queues"][name]["waiting"] + row["queues"][name]["unacknowledged"]
            for row in rows
            for name in LIVE_CLASSES
        )

    def events_to(self, peer: str) -> int:
        """Events sent to *peer* in all runs, as of the last look at each."""
        return sum(count for (_, name), count in self._events.items() if name == peer)

    @property
    def bytes_from_peers(self) -> int:
        """Bytes that it says it has received from peers, in all runs, as of the last look at each."""
        return sum(self._heard.values())

    def _look_at_memory(self) -> None:
        """The most that the process has had in memory at once; only Linux tells it."""
        if self._child is None:
            return
        try:
            status = Path(f"/proc/{self._child.pid}/status").read_text(encoding="ascii")
        except OSError:
            return
        for line in status.splitlines():
            name, _, rest = line.partition(":")
            if name == "VmHWM":
                self.memory_peak_bytes = max(self.memory_peak_bytes, int(rest.split()[0]) * 1024)
