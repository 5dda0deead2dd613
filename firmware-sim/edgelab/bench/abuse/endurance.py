"""One attack of full size, as long as asked, on a gateway with an operator's settings; then kill -9 and a restart.

    edgebroker bench abuse --endure 15 --config deploy/systemd/gateway.toml

Meanwhile ten pairs of well-behaved clients from another address than the attacker's exchange 100 messages a second, and
a newcomer from there connects again and again. The gateway must stay below the memory that its unit allows it, count
what it holds, and serve after the restart.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from edgebridge.frontend.options import QUOTA
from edgebroker.cli.init.template import memory_max_mib
from edgelab.bench.abuse.attack import Attack
from edgelab.bench.abuse.attacker import ATTACKS
from edgelab.bench.abuse.memory_attacks import MEMORY_ATTACKS
from edgelab.bench.abuse.report import NEWCOMER_S_MAX
from edgelab.bench.abuse.share_attacks import NEWCOMER_ADDRESS, SHARE_ATTACKS
from edgelab.bench.abuse.trial import ANSWER_S, MIB, HelperFailed, helper, memory
from edgelab.bench.client import HOST
from edgelab.bench.subjects import edgebroker
from edgelab.bench.trial import BrokerFailed, Cores, free_port, wait_until_accepting
from edgelab.processes import child

_ATTACKS: Final[Sequence[type[Attack]]] = (*MEMORY_ATTACKS, *SHARE_ATTACKS)
ENDURED: Final = tuple(attack.name for attack in _ATTACKS)
RATE: Final = 100.0
"""Messages a second of the well-behaved: a second user's devices."""
SHARE_MIN: Final = 0.99
P99_MS_MAX: Final = 50.0
RESTART_S_MAX, RESTART_PATIENCE_S = 10.0, 120.0
"""A start with little to read takes 0.5 to 1 s, and one with a million queued messages 3 s."""
COUNTED_ERROR_MAX: Final = 0.3
"""What the gateway says that clients hold may differ by so much from what its memory has grown by..."""
OWN_MIB: Final = 8.0
"""...and by so much: the buffers of the journal and of the delivery log, and modules that are loaded when needed."""
NOT_OF_CLIENTS: Final = frozenset({"passwords", "theft"})
"""Attacks with passwords, for which scrypt takes 16 MiB in each of two threads: clients do not hold that."""
GATEWAY_SECTIONS: Final = ("access", "listener")
"""What an attack may say in the settings; its bounds are those of the operator."""


