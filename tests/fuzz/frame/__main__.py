"""The command: `python -m tests.fuzz.frame --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from edgebroker.runtime.process import GarbageCollector
from tests.fuzz.targets import TARGETS, kind_of, share_of

from .bounds import costs_of
from .budget import per_kind, spent
from .finding import finding_of, shrunk
from .run import Report, run
from .target import Target


def main() -> int:
    """Exit code 0: nothing was found; 1: something was; 2: refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frame", description="Fuzz the readers of bytes.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, help="for each target (10); of a --budget for each kind at most (120)")
    parser.add_argument("--budget", type=float, help="for everything together, by the clock, shared among kinds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that do so (one a core)")
    parser.add_argument("--inputs", type=int, help="for each target, instead of seconds")
    parser.add_argument("--seed", type=int, default=20240229, help="other inputs")
    parser.add_argument("--repeat", metavar="HEX", help="one input (or @file), made small if it is a finding")
    parser.add_argument("--bounds", action="store_true", help="what inputs of 64 KiB that are made to cost much cost")
    parser.add_argument("--json", action="store_true", help="one JSON object per target and line")
    given = parser.parse_args()
    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    targets = [TARGETS[name] for name in given.targets or TARGETS]
    if given.bounds:
        GarbageCollector().install()  # as a gateway does: nothing that was there before is looked at again
        return _measure(targets)
    if given.repeat is not None:
        if len(given.targets) != 1:
            parser.error("--repeat takes one target")
        data = _data(given.repeat)
        finding = finding_of(targets[0], data)
        print(shrunk(finding) if finding else f"{targets[0].name}: {len(data)} bytes, nothing is wrong")
        return finding is not None
    if given.budget is not None:
        if given.inputs or given.budget <= 0 or given.jobs <= 0:
            parser.error("--budget is a time above 0: it goes with --seconds and --jobs, not with --inputs")
        return _spend(targets, given)
    findings = 0
    for target in targets:
        report = run(target, given.seed, None if given.inputs else given.seconds or 10.0, given.inputs)
        _tell(report, given.json)
        if report.finding is not None:
            findings += 1
            print(shrunk(report.finding), file=sys.stderr, flush=True)
    return findings > 0


def _measure(targets: list[Target]) -> bool:
    """Whether an input costs more than it may. The hardest of each target stands at the end."""
    hardest, over = [], 0
    for target in filter(lambda target: target.bombs, targets):
        costs = []
        for cost in costs_of(target):
            print(cost, flush=True)
            costs.append(cost)
        over += sum(cost.is_over for cost in costs)
        hardest.append(max(costs, key=lambda cost: cost.ms))
    print(f"\nthe hardest of each target; {over} inputs are over their bounds")
    print(*hardest, sep="\n", flush=True)
    return over > 0


def _spend(targets: list[Target], given: argparse.Namespace) -> int:
    names = [target.name for target in targets]
    each = per_kind(names, given.budget * given.jobs, given.seconds or 120.0, share_of)
    shares = [(target, share_of(target.name, each)) for target in targets]
    print(f"fuzzing each kind for {each:.1f} s in {given.jobs} processes, seed {given.seed}", flush=True)
    outcomes = []
    for outcome in spent(shares, given.budget, given.jobs, given.seed):
        outcomes.append(outcome)
        _tell(outcome.report, given.json)
        if outcome.told:
            print(outcome.told, file=sys.stderr, flush=True)
    if not given.json:
        for kind in dict.fromkeys(kind_of(name) for name in names):
            of_kind = [outcome for outcome in outcomes if kind_of(outcome.report.name) == kind]
            inputs = sum(outcome.report.inputs for outcome in of_kind)
            seconds = sum(outcome.report.seconds for outcome in of_kind)
            found = sum(bool(outcome.told) for outcome in of_kind)
            print(f"{kind:<18} {inputs:>12,} inputs {seconds:>7,.1f} s {found:>4} findings", flush=True)
    return any(outcome.told for outcome in outcomes)


def _tell(report: Report, is_json: bool) -> None:
    if is_json:
        fields = {name: getattr(report, name) for name in report.__slots__ if name not in ("finding", "slowest")}
        print(json.dumps(fields | {"slowest": report.slowest.hex()}), flush=True)
    else:
        print(report, flush=True)


def _data(text: str) -> bytes:
    if text.startswith("@"):
        return Path(text[1:]).read_bytes()
    return b"" if text == "-" else bytes.fromhex(text)


if __name__ == "__main__":
    sys.exit(main())
