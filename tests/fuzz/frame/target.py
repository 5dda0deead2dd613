"""What is fuzzed: a reader of bytes, inputs it knows, and the errors by which it may refuse others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

BOMB_BYTES = 64 * 1024
"""The size of inputs that are made to cost much."""


@dataclass(frozen=True, slots=True)
class Target:
    """One reader. `read` takes any bytes at all, asserts what must hold, and raises nothing else than `refusals`."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    """Inputs that are read, from which others are made."""
    refusals: tuple[type[Exception], ...] = ()
    """How the reader says no: these, by name, and no other exception."""
    words: tuple[bytes, ...] = ()
    """What the format is made of."""
    make: Callable[[Random], bytes] | None = None
    """Another source of inputs: a grammar. It takes turns with changed inputs."""
    mend: Callable[[bytes], bytes] | None = None
    """Puts right what every change breaks (checksums, lengths), so that what lies behind it is reached too."""
    bombs: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """Inputs of BOMB_BYTES that are made to cost much. Files of the operator have none: their size is their bound."""
    plain: Callable[[bytes], object] | None = None
    """The reader alone, where `read` does more than reading; costs are measured of it."""
    plain_refusals: tuple[type[Exception], ...] = ()
    """How it says no beyond `refusals`."""
    steps: Callable[[bytes], Iterator[object]] | None = None
    """The same in steps, between which a gateway looks after others: the longest is what an input costs. What is done
    before the first is prepared, and costs nothing."""
    bound_ms: float = 10.0
    """Processor time that any step of reading any input of BOMB_BYTES may cost, on a PC; more only with a reason, in
    docs/fuzzing.md."""
    bound_mib: float = 8.0
    """Memory that any input of BOMB_BYTES may take while it is read."""


def filled(piece: bytes, before: bytes = b"", after: bytes = b"", size: int = BOMB_BYTES) -> bytes:
    """*piece* over and over between *before* and *after*: *size* bytes in all, or a little less."""
    return before + piece * ((size - len(before) - len(after)) // len(piece)) + after
