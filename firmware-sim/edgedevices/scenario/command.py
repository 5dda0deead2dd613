"""`edgedevices run` and `edgedevices check`: a scenario, against a real broker or in simulation."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edgebroker.instants import SECOND
from edgedevices import InputInvalid
from edgedevices.options import (
    EXIT_IMPOSSIBLE,
    access_options,
    brokers_option,
    duration,
    end_run,
    journal_file,
    microseconds,
    one_line,
)

if TYPE_CHECKING:
    from edgebroker.runtime.settings import SettingsRefused
    from edgedevices.population import FleetPopulation
    from edgedevices.scenario.scenario import DeviceScenario


@click.command("run", epilog="\b\nExample:\n  edgedevices run harvest.toml --broker 192.168.1.10:1883 --seconds 60")
@click.argument("file", metavar="SCENARIO", type=click.Path(path_type=Path))
@brokers_option()
@click.option("--audit-at", metavar="HOST:PORT", help="Where the auditor subscribes [default: the first broker].")
@click.option("--devices", type=click.IntRange(1, 100_000), help="So many in all, each fleet in its share.")
@click.option("--seed", type=click.IntRange(0), help="Same seed, same devices [default: the scenario's].")
@click.option("--seconds", type=duration, help="How long each device lives [default: the scenario's].")
@click.option("--simulated", is_flag=True, help="Against a broker on virtual time, in this process.")
@click.option(
    "--power-cut", "cuts", type=duration, multiple=True, help="With --simulated: the broker's power fails then."
)
@click.option("--journal", type=click.Path(path_type=Path), help="Write one JSON line per message to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@click.option("--progress/--no-progress", default=None, help="Show progress on stderr [default: on a terminal].")
@access_options
def run(
    file: Path, brokers: tuple[str, ...], audit_at: str | None, devices: int | None, seed: int | None,
    seconds: float | None, simulated: bool, cuts: tuple[float, ...], journal: Path | None, as_json: bool,
    progress: bool | None, **access: Any,
) -> None:  # fmt: skip
    """Run the fleets of a SCENARIO, and check that nothing is lost.

    Exit code 0: everything acknowledged arrived, QoS 2 once; 1: something did not, was refused or not acknowledged in
    time, or a device never got a connection; 2: wrong usage, a scenario that cannot be run, or no broker.
    """
    from edgedevices.ledger import MessageLedger
    from edgedevices.population import populate
    from edgedevices.summary import in_words, is_kept, summary_of

    if cuts and not simulated:
        raise click.UsageError("--power-cut needs --simulated; a real broker has a power of its own")
    if simulated:
        is_given = click.get_current_context().get_parameter_source("brokers") is not ParameterSource.DEFAULT
        asked = {"--to": is_given, "--audit-at": audit_at is not None, "--progress": bool(progress)}
        asked |= {f"--{name.replace('_', '-')}": bool(value) for name, value in access.items()}
        if vain := [option for option, is_asked in asked.items() if is_asked]:
            raise click.UsageError(f"{vain[0]} means nothing with --simulated; its broker is in this process")
    scenario = _read(file)
    length = microseconds(seconds)
    if length is not None:
        scenario = replace(scenario, terms=replace(scenario.terms, seconds=length))
    seed = scenario.terms.seed if seed is None else seed
    with one_line(), journal_file(journal) as written:
        population = populate(scenario, seed, MessageLedger(written), devices)
        about: dict[str, Any] = {"scenario": scenario.terms.name, "seed": seed}
        if simulated:
            about |= _simulate(population, seed, cuts)
        else:
            about |= _live(population, brokers, audit_at, progress, access)
    summary = {**about, **summary_of(population), "cost": _cost()}
    end_run(summary, in_words, as_json, is_kept(summary), written)


def _simulate(population: FleetPopulation, seed: int, cuts: tuple[float, ...]) -> dict[str, Any]:
    from edgedevices.simulated import SimulatedWorld
    from edgedevices.sockets import signals

    sky = SimulatedWorld(population.run, seed, [round(at * SECOND) for at in cuts])
    with signals(population.run.interrupt):
        sky.live()
    if late := [at for at in cuts if at * SECOND > sky.simulation.now and not population.run.interrupted]:
        raise InputInvalid(f"--power-cut {late[0]:g}s: the run was over after {sky.simulation.now / SECOND:.1f} s")
    return {"broker": "simulated", "hash": sky.broker.digest}


def _live(
    population: FleetPopulation,
    brokers: tuple[str, ...],
    audit_at: str | None,
    progress: bool | None,
    access: dict[str, Any],
) -> dict[str, Any]:
    from edgedevices.broker import BrokerAddress, BrokerCredentials
    from edgedevices.fleet import live
    from edgedevices.progress import progress_for

    addresses = [BrokerAddress.parse(broker) for broker in brokers]
    auditor = None if audit_at is None else BrokerAddress.parse(audit_at)
    live(population.run, addresses, progress_for(progress), auditor, BrokerCredentials.read(**access))
    return {"broker": ", ".join(map(str, addresses))}


def _cost() -> dict[str, Any]:
    """Returns what this process used: seconds of processor time, and the maximum of MiB of memory."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": round(used.ru_utime + used.ru_stime, 2), "memory_mib": used.ru_maxrss >> 10}


@click.command("check", epilog="\b\nExample:\n  edgedevices check harvest.toml")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: Path, as_json: bool) -> None:
    """Check a scenario FILE: exit code 0 if it could be run, 2 if not, with every problem at its line."""
    scenario = _read(file, as_json)
    if as_json:
        fleets = {fleet.name: fleet.devices for fleet in scenario.fleets}
        click.echo(json.dumps({"ok": True, "file": str(file), "scenario": scenario.terms.name, "fleets": fleets}))
    else:
        click.echo(f"{file}: OK")
        click.echo(scenario.described())


def _read(file: Path, as_json: bool = False) -> DeviceScenario:
    """Returns the scenario of *file*; or prints all problems and exits with code 2."""
    from edgebroker.runtime.settings import SettingsRefused
    from edgedevices.scenario.scenario import load_scenario

    try:
        return load_scenario(file)
    except SettingsRefused as refused:
        _refuse(file, refused, as_json)
        sys.exit(EXIT_IMPOSSIBLE)


def _refuse(file: Path, refused: SettingsRefused, as_json: bool) -> None:
    if as_json:
        problems = [asdict(problem) for problem in refused.problems]
        click.echo(json.dumps({"ok": False, "file": str(file), "problems": problems}))
    else:
        click.echo(str(refused), err=True)