@dataclass(slots=True)
class EnduranceOutcome:
    """What one attack did to a gateway with an operator's settings. Memory in MiB."""

    name: str
    cap_mib: int
    done: int = 0
    unit: str = ""
    before_mib: float = 0.0
    under_attack_mib: float = 0.0
    peak_mib: float = 0.0
    """The most before and after the restart."""
    counted_mib: float = 0.0
    """What the gateway said that all clients hold, when the attack was over and they were still there."""
    newcomer: dict[str, float] = field(default_factory=dict)
    """`tries`, `refused`, `slowest_s`."""
    share: float = 0.0
    """Of the messages of the well-behaved, those that came in time."""
    p99_ms: float = 0.0
    restart_s: float = 0.0
    """From kill -9 until a client is let in."""
    failure: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether the gateway counts about what its memory has grown by."""
        grown = self.under_attack_mib - self.before_mib
        error = abs(grown - self.counted_mib)
        return error <= COUNTED_ERROR_MAX * grown + OWN_MIB or self.name in NOT_OF_CLIENTS

    def unmet(self) -> list[str]:
        """What was not as it should be; empty: nothing."""
        if self.failure:
            return [self.failure]
        conditions = {
            "memory": self.peak_mib <= self.cap_mib,
            "counted": self.is_counted,
            "newcomer": not self.newcomer["refused"] and self.newcomer["slowest_s"] <= NEWCOMER_S_MAX,
            "share": self.share >= SHARE_MIN,
            "p99": self.p99_ms <= P99_MS_MAX,
            "restart": self.restart_s <= RESTART_S_MAX,
        }
        return [name for name, is_met in conditions.items() if not is_met]


def endure(name: str, config: Path, seconds: float, cores: Cores, scale: float = 1.0) -> EnduranceOutcome:
    """The attack called *name* on a gateway with the settings in *config*, whose folders are temporary ones here."""
    attack, http_port, port = ATTACKS[name], free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="edgebroker-abuse-") as folder, tempfile.TemporaryFile() as output:
        settings = tomllib.loads(config.read_text())
        memory_bytes_max = settings.get("quota", {}).get("memory_bytes_max", QUOTA.memory_bytes_max)
        outcome = EnduranceOutcome(name, memory_max_mib(memory_bytes_max), unit=attack.unit)
        path = Path(folder, "gateway.toml")
        path.write_text(toml_text(merged(settings, tomllib.loads(attack.configure(Path(folder))), folder, http_port)))
        options = ["--config", str(path), "--http", f"{HOST}:{http_port}"]
        command = [*edgebroker().command(port, Path(folder)), *options]
        try:
            with _gateway(command, port, cores, output) as gateway:
                _attack(outcome, gateway.pid, (port, http_port), seconds, scale, cores, folder)
                gateway.kill()
                gateway.wait()
            killed_at = time.monotonic()
            with _gateway(command, port, cores, output) as gateway:
                outcome.restart_s = time.monotonic() - killed_at
                outcome.peak_mib = max(outcome.peak_mib, memory(gateway.pid, "VmHWM:"))
        except (BrokerFailed, HelperFailed, OSError, StopIteration) as failure:
            outcome.failure = str(failure) or type(failure).__name__
            output.seek(0)
            if words := output.read().decode(errors="replace").strip().splitlines()[-1:]:
                outcome.failure += f": {words[0]}"
    return outcome


def merged(settings: dict[str, Any], attack: dict[str, Any], folder: str, http_port: int) -> dict[str, Any]:
    """*settings* with folders below *folder*, and with the users and listeners without which *attack* has no target."""
    found: dict[str, Any] = settings | {name: attack[name] for name in GATEWAY_SECTIONS if name in attack}
    for section in ("data", "log"):
        if "dir" in found.get(section, {}):
            found[section] = {**found[section], "dir": f"{folder}/{section}"}
    return {**found, "http": {**found.get("http", {}), "port": http_port}}


def toml_text(settings: Mapping[str, Any]) -> str:
    """Settings as TOML: sections of plain values, or lists of such sections."""
    lines = []
    for name, section in settings.items():
        for table in section if isinstance(section, list) else [section]:
            lines.append(f"[[{name}]]" if isinstance(section, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join([*lines, ""])


@contextlib.contextmanager
def _gateway(command: Sequence[str], port: int, cores: Cores, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with child(command, cores.broker, {}, subprocess.DEVNULL, output, output) as process:
        wait_until_accepting(process, port, patience_s=RESTART_PATIENCE_S)
        yield process


def _attack(
    outcome: EnduranceOutcome,
    pid: int,
    ports: tuple[int, int],
    seconds: float,
    scale: float,
    cores: Cores,
    folder: str,
) -> None:
    port, http_port = ports
    words = ["users"] if Path(folder, "users").exists() else []
    with (
        helper(cores.generator, "wellbehaved", str(port), NEWCOMER_ADDRESS) as calm,
        helper(cores.generator, "attacker", str(port), outcome.name, str(scale), folder) as hostile,
        helper(cores.generator, "newcomer", str(port), *words) as newcomer,
    ):
        calm.answer()
        calm.ask(f"fixed {RATE} 0.5")  # warm
        outcome.before_mib = memory(pid, "VmRSS:")
        hostile.ask("prepare")
        hostile.ask("go")
        newcomer.ask("go")
        sample = calm.ask(f"fixed {RATE} {seconds}")
        outcome.share, outcome.p99_ms = sample["share"], sample["p99_ms"]
        outcome.newcomer = newcomer.ask("halt")
        outcome.under_attack_mib = memory(pid, "VmRSS:")
        outcome.counted_mib = _counted_bytes(http_port) / MIB
        outcome.done = int(hostile.ask("halt")["done"])
        outcome.peak_mib = memory(pid, "VmHWM:")


def _counted_bytes(http_port: int) -> int:
    with urllib.request.urlopen(f"http://{HOST}:{http_port}/status", timeout=ANSWER_S) as page:
        return int(json.loads(page.read())["held"]["bytes"])


def endurance_json(outcomes: Sequence[EnduranceOutcome], about: Mapping[str, Any]) -> str:
    """One object; *about*: version, machine and seconds."""
    rows = [{**asdict(one), "unmet": one.unmet()} for one in outcomes]
    return json.dumps({**about, "endured": rows})


def endurance_table(outcomes: Sequence[EnduranceOutcome], about: Mapping[str, Any]) -> str:
    """Plain text; arguments as for `endurance_json`."""
    cap = max((outcome.cap_mib for outcome in outcomes), default=0)
    lines = [
        f"edgebroker {about['version']}; {about['seconds']:g} s of each attack, memory at most {cap} MiB, a newcomer"
        f" from {NEWCOMER_ADDRESS} in within {NEWCOMER_S_MAX:g} s, {RATE:g} messages/s from there with {SHARE_MIN:.0%}"
        f" in time and a p99 of {P99_MS_MAX:g} ms, then kill -9 and a restart within {RESTART_S_MAX:g} s",
        ", ".join(f"{name} {value}" for name, value in about["machine"].items()),
        "",
        f"{'attack':<18} {'done':>9} {'RSS MiB':>10} {'peak':>5} {'counted':>7} {'newcomer':>15} {'in time':>8}"
        f" {'p99 ms':>7} {'restart':>8}  unmet",
    ]
    for one in outcomes:
        come = one.newcomer
        newcomer = f"{come['slowest_s']:.2f} s, -{come['refused']:.0f}/{come['tries']:.0f}" if come else "?"
        lines.append(
            f"{one.name:<18} {one.done:>9,} {f'{one.before_mib:.0f} -> {one.under_attack_mib:.0f}':>10}"
            f" {one.peak_mib:>5.0f} {one.counted_mib:>7.0f} {newcomer:>15} {one.share:>8.1%}"
            f" {one.p99_ms:>7.1f} {f'{one.restart_s:.1f} s':>8}  {', '.join(one.unmet()) or '-'}"
        )
    return "\n".join(lines)
