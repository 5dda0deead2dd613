"""One attack on one gateway: well-behaved clients without it and with it, in turn; what the gateway held."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any, Final

from ..client import HOST
from ..processes import CpuClock, child, kib_of
from ..subjects import Subject, version_of
from ..trial import BrokerFailed, Cores, free_port, running
from .attacker import ATTACKS

MIB: Final = 1024 * 1024
ANSWER_S: Final = 30  # the slowest preparation takes 5 s; after this a child counts as hung
COUNTER: Final = re.compile(r"^(edgebroker_\S*(?:refus|drop|reject|shed)\S*_total(?:\{[^}]*\})?) ([0-9.e+]+)$", re.M)


@dataclass(slots=True)
class Plan:
    """How long and how often."""

    cores: Cores
    rounds: int = 3
    seconds: float = 2.0
    scale: float = 1.0
    settings: str = ""
    """A settings file for the gateway; none: its defaults."""


@dataclass(slots=True)
class Outcome:
    """What one attack did to whom."""

    name: str
    about: str
    unit: str
    calm: list[dict[str, float]] = field(default_factory=list)
    attacked: list[dict[str, float]] = field(default_factory=list)
    done: int = 0
    rebuffs: int = 0
    rss_mib: dict[str, float] = field(default_factory=dict)
    """`before`, at its `peak`, and `after` the last blow."""
    counted: dict[str, int] = field(default_factory=dict)
    """Counters of refusals and drops that the attack moved."""
    failure: str = ""

    def loss(self) -> float | None:
        """The share of the fast pair's throughput that is gone, the median of the rounds; None if all failed.

        A gateway that has not recovered when the next round begins, and carries nothing then either, has lost all.
        """
        rates = [(calm["fast_per_s"], hit["fast_per_s"]) for calm, hit in zip(self.calm, self.attacked, strict=False)]
        return median(1 - hit / calm if calm else 1.0 for calm, hit in rates) if rates else None

    def middle(self, key: str, attacked: bool) -> float:
        """The median over the rounds."""
        found = [sample[key] for sample in (self.attacked if attacked else self.calm)]
        return median(found) if found else 0.0

    @property
    def lost(self) -> float:
        """Messages of the well-behaved that never came."""
        return sum(sample["lost"] for sample in (*self.calm, *self.attacked))


def gateway(http_port: int, settings: str) -> Subject:
    """The broker as it is installed, with its counters at *http_port*."""
    python = [sys.executable]
    options = ["--config", settings] if settings else []

    def command(port: int, _: Path) -> list[str]:
        place = ["--host", HOST, "--port", str(port), "--http", str(http_port)]
        return [*python, "-m", "edgebroker", "run", *options, *place]

    return Subject("edgebroker", version_of(python, {}), command)


def run(name: str, plan: Plan) -> Outcome:
    """The attack called *name*."""
    attack = ATTACKS[name]
    outcome = Outcome(name, attack.about, attack.unit)
    http_port = free_port()
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(running(gateway(http_port, plan.settings), plan.cores))
            calm = stack.enter_context(helper(plan, "wellbehaved", str(broker.port)))
            hostile = stack.enter_context(helper(plan, "attacker", str(broker.port), name, str(plan.scale)))
            calm.answer()
            hostile.ask("prepare")
            calm.ask(str(plan.seconds / 4))  # warm
            outcome.rss_mib["before"] = memory(broker.pid, "VmRSS:")
            before = counters(http_port)
            for _ in range(plan.rounds):
                play(outcome, calm, hostile, plan.seconds, broker.pid)
            outcome.rss_mib["peak"] = memory(broker.pid, "VmHWM:")
            outcome.rss_mib["after"] = memory(broker.pid, "VmRSS:")
            after = counters(http_port)
            moved = {key: after[key] - before.get(key, 0) for key in after}
            outcome.counted = {key: count for key, count in moved.items() if count}
        except (BrokerFailed, HelperFailed) as failure:
            outcome.failure = str(failure)
    return outcome


def play(outcome: Outcome, calm: Helper, hostile: Helper, seconds: float, pid: int) -> None:
    """One round: without, then with."""
    outcome.calm.append(measured(calm, seconds, pid))
    hostile.ask("go")
    try:
        outcome.attacked.append(measured(calm, seconds, pid))
    finally:
        told = hostile.ask("halt")
        outcome.done += int(told["done"])
        outcome.rebuffs = int(told["rebuffs"])


def measured(calm: Helper, seconds: float, pid: int) -> dict[str, float]:
    """A sample, and what the gateway used of its core (`busy`) or wanted and did not get (`kept_waiting`)."""
    clock, began = CpuClock.read(pid), time.perf_counter()
    sample: dict[str, float] = calm.ask(str(seconds))
    spent, elapsed = CpuClock.read(pid) - clock, time.perf_counter() - began
    return {**sample, "busy": spent.used_s / elapsed, "kept_waiting": spent.waited_s / elapsed}


class HelperFailed(Exception):
    """A child ended, hung, or had its clients thrown out."""


class Helper:
    """A child that answers every line with a line."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._name, self._process, self._errors = name, process, errors
        self._in, self._out = process.stdin, process.stdout

    def ask(self, line: str) -> dict[str, Any]:
        """Say *line*; the answer."""
        try:
            self._in.write(line.encode() + b"\n")
            self._in.flush()
        except BrokenPipeError:
            raise HelperFailed(f"the {self._name} ended: {self._last_words()}") from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next answer. Raises HelperFailed."""
        line = self._out.readline()
        if not line:
            raise HelperFailed(f"the {self._name} ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise HelperFailed(f"the {self._name}: {answer['failure']}")
        return answer

    def _last_words(self) -> str:
        self._process.wait(ANSWER_S)
        self._errors.seek(0)
        return (self._errors.read().decode(errors="replace").strip().splitlines() or ["without a word"])[-1]


@contextlib.contextmanager
def helper(plan: Plan, module: str, *arguments: str) -> Iterator[Helper]:
    """A child on the generator's core."""
    command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as errors,
        child(command, plan.cores.generator, {}, pipe, pipe, errors) as process,
    ):
        yield Helper(module, process, errors)


def memory(pid: int, label: str) -> float:
    """What the kernel says of the gateway's memory, in MiB."""
    return kib_of(Path(f"/proc/{pid}/status"), label) * 1024 / MIB


def counters(port: int) -> dict[str, int]:
    """The gateway's counters of what it refused and dropped. Raises HelperFailed."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=ANSWER_S) as page:
            text = page.read().decode()
    except (OSError, urllib.error.URLError) as error:
        raise HelperFailed(f"the gateway does not show its counters: {error}") from None
    return {name: int(float(count)) for name, count in COUNTER.findall(text)}
