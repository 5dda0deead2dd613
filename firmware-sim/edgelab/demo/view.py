"""The display while the demo runs: a table that is updated on a terminal, or a line every two seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

from edgelab.demo.subscriber_specs import SubscriberSpec

PLAIN_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DemoState:
    """The demo after `seconds`: messages published, and received by each subscriber in the order of the
    subscriptions.
    """

    seconds: float
    published: int
    received: tuple[int, ...]


class DemoView(Protocol):
    """Displays states, several per second."""

    def show(self, state: DemoState) -> None:
        """Display *state*, or skip it."""
        ...

    def say(self, line: str) -> None:
        """Print a line about the next step."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class PlainDemoView:
    """Prints one line every PLAIN_EVERY_S, for logs and terminals without rich."""

    def __init__(self, specs: Sequence[SubscriberSpec], stream: IO[str]) -> None:
        self._wishes = specs
        self._stream = stream
        self._next_s = 0.0
        self._rates = MessageRates()

    def show(self, state: DemoState) -> None:
        """Display *state*, or skip it."""
        if state.seconds < self._next_s:
            return
        self._next_s = state.seconds + PLAIN_EVERY_S
        published_s, _ = self._rates.per_second(state)
        parts = [f"{state.seconds:3.0f} s", f"published {state.published:,} ({published_s:,.0f}/s)"]
        parts += [f"{spec.name} {count:,}" for spec, count in zip(self._wishes, state.received, strict=True)]
        self.say(" | ".join(parts))

    def say(self, line: str) -> None:
        """Print a line about the next step."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


class LiveDemoView:
    """Shows a table that is updated in place, with rich. Raises ImportError without it."""

    def __init__(self, specs: Sequence[SubscriberSpec], stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._wishes = specs
        self._rates = MessageRates()
        self._console = Console(file=stream)
        self._live = Live(console=self._console, refresh_per_second=4)
        self._started = False

    def show(self, state: DemoState) -> None:
        """Update the table."""
        from rich.markup import escape
        from rich.table import Table

        if not self._started:
            self._started = True
            self._live.start()
        published_s, received_s = self._rates.per_second(state)
        table = Table(title=f"{state.seconds:.0f} s", title_justify="left")
        table.add_column("who")
        table.add_column("asks for", overflow="fold")
        for heading in ("messages", "per second"):
            table.add_column(heading, justify="right")
        table.add_row("[bold]devices[/]", "", f"[bold]{state.published:,}[/]", f"[bold]{published_s:,.0f}[/]")
        for spec, count, rate in zip(self._wishes, state.received, received_s, strict=True):
            table.add_row(spec.name, escape(spec.where or spec.topic), f"{count:,}", f"{rate:,.0f}")
        self._live.update(table)

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Restore the terminal."""
        if self._started:
            self._live.stop()


class MessageRates:
    """Messages per second, averaged over the last few seconds, so that the number is readable."""

    WINDOW_S: Final = 3.0

    def __init__(self) -> None:
        self._states: list[DemoState] = []

    def per_second(self, state: DemoState) -> tuple[float, tuple[float, ...]]:
        """Return the messages published and received per second. The states must be in the order of time."""
        while self._states and state.seconds - self._states[0].seconds > self.WINDOW_S:
            self._states.pop(0)
        self._states.append(state)
        first = self._states[0]
        elapsed_s = state.seconds - first.seconds
        if elapsed_s <= 0:
            return 0.0, (0.0,) * len(state.received)
        received = zip(state.received, first.received, strict=True)
        return (
            (state.published - first.published) / elapsed_s,
            tuple((now - before) / elapsed_s for now, before in received),
        )


def view_for(specs: Sequence[SubscriberSpec]) -> DemoView:
    """Return the suitable kind for stderr: the outcome is printed to stdout."""
    if sys.stderr.isatty():
        try:
            return LiveDemoView(specs, sys.stderr)
        except ImportError:  # rich is an extra; the lines contain the same
            pass
    return PlainDemoView(specs, sys.stderr)
