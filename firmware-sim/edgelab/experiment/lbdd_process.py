"""One node of a dissemination group as a process with real sockets, for `edgebroker experiment lbdd --netns`.

It reads its configuration as JSON from its only argument, listens, and writes `ready`. The source sends when a line
comes on standard input, and writes the seconds until the last report has come. All processes end when standard input
does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Final

from edgebroker.dissemination.dissemination_node import DisseminationNode
from edgebroker.dissemination.group_view import GroupView, group_view, view_member
from edgebroker.dissemination.messages import GroupMessage, SendToMember, encode_message, read_message
from edgebroker.dissemination.stream import StreamEffect, StreamEnd
from edgebroker.dissemination.stream_source import content_of, start_of
from edgebroker.instants import MILLISECOND, SECOND, Instant

PORT: Final = 7_474
LENGTH_BYTES: Final = 4
TICK: Final = 0.1
"""Seconds."""


def now() -> Instant:
    """Return the time of a clock that never goes back."""
    return monotonic_ns() // MILLISECOND


class DisseminationProcess:
    """A node, and a connection to each node that it sends to. A frame is its length and a message."""

    def __init__(self, node: str, source: str, view: GroupView) -> None:
        self.node = node
        self.ended = asyncio.Event()
        self._view = view
        self._core = DisseminationNode(node, source, lambda start: True)
        self._core.take_view(view, now())
        self._queues: dict[str, asyncio.Queue[bytes]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> None:
        """Listen, and look at the times of streams."""
        await asyncio.start_server(self._receive, self.node, PORT)
        self._tasks.append(asyncio.create_task(self._tick()))

    def publish(self, data: bytes) -> None:
        """Send a stream to all members."""
        content = content_of(data)
        self._perform(self._core.publish(start_of(1, self.node, self._view, content), content, now()))

    async def _receive(self, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the transfer has ended
            sender = (await self._read(reader)).decode()
            while True:
                message = read_message(await self._read(reader))
                self._perform(self._core.receive(sender, message, now()))

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if now() >= self._core.due:
                self._perform(self._core.tick(now()))

    def _perform(self, effects: Iterable[StreamEffect]) -> None:
        for effect in effects:
            match effect:
                case SendToMember(node, message):
                    self._send(node, message)
                case StreamEnd(_, True):
                    self.ended.set()

    def _send(self, node: str, message: GroupMessage) -> None:
        if node not in self._queues:
            self._queues[node] = asyncio.Queue()
            self._tasks.append(asyncio.create_task(self._write(node)))
        self._queues[node].put_nowait(encode_message(message))

    async def _write(self, node: str) -> None:
        _, writer = await asyncio.open_connection(node, PORT)
        frame = self.node.encode()
        while True:
            writer.write(len(frame).to_bytes(LENGTH_BYTES))
            writer.write(frame)
            await writer.drain()
            frame = await self._queues[node].get()


async def run(options: dict[str, Any]) -> None:
    """Run one node until standard input ends."""
    members = [view_member(node, capacity=options["capacity"]) for node in options["members"]]
    view = group_view("g", 1, members, options["fan_out"])
    process = DisseminationProcess(options["node"], options["source"], view)
    await process.serve()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        data = os.urandom(options["size"])
        began = now()
        process.publish(data)
        await process.ended.wait()
        print((now() - began) / SECOND, flush=True)


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
