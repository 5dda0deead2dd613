"""The attacker, a process of its own. Started as `python -m edgebroker.cli.bench.abuse.attacker PORT NAME SCALE`.

It has the core only while the well-behaved clients do not want it: what they lose is the gateway's fault.

A word a line on standard input: `prepare`, `go`, `halt`. Each is answered by one JSON object on standard output when
it is done; that of `halt` says what was done since `go`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Final

from .attack import Attack
from .doors import ATTACKS as AT_THE_DOOR
from .floods import ATTACKS as INSIDE

ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in (*AT_THE_DOOR, *INSIDE)}

REST_S: Final = 0.01
"""After each blow of a small attack: it shall show that it works, and end soon."""


def main(port: int, name: str, scale: float) -> None:
    """Do as told until standard input ends."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    attack = ATTACKS[name](port, scale)
    done = 0
    for line in iter(sys.stdin.readline, ""):
        word = line.strip()
        if word == "prepare":
            attack.prepare()
        elif word == "go":
            print("{}", flush=True)
            done = 0
            while not select.select([sys.stdin], [], [], 0)[0]:
                done += attack.strike()
                if scale < 1:
                    time.sleep(REST_S)
            continue
        elif word == "halt":
            attack.retreat()
        print(json.dumps({"done": done, "rebuffs": attack.crowd.rebuffs}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
