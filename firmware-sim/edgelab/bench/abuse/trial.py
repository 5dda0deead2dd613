"""One attack on one gateway: measured without the attack, with it, and without it again.

The helpers are children that answer every line with a line.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import IO, Any, Final

from edgelab.bench.abuse.attack import Attack
from edgelab.bench.abuse.attacker import ATTACKS
from edgelab.bench.abuse.wellbehaved import RATE_MAX
from edgelab.bench.client import HOST
from edgelab.bench.subjects import Subject, edgebroker
from edgelab.bench.trial import BrokerFailed, Cores, RunningBroker, free_port, running
from edgelab.processes import CpuClock, child, kib_of, python

ANSWER_S: Final = 30  # the slowest preparation takes 5 s; after this a child counts as hung


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
def helper(core: int, module: str, *arguments: str) -> Iterator[Helper]:
    """A child that runs *module*, of this package, on *core*."""
    command = [*python(), "-m", f"{__package__}.{module}", *arguments]
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors, child(command, core, {}, pipe, pipe, errors) as process:
        yield Helper(module, process, errors)


MIB: Final = 1024 * 1024
COUNTER: Final = re.compile(
    r"^(edgebroker_\S*(?:refus|dropped|turned_away|displaced|cut_short|slowed|relieved)\S*_total(?:\{[^}]*\})?)"
    r" ([0-9.e+]+)$",
    re.MULTILINE,
)
SETTLE_S: Final = 0.3
"""After an attack, before the well-behaved are measured without it: what it left is cleared away."""
PROBE_PER_S, PROBE_S = 2_000, 0.5
"""A message costs less the more there are of them, so the rate is approached in steps."""
CARRIED_MIN: Final = 0.99
"""At a rate of which less comes in time without any attack the machine has other work: half of what came is taken."""
GENERATOR_SHARE_MAX: Final = 0.5
"""Of its core; a generator that needs more would measure itself."""


@dataclass(slots=True)
class AbusePlan:
    """How long and how often."""

    cores: Cores
    rounds: int = 2
    seconds: float = 1.2
    scale: float = 1.0
    settings: str = ""
    """A settings file for the gateway; none: its defaults."""
    share: float = 0.5
    """Of the gateway's core, for the well-behaved at a fixed rate."""
    rate: float = 0.0
    """What that is, in messages a second."""
    probes: int = 8
    """How many steps are made to find it."""


@dataclass(slots=True)
class AbuseOutcome:
    """What one attack did to whom."""

    name: str
    about: str
    unit: str
    fixed_calm: list[dict[str, float]] = field(default_factory=list)
    """Before the first attack and after each: one more than `fixed_hit`."""
    fixed_hit: list[dict[str, float]] = field(default_factory=list)
    full_calm: list[dict[str, float]] = field(default_factory=list)
    full_hit: list[dict[str, float]] = field(default_factory=list)
    done: int = 0
    rebuffs: int = 0
    rss_mib: dict[str, float] = field(default_factory=dict)
    """`before`, at its `peak`, and `after` the last blow."""
    newcomer: dict[str, float] = field(default_factory=dict)
    """How often a client from another address tried to connect meanwhile, how often it was `refused`, and how long the
    slowest CONNECT took (`slowest_s`). Empty where there was none.
    """
    counted: dict[str, int] = field(default_factory=dict)
    """Counters of refusals and drops that the attack moved."""
    failure: str = ""

    def loss(self) -> float | None:
        """The share of the fixed rate that did not come in time, beyond what did not without the attack."""
        return lost_share(self.fixed_calm, self.fixed_hit, "share")

    def full_loss(self) -> float | None:
        """The share of what the gateway carries when it has nothing else to do."""
        return lost_share(self.full_calm, self.full_hit, "per_s")

    @property
    def drift(self) -> float:
        """By how much the well-behaved alone fell or rose, at most, from one measurement to the next (full load)."""
        rates = [sample["per_s"] for sample in self.full_calm]
        return max([abs(1 - b / a) for a, b in pairwise(rates) if a], default=0.0)

    @property
    def lost(self) -> float:
        """Messages of the well-behaved that never came."""
        return sum(sample["lost"] for sample in (*self.fixed_calm, *self.fixed_hit, *self.full_calm, *self.full_hit))


def lost_share(calm: list[dict[str, float]], hit: list[dict[str, float]], key: str) -> float | None:
    """How much smaller *hit* is than the mean of what was there before and after, the median of the rounds.

    A gateway that carries nothing before and after either has not recovered, and has lost all. None without rounds.
    """
    means = [(before[key] + after[key]) / 2 for before, after in pairwise(calm)]
    rounds = list(zip(means, hit, strict=False))
    return median(1 - sample[key] / mean if mean else 1.0 for mean, sample in rounds) if rounds else None


def middle(samples: list[dict[str, float]], key: str) -> float:
    """The median."""
    return median([sample[key] for sample in samples]) if samples else 0.0


def gateway(http_port: int, settings: str) -> Subject:
    """The broker as it is installed, with its counters at *http_port*."""
    installed = edgebroker()
    options = ["--http", str(http_port), *(["--config", settings] if settings else [])]
    return replace(installed, command=lambda port, directory: [*installed.command(port, directory), *options])


