"""What a person sees while the federation runs: a table of gateways and uplinks, or a line every two seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

from edgebroker.cli.display import count, octets

PLAIN_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """A gateway now. `waiting`: messages for its peers that these do not have yet."""

    name: str
    state: str
    clients: int
    published: int
    delivered: int
    waiting: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class UplinkRow:
    """Two sites: what has crossed between them, and what is wrong there."""

    sites: str
    events: int
    bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class FederationState:
    """The federation after `seconds`. heard: subscriber -> messages. medium: what uplinks are made of."""

    seconds: float
    published: int
    heard: Sequence[tuple[str, int]]
    gateways: Sequence[GatewayRow]
    uplinks: Sequence[UplinkRow]
    medium: str


class Board(Protocol):
    """Shows states as they come."""

    def show(self, state: FederationState) -> None:
        """Show *state*, or pass it over."""
        ...

    def say(self, line: str) -> None:
        """Tell what happens."""
        ...

    def close(self) -> None:
        """Leave the terminal in order."""
        ...


class PlainBoard:
    """One line every PLAIN_EVERY_S, for logs and terminals without rich."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._next_s = 0.0

    def show(self, state: FederationState) -> None:
        """See Board."""
        if state.seconds < self._next_s:
            return
        self._next_s = state.seconds + PLAIN_EVERY_S
        up = sum(row.state == "up" for row in state.gateways)
        waiting = sum(row.waiting for row in state.gateways)
        parts = [
            f"{state.seconds:3.0f} s",
            f"{up} of {len(state.gateways)} gateways have all links",
            f"published {state.published:,}",
        ]
        parts += [f"{name} {heard:,}" for name, heard in state.heard]
        parts += [f"{row.sites} {octets(row.bytes)}" for row in state.uplinks]
        self.say(" | ".join([*parts, f"{waiting:,} wait for peers"]))

    def say(self, line: str) -> None:
        """See Board."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """See Board."""


class LiveBoard:
    """Tables in place, by rich. Raises ImportError without it."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(console=self._console, refresh_per_second=4)
        self._started = False

    def show(self, state: FederationState) -> None:
        """See Board."""
        from rich.box import SIMPLE_HEAD  # without frames it fits into 24 lines
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        if not self._started:
            self._started = True
            self._live.start()
        title = Text(f" {state.seconds:.0f} s, {state.published:,} published; uplinks: {state.medium}")
        gateways = Table(box=SIMPLE_HEAD)  # a title of its own would be folded to its width
        for heading in ("gateway", "state"):
            gateways.add_column(heading)
        for heading in ("clients", "messages", "delivered", "wait for peers", "memory"):
            gateways.add_column(heading, justify="right")
        for row in state.gateways:
            figures = (count(row.clients), count(row.published), count(row.delivered), count(row.waiting))
            gateways.add_row(row.name, _coloured(row.state), *figures, octets(row.memory_bytes))
        uplinks = Table(box=SIMPLE_HEAD)
        for heading in ("uplinks", "state"):
            uplinks.add_column(heading)
        for heading in ("events", "bytes"):
            uplinks.add_column(heading, justify="right")
        for line in state.uplinks:
            uplinks.add_row(line.sites, _coloured(line.state), count(line.events), octets(line.bytes))
        heard = Table(box=SIMPLE_HEAD)
        for name, _ in state.heard:
            heard.add_column(name, justify="right")
        heard.add_row(*(count(number) for _, number in state.heard))
        self._live.update(Group(title, gateways, uplinks, heard))

    def say(self, line: str) -> None:
        """See Board."""
        from rich.text import Text  # without markup the tables, which are drawn again with it, would show theirs

        self._console.print(Text(line))

    def close(self) -> None:
        """See Board."""
        if self._started:
            self._live.stop()


def board() -> Board:
    """The right kind for stderr: what the demo prints at the end goes to stdout."""
    if sys.stderr.isatty():
        try:
            return LiveBoard(sys.stderr)
        except ImportError:  # an extra; the lines say the same
            pass
    return PlainBoard(sys.stderr)


def _coloured(state: str) -> str:
    return state if state == "up" else f"[bold red]{state}[/]"
