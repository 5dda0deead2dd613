"""The same benchmark while clients come that both brokers refuse, which they write into their logs."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from . import packets
from .client import HOST
from .subjects import Subject

PER_S = 20
LEVEL = 9  # of a protocol that no broker speaks
PATIENCE_S = 1.0


def among_strangers(subject: Subject) -> Subject:
    """The same broker, whose warnings are written, and to which strangers come."""
    if subject.name != "mosquitto":
        return replace(subject, has_strangers=True)  # ours writes its log to standard error by itself

    def command(port: int, folder: Path) -> list[str]:
        plain = subject.command(port, folder)
        settings = Path(plain[-1])
        settings.write_text(settings.read_text().replace("log_dest none", "log_dest stderr"))
        return plain

    return replace(subject, command=command, has_strangers=True)


@contextlib.contextmanager
def strangers(port: int, core: int) -> Iterator[Callable[[], int]]:
    """PER_S of them a second, one at a time, in a thread; the value tells how many were turned away so far.

    They have the generator's *core*. The system would let them have the broker's, which is idle more often.
    """
    is_over = threading.Event()
    turned_away = 0

    def come() -> None:
        nonlocal turned_away
        os.sched_setaffinity(threading.get_native_id(), {core})
        while not is_over.wait(1 / PER_S):
            with contextlib.suppress(OSError), socket.socket() as line:
                line.settimeout(PATIENCE_S)
                line.connect((HOST, port))
                line.sendall(packets.packet(0x10, packets.text("MQTT") + bytes((LEVEL, 2, 0, 60)) + packets.text("x")))
                while line.recv(64):
                    pass
                turned_away += 1

    thread = threading.Thread(target=come)
    thread.start()
    try:
        yield lambda: turned_away
    finally:
        is_over.set()
        thread.join()
