"""Receivers of streams and the event loops that serve them, for tests with real sockets."""

from __future__ import annotations

import asyncio
import select
import socket

from edgebroker.runtime.loop.loop import Loop, LoopPoller
from edgebroker.runtime.loop.stream import SocketPoller, Transport

PATIENCE_S = 30.0


class RecordingReceiver:
    """A receiver of a stream that records its data and the calls it gets."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.data = b""
        self.is_over = asyncio.Event()
        self.bug: Exception | None = None
        self.echoes_to: socket.socket | None = None

    def connection_made(self, transport: Transport) -> None:
        self.said.append("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.bug is not None:
            raise self.bug
        self.data += data
        if self.echoes_to is not None:
            self.echoes_to.send(data)

    def pause_writing(self) -> None:
        self.said.append("pause")

    def resume_writing(self) -> None:
        self.said.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.said.append("lost")
        self.left = self.transport.get_write_buffer_size()
        self.is_over.set()


def poller_of(loop: asyncio.AbstractEventLoop) -> SocketPoller:
    return loop.poller if isinstance(loop, Loop) else LoopPoller(loop)


class CoalescingLoop(Loop):
    """A loop that coalesces input for 2 ms before each wait: no input is lost, and no timer is late for it."""

    def __init__(self) -> None:
        super().__init__()
        self.poller.coalescer.delay_us = 2_000


LOOPS = [asyncio.new_event_loop, *([Loop, CoalescingLoop] if hasattr(select, "epoll") else [])]
