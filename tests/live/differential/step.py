"""One line of a script where two brokers differed, and the rules that may explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from .lines import qos_of
from .model import Model
from .player import Received, in_order

USES_MAX: Final = 50  # of one rule for one line: more is a rule that does not come to an end


@dataclass
class Step:
    """One line, what the clients of each broker received because of it, and the state before it."""

    line: str
    theirs: Received
    ours: Received
    model: Model
    is_last: bool = False
    """Set by a rule: the brokers are in different states from here on."""

    @property
    def actor(self) -> str:
        return self.line.partition(" ")[0]

    def differing(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """Clients whose packets differ: their name, Mosquitto's and ours."""
        for name in sorted(self.theirs.keys() | self.ours.keys()):
            if self.theirs.get(name, []) != self.ours.get(name, []):
                yield name, self.theirs.get(name, []), self.ours.get(name, [])

    def rewrite(self, client: str, out: list[str], put: list[str]) -> bool:
        """Take the lines *out* of what Mosquitto's *client* received, once each, and *put* others in their place.

        With nothing to take out they come last, but what is sent again comes before what is sent for the first time.
        """
        received = list(self.theirs.get(client, []))
        at = len(received)
        if not out and put and " dup=1" in put[0]:
            new = [n for n, line in enumerate(received) if line.startswith("PUBLISH ") and " dup=1" not in line]
            at = min(new, default=at)
        for line in out:
            if line not in received:
                return False
            at = min(at, received.index(line))
            received.remove(line)
        received = in_order([*received[:at], *put, *received[at:]])
        state = self.model.of(client)
        if state.holding:
            state.surplus += sum(map(_fills, out)) - sum(map(_fills, put))
            state.debt += sum(qos_of(line) == 2 for line in put) - sum(qos_of(line) == 2 for line in out)
        if received:
            self.theirs[client] = received
        else:
            self.theirs.pop(client, None)
        return True


def _fills(line: str) -> bool:
    """Whether it is a message that takes a place in its reader's window."""
    return line.startswith("PUBLISH ") and qos_of(line) > 0


Rule = Callable[[Step], bool]
RULES: list[Rule] = []


def rule(recognise: Rule) -> Rule:
    """A class of differences, named as its line of docs/differences.md."""
    RULES.append(recognise)
    return recognise


def explain(step: Step) -> Iterator[str]:
    """The names of the rules that hold, until nothing is left to explain. None explains what may never be."""
    received = [line for lines in step.ours.values() for line in lines if line.startswith("PUBLISH ")]
    if not all(map(step.model.may_be, received)):
        return
    for recognise in RULES:
        for _ in range(USES_MAX):
            if step.theirs == step.ours or step.is_last or not recognise(step):
                break
            yield recognise.__name__
