"""Plays generated scripts against Mosquitto and our broker, over real sockets, and compares what clients receive.

    python tools/differential.py --scripts 2000 --seed 1

Every difference is of a class that docs/differences.md explains, or it is shown: the shortest script found that has it,
and the command that repeats it. Exit code 0: all explained, 1: something was not, 2: Mosquitto is not installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# This file has the name of the package that it needs: its own folder, where a script begins to look, is left out.
HERE = Path(__file__).resolve().parent
FOLDERS = [str(ROOT / "tests" / "live"), str(ROOT), str(ROOT / "bridge")]
sys.path[:] = [*FOLDERS, *(folder for folder in sys.path if Path(folder).resolve() != HERE)]

from differential import brokers  # type: ignore[import-not-found]  # noqa: E402
from differential.comparison import CLASSES, Comparison, play  # type: ignore[import-not-found]  # noqa: E402
from differential.player import Player  # type: ignore[import-not-found]  # noqa: E402
from differential.scripts import script  # type: ignore[import-not-found]  # noqa: E402
from differential.shrinking import shrunk  # type: ignore[import-not-found]  # noqa: E402


def main() -> int:
    """Play the scripts against both brokers. Exit code 1 if a difference has no explanation."""
    parser = argparse.ArgumentParser(description="compare our broker with Mosquitto on generated packet scripts")
    parser.add_argument("--scripts", type=int, default=100, help="how many (100)")
    parser.add_argument("--seed", type=int, default=1, help="of the scripts (1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first script (0)")
    parser.add_argument("--no-shrink", action="store_true", help="show a script that differs as it was drawn")
    parser.add_argument("--show", action="store_true", help="print the scripts")
    options = parser.parse_args()
    if brokers.MOSQUITTO is None:
        print("mosquitto is not installed; install the package mosquitto", file=sys.stderr)
        return 2
    uses: Counter[str] = Counter()
    scripts_of: Counter[str] = Counter()
    unexplained = lines = 0
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        brokers.mosquitto(Path(folder)) as theirs,
        brokers.edgebroker(Path(folder)) as ours,
    ):
        players = Player(theirs), Player(ours)
        for number in range(options.first, options.first + options.scripts):
            drawn = script(options.seed, number)
            lines += len(drawn)
            if options.show:
                print(f"-- script {number}", *drawn, sep="\n")
            found = play(drawn, *players)
            uses.update(found.uses)
            scripts_of.update(found.uses.keys())
            if found.unexplained:
                unexplained += 1
                report(found, players, options.seed, number, options.no_shrink)
            if sys.stderr.isatty() or (number + 1) % 100 == 0:
                print(f"\r{number + 1 - options.first} of {options.scripts}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for name in CLASSES:
        print(f"{uses[name]:7,} in {scripts_of[name]:5,} scripts  {name}")
    print(
        f"{options.scripts:,} scripts with {lines:,} lines, seed {options.seed}, in {time.monotonic() - began:.0f} s: "
        f"{unexplained or 'no'} unexplained difference{'' if unexplained == 1 else 's'}"
    )
    return int(unexplained > 0)


def report(found: Comparison, players: tuple[Player, Player], seed: int, number: int, whole: bool) -> None:
    """Show what is not explained, as short as it will go."""
    shortest = found.script if whole else shrunk(found.script, lambda lines: bool(play(lines, *players).unexplained))
    print(f"\nunexplained: python tools/differential.py --seed {seed} --first {number} --scripts 1")
    print(*shortest, sep="\n")
    print(play(shortest, *players).unexplained or found.unexplained)


if __name__ == "__main__":
    sys.exit(main())
