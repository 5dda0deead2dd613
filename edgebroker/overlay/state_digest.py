"""State digests: two gateways compare the state that one announced to the other, in three messages of bounded size
[SCOT 2.9, synchronising].

The announcing gateway sends a Digest. If the receiver's state differs, it answers with sums by part (Differ). The
announcing gateway then restates the parts that differ. So a restarted gateway transfers only what it lost, and a link
that was down for a moment costs one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from edgebroker.interest import Interest
from edgebroker.overlay.messages import Advertise, Differ, Digest, Restate, StateKind

MODULUS: Final = 1 << 64
ITEMS_PER_PART: Final = 8
"""Items that share a sum of 9 bytes, and that are restated if one of them differs."""
PARTS_MAX: Final = 1_024
PARTS_ASKED: Final = 64
"""Parts when the peer's number of items is not known: 64 bytes, and 100 items per part if it has thousands."""


class Item(Protocol):
    """A unit of announced state."""

    def fingerprint(self) -> int: ...


T = TypeVar("T", bound=Item)


def digest_of(kind: StateKind, epoch: int, items: Iterable[Item]) -> Digest:
    """Return the digest of announced *items*."""
    fingerprints = [item.fingerprint() for item in items]
    return Digest(kind, epoch, len(fingerprints), sum(fingerprints) % MODULUS)


def differ(digest: Digest, items: Iterable[Item]) -> Differ | None:
    """Return the answer of a receiver that has *items*; None if they agree."""
    fingerprints = [item.fingerprint() for item in items]
    if (len(fingerprints), sum(fingerprints) % MODULUS) == (digest.count, digest.sum):
        return None
    parts = 1
    while parts < PARTS_MAX and parts * ITEMS_PER_PART < max(len(fingerprints), digest.count):
        parts *= 2
    return Differ(digest.kind, _sums(fingerprints, parts))


def sums_of(items: Iterable[Item]) -> tuple[int, ...]:
    """Return the sums of a receiver that has *items* and got no digest, in at least PARTS_ASKED parts."""
    fingerprints = [item.fingerprint() for item in items]
    parts = PARTS_ASKED
    while parts < PARTS_MAX and parts * ITEMS_PER_PART < len(fingerprints):
        parts *= 2
    return _sums(fingerprints, parts)


def restated(differ: Differ, epoch: int, items: Iterable[Item]) -> Iterator[Restate]:
    """Return the answer of the announcing gateway to *differ*: each part that differs."""
    parts = len(differ.sums)
    by_part: list[list[Item]] = [[] for _ in range(parts)]
    sums = [0] * parts
    for item in items:
        fingerprint = item.fingerprint()
        by_part[fingerprint % parts].append(item)
        sums[fingerprint % parts] += fingerprint
    for part, part_items in enumerate(by_part):
        if sums[part] % MODULUS != differ.sums[part]:
            interests = tuple(item for item in part_items if isinstance(item, Interest))
            advertisements = tuple(item for item in part_items if isinstance(item, Advertise))
            yield Restate(differ.kind, parts, part, epoch, interests, advertisements)


class RestatedParts(Generic[T]):
    """The items of a peer by part, while it restates part by part: found once, because each part would take as long as
    all of them.
    """

    def __init__(self, parts: int, items: Iterable[T]) -> None:
        self.parts = parts
        by_part: dict[int, list[T]] = {}
        for item in items:
            by_part.setdefault(item.fingerprint() % parts, []).append(item)
        self._items: dict[int, Sequence[T]] = {**by_part}

    def replace(self, part: int, items: Sequence[T]) -> Sequence[T]:
        """Replace the items of *part* by *items*; return those that were there."""
        before = self._items.get(part, ())
        self._items[part] = items
        return before


def of_part(restate: Restate, items: Iterable[T]) -> Iterator[T]:
    """Return those of *items* that belong to the part of *restate*."""
    return (item for item in items if item.fingerprint() % restate.parts == restate.part)


def _sums(fingerprints: Iterable[int], parts: int) -> tuple[int, ...]:
    sums = [0] * parts
    for fingerprint in fingerprints:
        sums[fingerprint % parts] += fingerprint
    return tuple(each % MODULUS for each in sums)
