"""The display while the federation runs: a table of gateways and uplinks, or a line every two seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

from edgebroker.cli.display import count, octets

PLAIN_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """The state of a gateway. `waiting`: messages that its peers have not received yet."""

    name: str
    state: str
    clients: int
    published: int
    delivered: int
    waiting: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class UplinkRow:
    """The state of the uplinks between two sites: events and bytes so far, and their faults."""

    sites: str
    events: int
    bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class FederationState:
    """The federation after `seconds`. received: subscriber -> messages. medium: the kind of the uplinks."""

    seconds: float
    published: int
    received: Sequence[tuple[str, int]]
    gateways: Sequence[GatewayRow]
    uplinks: Sequence[UplinkRow]
    medium: str


class Board(Protocol):
    """Displays states."""

    def show(self, state: FederationState) -> None:
        """Display *state*, or skip it."""
        ...

    def say(self, line: str) -> None:
        """Print a line about an event."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class PlainBoard:
    """Prints one line every PLAIN_EVERY_S, for logs and terminals without rich."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._next_s = 0.0

    def show(self, state: FederationState) -> None:
        """Display *state*, or skip it."""
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
        parts += [f"{name} {received:,}" for name, received in state.received]
        parts += [f"{row.sites} {octets(row.bytes)}" for row in state.uplinks]
        self.say(" | ".join([*parts, f"{waiting:,} wait for peers"]))

    def say(self, line: str) -> None:
        """Print a line about an event."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


class LiveBoard:
    """Shows tables that are updated in place, with rich. Raises ImportError without it."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(console=self._console, refresh_per_second=4)
        self._started = False

    def show(self, state: FederationState) -> None:
        """Update the tables."""
        from rich.box import SIMPLE_HEAD  # without frames it fits into 24 lines
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        if not self._started:
            self._started = True
            self._live.start()
        title = Text(f" {state.seconds:.0f} s, {state.published:,} published; uplinks: {state.medium}")
        gateways = Table(box=SIMPLE_HEAD)  # a title of the table would be wrapped to its width
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
        received = Table(box=SIMPLE_HEAD)
        for name, _ in state.received:
            received.add_column(name, justify="right")
        received.add_row(*(count(number) for _, number in state.received))
        self._live.update(Group(title, gateways, uplinks, received))

    def say(self, line: str) -> None:
        """Print a line above the tables."""
        from rich.text import Text  # text without markup: brackets in the line stay as they are

        self._console.print(Text(line))

    def close(self) -> None:
        """Restore the terminal."""
        if self._started:
            self._live.stop()


def board() -> Board:
    """Return the suitable kind for stderr: the outcome is printed to stdout."""
    if sys.stderr.isatty():
        try:
            return LiveBoard(sys.stderr)
        except ImportError:  # rich is an extra; the lines contain the same
            pass
    return PlainBoard(sys.stderr)


def _coloured(state: str) -> str:
    return state if state == "up" else f"[bold red]{state}[/]"
