"""Writes lines to a descriptor without waiting: a full pipe, a stopped terminal or a busy journald delays no client."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

HELD_BYTES_MAX: Final = 256 * 1024
"""Limit of unwritten bytes. Further lines are dropped and counted."""
DRAIN_S: Final = 1.0
DRAIN_STEP_S: Final = 0.02
PIPE_BUF: Final = 4_096
"""A pipe that `poll` reports as writable accepts so many bytes at once (POSIX; Linux has the same number)."""


class NonblockingWriter:
    """`write` takes lines, `flush` writes what the descriptor accepts. `lost` counts dropped lines.

    A pipe or a terminal is opened anew in non-blocking mode: to change the descriptor that we were given would change
    it for the shell that shares it, too. A socket (journald's) gets the flag with each call. Where neither is possible,
    at most `PIPE_BUF` bytes are written when `poll` reports room. A regular file accepts everything.
    """

    def __init__(self, descriptor: int = 2, on_loss: Callable[[bytes, OSError | None], None] | None = None) -> None:
        """*on_loss* is called with each dropped line and the system's error; None if the reader closed or is
        too slow.
        """
        self.lost = 0
        self._on_loss = on_loss
        self._lock = threading.RLock()  # segments of the delivery log are finished in another thread, which may log
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._descriptor = descriptor
        self._socket: socket.socket | None = None
        self._must_poll = False
        try:
            kind = os.fstat(descriptor).st_mode
        except OSError:  # closed: `2>&-`
            self._descriptor = os.open(os.devnull, os.O_WRONLY)
            return
        if stat.S_ISSOCK(kind):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        elif not stat.S_ISREG(kind):
            try:
                self._descriptor = os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            except OSError:
                self._must_poll = True

    @property
    def held_bytes(self) -> int:
        """Unwritten bytes."""
        return self._held_bytes

    def write(self, line: bytes) -> None:
        """Appends *line*, with its line feed."""
        with self._lock:
            if self._held_bytes + len(line) > HELD_BYTES_MAX:
                self._drop(line, None)
                return
            self._held.append(line)
            self._held_bytes += len(line)
            if len(self._held) == 1:
                self._flush()

    def flush(self) -> None:
        """Writes as much as the descriptor accepts now. If it has failed for good, all unwritten lines are dropped."""
        with self._lock:
            self._flush()

    async def drain(self, seconds: float = DRAIN_S) -> None:
        """Tries for some *seconds* to write what is left, at the end of the process."""
        for _ in range(int(seconds / DRAIN_STEP_S)):
            self.flush()
            if not self._held_bytes:
                return
            await asyncio.sleep(DRAIN_STEP_S)

    def _flush(self) -> None:
        while self._held:
            line = self._held[0]
            try:
                sent = self._send(line)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:  # the reader closed, or the disk is full: no reason to stop the gateway
                lost, self._held, self._held_bytes = self._held, deque(), 0
                for line in lost:
                    self._drop(line, None if isinstance(error, ConnectionError) else error)
                return
            if not sent:
                return
            self._held_bytes -= sent
            if sent == len(line):
                self._held.popleft()
            else:
                self._held[0] = line[sent:]

    def _drop(self, line: bytes, error: OSError | None) -> None:
        self.lost += 1
        if self._on_loss is not None:
            self._on_loss(line, error)

    def _send(self, line: bytes) -> int:
        if self._socket is not None:
            return self._socket.send(line, socket.MSG_DONTWAIT)
        if self._must_poll:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            if not poll.poll(0):
                return 0
            line = line[:PIPE_BUF]
        return os.write(self._descriptor, line)


def is_journal(descriptor: int = 2) -> bool:
    """Whether systemd connected *descriptor* to its journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        state = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{state.st_dev}:{state.st_ino}"
