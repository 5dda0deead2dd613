"""The command: `python -m tests.fuzz.frame --help`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

from .bounds import costs_of
from .finding import finding_of, shrunk
from .run import run


def main() -> int:
    """Exit code 0: nothing was found; 1: something was; 2: refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frame", description="Fuzz the readers of bytes.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or some of: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each target (10)")
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
        for cost in (cost for target in targets for cost in costs_of(target)):
            print(cost, flush=True)
        return 0
    if given.repeat is not None:
        if len(given.targets) != 1:
            parser.error("--repeat takes one target")
        data = _data(given.repeat)
        finding = finding_of(targets[0], data)
        print(shrunk(finding) if finding else f"{targets[0].name}: {len(data)} bytes, nothing is wrong")
        return finding is not None
    findings = 0
    for target in targets:
        report = run(target, given.seed, None if given.inputs else given.seconds, given.inputs)
        if given.json:
            fields = {name: getattr(report, name) for name in report.__slots__ if name not in ("finding", "slowest")}
            print(json.dumps(fields | {"slowest": report.slowest.hex()}), flush=True)
        else:
            print(report, flush=True)
        if report.finding is not None:
            findings += 1
            print(shrunk(report.finding), file=sys.stderr, flush=True)
    return findings > 0


def _data(text: str) -> bytes:
    if text.startswith("@"):
        return Path(text[1:]).read_bytes()
    return b"" if text == "-" else bytes.fromhex(text)


if __name__ == "__main__":
    sys.exit(main())
