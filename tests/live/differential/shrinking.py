"""Makes a script that shows a difference as short as it will go."""

from __future__ import annotations

from collections.abc import Callable


def shrunk(script: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """The shortest script found by leaving out lines, and actions of lines, that still *fails*."""
    size = len(script) // 2
    while size:
        at = 0
        while at < len(script):
            shorter = script[:at] + script[at + size :]
            if shorter and fails(shorter):
                script = shorter
            else:
                at += size
        size //= 2
    for at, line in enumerate(script):
        actions = line.split(" ; ")
        for action in list(actions):
            fewer = [one for one in actions if one is not action]
            if fewer and fails([*script[:at], " ; ".join(fewer), *script[at + 1 :]]):
                actions = fewer
        script = [*script[:at], " ; ".join(actions), *script[at + 1 :]]
    return script
