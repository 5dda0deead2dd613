"""State digests: two gateways compare the state that one announced to the other, in three messages of bounded size
[SCOT 2.9, synchronising].

The announcing gateway sends a Digest. A holder who disagrees answers with sums by part (Differ). It restates the
parts that differ. So a restarted gateway costs what it lost, and a link that was down for a moment one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

from edgebroker.interest import Interest
from edgebroker.overlay.messages import Advertise, Differ, Digest, Restate, StateKind

MODULUS: Final = 1 << 64
ITEMS_PER_PART: Final = 8
"""So few are restated for one that differs, and so many share the 9 bytes of a sum."""
PARTS_MAX: Final = 1_024
PARTS_ASKED: Final = 64
"""Of somebody whose number of items is not known: 64 bytes, and parts of 100 items if it has thousands."""


class Item(Protocol):
    """Something that is told."""

    def fingerprint(self) -> int: ...


T = TypeVar("T", bound=Item)


def digest_of(kind: StateKind, epoch: int, items: Iterable[Item]) -> Digest:
    """What the teller of *items* says."""
    fingerprints = [item.fingerprint() for item in items]
    return Digest(kind, epoch, len(fingerprints), sum(fingerprints) % MODULUS)


def differ(digest: Digest, items: Iterable[Item]) -> Differ | None:
    """What the holder of *items* answers; None: nothing, for they agree."""
    fingerprints = [item.fingerprint() for item in items]
    if (len(fingerprints), sum(fingerprints) % MODULUS) == (digest.count, digest.sum):
        return None
    parts = 1
    while parts < PARTS_MAX and parts * ITEMS_PER_PART < max(len(fingerprints), digest.count):
        parts *= 2
    return Differ(digest.kind, _sums(fingerprints, parts))


def sums_of(items: Iterable[Item]) -> tuple[int, ...]:
    """What the holder of *items* asks who has not sent a digest: the sums of at least PARTS_ASKED parts."""
    fingerprints = [item.fingerprint() for item in items]
    parts = PARTS_ASKED
    while parts < PARTS_MAX and parts * ITEMS_PER_PART < len(fingerprints):
        parts *= 2
    return _sums(fingerprints, parts)


def restated(told: Differ, epoch: int, items: Iterable[Item]) -> Iterator[Restate]:
    """What the teller of *items* answers to that: each part that differs."""
    parts = len(told.sums)
    by_part: dict[int, list[Item]] = {part: [] for part in range(parts)}
    for item in items:
        by_part[item.fingerprint() % parts].append(item)
    for part, own in by_part.items():
        if sum(item.fingerprint() for item in own) % MODULUS != told.sums[part]:
            interests = tuple(item for item in own if isinstance(item, Interest))
            advertisements = tuple(item for item in own if isinstance(item, Advertise))
            yield Restate(told.kind, parts, part, epoch, interests, advertisements)


def of_part(restate: Restate, items: Iterable[T]) -> Iterator[T]:
    """Those of *items* that the part has."""
    return (item for item in items if item.fingerprint() % restate.parts == restate.part)


def _sums(fingerprints: Iterable[int], parts: int) -> tuple[int, ...]:
    sums = [0] * parts
    for fingerprint in fingerprints:
        sums[fingerprint % parts] += fingerprint
    return tuple(each % MODULUS for each in sums)
