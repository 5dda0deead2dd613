"""Two brokers, one script: what differs, and why."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field

from . import differences, endings
from .model import Model
from .player import BrokerIsStuck, Player, Received
from .step import RULES, Step, explain

CLASSES = tuple(one.__name__ for one in RULES)
"""The classes of differences we know of, in the order in which they are tried."""

assert differences.__name__
assert endings.__name__


@dataclass
class Comparison:
    """What became of one script. *unexplained* is what a reader needs to see; "" if all is well."""

    script: list[str]
    uses: Counter[str] = field(default_factory=Counter)
    unexplained: str = ""


def compare(script: list[str], theirs: list[Received], ours: list[Received]) -> Comparison:
    """Explain the differences between two transcripts of *script*, as far as possible."""
    found = Comparison(script)
    model = Model()
    for at, (line, there, here) in enumerate(zip(script, theirs, ours, strict=True)):
        model.foresee(line)
        step = Step(line, copy.deepcopy(there), copy.deepcopy(here), model)
        found.uses.update(explain(step))
        if step.is_last:
            break
        if step.theirs != step.ours:
            found.unexplained = _told(at, step)
            break
        model.note(line, here)
    return found


def play(script: list[str], mosquitto: Player, edgebroker: Player) -> Comparison:
    """Play *script* against both."""
    transcripts = []
    for name, player in (("Mosquitto", mosquitto), ("edgebroker", edgebroker)):
        try:
            transcripts.append(player.play(script))
        except BrokerIsStuck as error:
            return Comparison(script, unexplained=f"{name} is stuck: {error}")
    return compare(script, *transcripts)


def _told(at: int, step: Step) -> str:
    lines = [f"line {at + 1}: {step.line}"]
    for name, theirs, ours in step.differing():
        lines.append(f"    {name} received from Mosquitto, differences that are known apart:")
        lines += [f"        {line}" for line in theirs] or ["        nothing"]
        lines.append(f"    {name} received from edgebroker:")
        lines += [f"        {line}" for line in ours] or ["        nothing"]
    return "\n".join(lines)
