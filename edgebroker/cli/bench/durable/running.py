"""A broker that keeps its data in a folder that stays, so that it can be killed and started again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..client import DurableClient
from ..processes import child
from ..subjects import Subject
from ..trial import BrokerFailed, Cores, Running, free_port, wait_until_accepting
from .load import DURABLE


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and for how long."""

    cores: Cores
    folder: Path
    """Where the brokers keep their data: a disk, not memory."""
    seconds: float = 5.0
    publishers: int = 10
    window: int = 20
    payload_bytes: int = 64


@contextmanager
def running_in(subject: Subject, folder: Path, cores: Cores) -> Iterator[Running]:
    """A broker that keeps its data in *folder*, which stays. It may be killed. Raises BrokerFailed."""
    port = free_port()
    began = time.perf_counter()
    with (
        (folder / "said.txt").open("wb") as output,
        child(
            subject.command(port, folder), cores.broker, subject.environment, subprocess.DEVNULL, output, output
        ) as process,
    ):
        try:
            wait_until_accepting(process, port)
        except BrokerFailed as failure:
            words = (folder / "said.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise BrokerFailed(": ".join((f"{subject.name} {failure}", *words))) from None
        yield Running(port, process.pid, (time.perf_counter() - began) * 1e3, process)


def is_kept(port: int) -> bool:
    """Whether the durable session lived: its client is told "session present" (MQTT 3.1.1 section 3.2.2.2)."""
    client = DurableClient(port, DURABLE)
    client.close()
    return client.was_present
