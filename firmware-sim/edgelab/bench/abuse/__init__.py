"""`edgebroker bench abuse`: what hostile clients take from well-behaved ones, and how much memory they cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import ExistingPath, WordChoice, examples
from edgelab.bench.abuse.attacker import ATTACKS
from edgelab.bench.abuse.endurance import ENDURED, endurance_json, endurance_table
from edgelab.bench.abuse.endurance import endure as endured
from edgelab.bench.abuse.report import as_json as report_json
from edgelab.bench.abuse.report import as_table, is_met
from edgelab.bench.abuse.trial import AbusePlan, HelperFailed, calibrated, run
from edgelab.bench.mqtt import pinned, stopped_by_sigterm
from edgelab.bench.report import machine
from edgelab.bench.subjects import version_of
from edgelab.bench.trial import BrokerFailed, Cores
from edgelab.processes import python

SECONDS = 1.2
QUICK_S, QUICK_SCALE, QUICK_PROBES = 0.3, 0.05, 2


@click.command(
    name="abuse",
    short_help="Attack a gateway while well-behaved clients use it.",
    epilog=examples("edgebroker bench abuse --only wills --config gateway.toml"),
)
@click.option("--only", multiple=True, type=WordChoice(list(ATTACKS)), help="Only this attack; may be repeated.")
@click.option("--rounds", type=click.IntRange(1, 99), default=2, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    show_default=f"{SECONDS}; with --quick {QUICK_S}",
    help="Of each measurement.",
)
@click.option(
    "--share",
    type=click.FloatRange(0.05, 0.9),
    default=0.5,
    show_default=True,
    help="Of the gateway's core, for the well-behaved at a fixed rate.",
)
@click.option(
    "--cap-mib", type=click.IntRange(16, 1 << 20), default=256, show_default=True, help="Memory to stay below."
)
@click.option("--config", type=ExistingPath(dir_okay=False), help="Settings of the gateway.")
@click.option(
    "--endure",
    type=click.FloatRange(0.1, 600),
    metavar="SECONDS",
    help="Attacks on memory and shares for so long, with the settings of --config, then kill -9 and a restart.",
)
@click.option("--quick", is_flag=True, help="One short round of small attacks: shows that it works, measures nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    only: tuple[str, ...],
    rounds: int,
    seconds: float | None,
    share: float,
    cap_mib: int,
    config: Path | None,
    endure: float | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Attack a gateway while well-behaved clients use it, and show what they lose.

    Ten pairs of well-behaved clients run beside every attack, first at a fixed rate that takes a share of the gateway's
    core, found at the start; then with as many messages as it carries. Each is measured without the attack, with it,
    and without it again, on the same gateway process; each attack has a fresh one. The gateway has a core of its own;
    the well-behaved have the other before the attacker, who has what they leave.

    With --endure, attacks on memory and on what clients share go on for so long. Meanwhile the gateway has to stay
    below 32 MiB and 1.5 times quota.memory_bytes_max of --config, and to serve clients of another address.

    Exit code 0 if all attacks were withstood, 1 if not.
    """
    if sys.platform != "linux":
        raise Refused("this benchmark needs Linux: it pins processes to cores and reads /proc")
    with stopped_by_sigterm(), pinned() as cores:
        settings = "" if config is None else str(config.absolute())
        plan = AbusePlan(cores, rounds, seconds or SECONDS, settings=settings, share=share)
        if quick:
            plan = AbusePlan(cores, 1, seconds or QUICK_S, QUICK_SCALE, settings, share, probes=QUICK_PROBES)
        about = {"version": version_of(python(), {}), "machine": machine(cores)}
        if endure is not None:
            _endure(only or ENDURED, config, endure, QUICK_SCALE if quick else 1.0, cores, about, as_json)
            return
        try:
            load = calibrated(plan)
        except (BrokerFailed, HelperFailed) as failure:
            raise Refused(str(failure)) from None
        plan.rate = load["rate"]
        outcomes = []
        for name in only or ATTACKS:
            click.echo(f"{name}: {ATTACKS[name].about}", err=True)
            outcomes.append(run(name, plan))
    click.echo((report_json if as_json else as_table)(outcomes, cap_mib, {**about, "load": load}))
    if not all(is_met(outcome, cap_mib) for outcome in outcomes):
        raise SystemExit(1)


def _endure(
    names: Sequence[str],
    config: Path | None,
    seconds: float,
    scale: float,
    cores: Cores,
    about: Mapping[str, Any],
    as_json: bool,
) -> None:
    if config is None:
        raise Refused("--endure needs --config: the settings that the gateway is to come through with")
    outcomes = []
    for name in names:
        click.echo(f"{name}: {ATTACKS[name].about}", err=True)
        outcomes.append(endured(name, config, seconds, cores, scale))
    click.echo((endurance_json if as_json else endurance_table)(outcomes, {**about, "seconds": seconds}))
    if any(outcome.unmet() for outcome in outcomes):
        raise SystemExit(1)


__all__ = ["command"]