@contextlib.contextmanager
def visited(plan: AbusePlan, http_port: int) -> Iterator[tuple[RunningBroker, Helper]]:
    """A gateway and its well-behaved clients."""
    with (
        running(gateway(http_port, plan.settings), plan.cores) as broker,
        helper(plan.cores.generator, "wellbehaved", str(broker.port)) as calm,
    ):
        calm.answer()
        yield broker, calm


def calibrated(plan: AbusePlan) -> dict[str, float]:
    """Find the rate at which the well-behaved alone take the share of the gateway's core that *plan* wants.

    `rate`, and the shares of their cores that the gateway (`busy`) and the generator used at it. Raises BrokerFailed,
    HelperFailed.
    """
    with visited(plan, free_port()) as (broker, calm):
        rate = float(PROBE_PER_S)
        for _ in range(plan.probes):
            sample = measured(calm, f"fixed {rate} {PROBE_S}", broker.pid)
            carried = max(sample["carried"], 1)
            wanted = carried * min(plan.share / sample["used_s"], GENERATOR_SHARE_MAX / sample["generator_s"])
            rate = min(wanted, 2 * rate, RATE_MAX) if sample["share"] >= CARRIED_MIN else carried / PROBE_S / 2
        sample = measured(calm, f"fixed {rate} {PROBE_S}", broker.pid)
    return {"rate": rate, **{key: sample[key] for key in ("busy", "generator_busy", "kept_waiting")}}


def run(name: str, plan: AbusePlan) -> AbuseOutcome:
    """The attack called *name*."""
    attack = ATTACKS[name]
    outcome = AbuseOutcome(name, attack.about, attack.unit)
    http_port = free_port()
    plan = replace(plan, rate=attack.rate or plan.rate)
    fixed, full = f"fixed {plan.rate} {plan.seconds}", f"full {plan.seconds}"
    try:
        with (
            tempfile.TemporaryDirectory(prefix="edgebroker-abuse-") as folder,
            visited(configured(plan, attack, Path(folder)), http_port) as (broker, calm),
            helper(plan.cores.generator, "attacker", str(broker.port), name, str(plan.scale), folder) as hostile,
            contextlib.ExitStack() as stack,
        ):
            newcomer = None
            if attack.has_newcomer:
                words = ["users"] if Path(folder, "users").exists() else []
                newcomer = stack.enter_context(helper(plan.cores.generator, "newcomer", str(broker.port), *words))
            hostile.ask("prepare")
            calm.ask(f"fixed {plan.rate} {plan.seconds / 4}")  # warm
            outcome.rss_mib["before"] = memory(broker.pid, "VmRSS:")
            before = counters(http_port)
            for load, quiet, hit in (
                (fixed, outcome.fixed_calm, outcome.fixed_hit),
                (full, outcome.full_calm, outcome.full_hit),
            ):
                quiet.append(measured(calm, load, broker.pid))
                for _ in range(plan.rounds):
                    hit.append(attacked(outcome, hostile, newcomer, calm, load, broker.pid))
                    time.sleep(SETTLE_S)
                    quiet.append(measured(calm, load, broker.pid))
            outcome.rss_mib["peak"] = memory(broker.pid, "VmHWM:")
            outcome.rss_mib["after"] = memory(broker.pid, "VmRSS:")
            after = counters(http_port)
            moved = {key: after[key] - before.get(key, 0) for key in after}
            outcome.counted = {key: count for key, count in moved.items() if count}
    except (BrokerFailed, HelperFailed) as failure:
        outcome.failure = str(failure)
    return outcome


def configured(plan: AbusePlan, attack: type[Attack], folder: Path) -> AbusePlan:
    """*plan* with the settings of *attack*, unless the user names others."""
    text = "" if plan.settings else attack.configure(folder)
    if not text:
        return plan
    path = folder / "gateway.toml"
    path.write_text(text)
    return replace(plan, settings=str(path))


def attacked(
    outcome: AbuseOutcome, hostile: Helper, newcomer: Helper | None, calm: Helper, load: str, pid: int
) -> dict[str, float]:
    """A sample under attack."""
    hostile.ask("go")
    if newcomer is not None:
        newcomer.ask("go")
    try:
        return measured(calm, load, pid)
    finally:
        if newcomer is not None:
            found = newcomer.ask("halt")
            for key in ("tries", "refused"):
                outcome.newcomer[key] = outcome.newcomer.get(key, 0) + found[key]
            outcome.newcomer["slowest_s"] = max(outcome.newcomer.get("slowest_s", 0.0), found["slowest_s"])
        told = hostile.ask("halt")
        outcome.done += int(told["done"])
        outcome.rebuffs = int(told["rebuffs"])


def measured(calm: Helper, load: str, pid: int) -> dict[str, float]:
    """A sample, and what the gateway used of its core (`busy`) or wanted and did not get (`kept_waiting`)."""
    clock, began = CpuClock.read(pid), time.perf_counter()
    sample: dict[str, float] = calm.ask(load)
    spent, elapsed = CpuClock.read(pid) - clock, time.perf_counter() - began
    return {
        **sample,
        "used_s": spent.used_s,
        "busy": spent.used_s / elapsed,
        "kept_waiting": spent.waited_s / elapsed,
    }


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
