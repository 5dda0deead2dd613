"""Summaries of sessions: for each durable session of a gateway, 32 bits of a hash of its client identifier.

A summary is a multiset, because two clients of one gateway may have the same fingerprint: with 100,000 sessions that is
so for one pair. It is sorted, in BUCKETS arrays by the first byte of the fingerprint, so that a change moves 1.6 KB of
100,000 sessions, and so that two gateways whose summaries differ exchange only the arrays that do.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias

from edgebroker.cbor import CborReader, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.digests import blake2b
from edgebroker.errors import EdgebrokerError
from edgebroker.overlay.link.codec.messages import LINK_CBOR

FINGERPRINT_BYTES: Final = 4
"""The chance that a client identifier has the fingerprint of another one is 1 in 43,000 with 100,000 sessions. Then a
question crosses the federation in vain; 8 bytes would cost twice the memory in order to save it.
"""
BUCKETS: Final = 256
BUCKET_SHIFT: Final = 24
SUMS_MODULUS: Final = 1 << 64
BUCKET_SUMS_MODULUS: Final = 1 << 32
ANSWER_BYTES_MAX: Final = 32 * 1024
"""Of one answer; the rest is asked for again. A bucket of more than that, with 2 million sessions, crosses whole."""
CHANGES_MAX: Final = 2_000
"""Changes in one event, of at most 14 bytes each."""
EMPTY: Final = array("I")
_ADDED: Final = Struct(">IQ")
_BUCKET: Final = Struct(">BI")
_IS_LITTLE: Final = sys.byteorder == "little"

Fingerprints: TypeAlias = "array[int]"
Digest: TypeAlias = tuple[int, int]
"""The number of fingerprints, and their sum."""


def client_fingerprint(client_id: str) -> int:
    """Return the fingerprint of *client_id*, 32 bits; all gateways agree on it."""
    return int.from_bytes(blake2b(client_id.encode("utf-8", "surrogatepass"), digest_size=FINGERPRINT_BYTES).digest())


def _write(fingerprints: Fingerprints) -> bytes:
    """Return *fingerprints* as bytes, the high byte of each first."""
    if not _IS_LITTLE:
        return fingerprints.tobytes()
    swapped = fingerprints[:]
    swapped.byteswap()
    return swapped.tobytes()


def _read(data: bytes) -> Fingerprints:
    fingerprints = array("I", data)
    if _IS_LITTLE:
        fingerprints.byteswap()
    return fingerprints


class SessionSummary:
    """The fingerprints of the durable sessions of one gateway."""

    def __init__(self) -> None:
        self.count = 0
        self.buckets: dict[int, Fingerprints] = {}
        """First byte -> the fingerprints that begin with it, sorted; none is empty."""
        self._sum = 0

    def __contains__(self, fingerprint: int) -> bool:
        bucket = self.buckets.get(fingerprint >> BUCKET_SHIFT)
        if bucket is None:
            return False
        at = bisect_left(bucket, fingerprint)
        return at < len(bucket) and bucket[at] == fingerprint

    @property
    def digest(self) -> Digest:
        """The digest of the summary. Equal digests mean equal summaries, but for 1 chance in 4 billion."""
        return self.count, self._sum

    @property
    def memory_bytes(self) -> int:
        """The memory of the fingerprints."""
        return sum(bucket.__sizeof__() for bucket in self.buckets.values())

    def add(self, fingerprint: int) -> None:
        """Add the fingerprint of one more session."""
        bucket = self.buckets.setdefault(fingerprint >> BUCKET_SHIFT, array("I"))
        self.insert(bucket, bisect_left(bucket, fingerprint), fingerprint)

    def insert(self, bucket: Fingerprints, at: int, fingerprint: int) -> None:
        """Put *fingerprint* at its place *at* of *bucket*."""
        bucket.insert(at, fingerprint)
        self.count += 1
        self._sum = (self._sum + fingerprint) % SUMS_MODULUS

    def remove(self, fingerprint: int) -> None:
        """Remove the fingerprint of one session; one that is not there is ignored."""
        bucket = self.buckets.get(fingerprint >> BUCKET_SHIFT, EMPTY)
        at = bisect_left(bucket, fingerprint)
        if at < len(bucket) and bucket[at] == fingerprint:
            self.delete(bucket, at)

    def delete(self, bucket: Fingerprints, at: int) -> None:
        """Remove the fingerprint at the place *at* of *bucket*."""
        fingerprint = bucket.pop(at)
        self.count -= 1
        self._sum = (self._sum - fingerprint) % SUMS_MODULUS
        if not bucket:
            del self.buckets[fingerprint >> BUCKET_SHIFT]

    def replace(self, number: int, fingerprints: Fingerprints) -> Fingerprints:
        """Let bucket *number* consist of *fingerprints*, which are sorted. Return what it was before."""
        before = self.buckets.pop(number, EMPTY)
        if fingerprints:
            self.buckets[number] = fingerprints
        self.count += len(fingerprints) - len(before)
        self._sum = (self._sum + sum(fingerprints) - sum(before)) % SUMS_MODULUS
        return before

    def sums(self, first: int) -> tuple[int, ...]:
        """Return the sums of the buckets from number *first* on."""
        return tuple(sum(self.buckets.get(each, EMPTY)) % BUCKET_SUMS_MODULUS for each in range(first, BUCKETS))


class OwnSessions(SessionSummary):
    """The summary of this gateway, with the client identifiers: 8 bytes more for each."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: dict[int, list[str]] = {}  # as `buckets`

    def clients_of(self, fingerprint: int) -> tuple[str, ...]:
        """Return the clients with *fingerprint*: one, as a rule."""
        return tuple(client for _, client in self._places_of(fingerprint))

    def begin(self, client_id: str) -> bool:
        """Add the session of *client_id*; return whether it is new."""
        fingerprint = client_fingerprint(client_id)
        if any(client == client_id for _, client in self._places_of(fingerprint)):
            return False
        number = fingerprint >> BUCKET_SHIFT
        bucket = self.buckets.setdefault(number, array("I"))
        at = bisect_left(bucket, fingerprint)
        self.insert(bucket, at, fingerprint)
        self._clients.setdefault(number, []).insert(at, client_id)
        return True

    def end(self, client_id: str) -> bool:
        """Remove the session of *client_id*; return whether there was one."""
        fingerprint = client_fingerprint(client_id)
        for at, client in self._places_of(fingerprint):
            if client == client_id:
                number = fingerprint >> BUCKET_SHIFT
                del self._clients[number][at]
                self.delete(self.buckets[number], at)
                return True
        return False

    def _places_of(self, fingerprint: int) -> Iterator[tuple[int, str]]:
        """Iterate over the clients with *fingerprint*, each with its place in the bucket."""
        bucket = self.buckets.get(fingerprint >> BUCKET_SHIFT, EMPTY)
        at = bisect_left(bucket, fingerprint)
        while at < len(bucket) and bucket[at] == fingerprint:
            yield at, self._clients[fingerprint >> BUCKET_SHIFT][at]
            at += 1


# -- what gateways tell each other ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """The sessions that have ended and begun at a gateway since its previous event; with neither, its digest alone."""

    run: bytes
    """The run of the gateway; versions are those of one run."""
    version: int
    """Grows with every event that has changes."""
    digest: Digest
    """Of the summary after the changes, and after those of the events that follow at once."""
    has_more: bool = False
    """Whether others follow at once."""
    wants_answer: bool = False
    """Whether all other gateways are to tell their digests."""
    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    """Fingerprints, each with the milliseconds since 1970 at which the client connected."""

    def encode(self) -> bytes:
        """Return the changes as the payload of an event."""
        removed = _write(array("I", self.removed))
        added = b"".join(_ADDED.pack(*each) for each in self.added)
        return encode_cbor(
            [_CHANGES, self.run, self.version, *self.digest, self.has_more, self.wants_answer, removed, added]
        )


@dataclass(frozen=True, slots=True)
class SummaryQuestion:
    """The question of a gateway whose copy of the receiver's summary differs."""

    first: int
    """The bucket from which on it asks."""
    sums: tuple[int, ...] = ()
    """Of the buckets of its copy from *first* on; none: it asks for all that is there."""

    def encode(self) -> bytes:
        """Return the question as the payload of an event."""
        return encode_cbor([_QUESTION, self.first, _write(array("I", self.sums))])


@dataclass(frozen=True, slots=True)
class SummaryAnswer:
    """Buckets of a summary, as they are after the changes up to *version*."""

    run: bytes
    version: int
    digest: Digest
    first: int
    """The first bucket about which something is said..."""
    until: int
    """...and the one behind the last; BUCKETS: that was all."""
    is_whole: bool
    """Whether buckets between the two that are not told are empty. If not, those are equal to what was asked."""
    buckets: Mapping[int, Fingerprints]

    def encode(self) -> bytes:
        """Return the answer as the payload of an event."""
        heads = b"".join(_BUCKET.pack(number, len(each)) for number, each in self.buckets.items())
        content = b"".join(map(_write, self.buckets.values()))
        return encode_cbor(
            [_ANSWER, self.run, self.version, *self.digest, self.first, self.until, self.is_whole, heads, content]
        )


_CHANGES, _QUESTION, _ANSWER = range(3)
_FIELDS: Final[dict[int, list[type]]] = {
    _CHANGES: [bytes, int, int, int, bool, bool, bytes, bytes],
    _QUESTION: [int, bytes],
    _ANSWER: [bytes, int, int, int, int, int, bool, bytes, bytes],
}
Statement: TypeAlias = SessionChanges | SummaryQuestion | SummaryAnswer


def answer_to(question: SummaryQuestion, own: SessionSummary, run: bytes, version: int) -> SummaryAnswer:
    """Return the answer to *question*: the buckets of *own* that differ, as far as ANSWER_BYTES_MAX go."""
    buckets: dict[int, Fingerprints] = {}
    size, until = 0, question.first
    for number in range(question.first, BUCKETS):
        bucket = own.buckets.get(number, EMPTY)
        is_equal = (
            sum(bucket) % BUCKET_SUMS_MODULUS == question.sums[number - question.first] if question.sums else not bucket
        )
        if not is_equal:
            size += _BUCKET.size + FINGERPRINT_BYTES * len(bucket)
            if size > ANSWER_BYTES_MAX and buckets:
                break
            buckets[number] = bucket
        until = number + 1
    return SummaryAnswer(run, version, own.digest, question.first, until, not question.sums, buckets)


def read_statement(payload: bytes) -> Statement | None:
    """Return what a gateway tells in *payload*; None if it cannot be read."""
    try:
        value: Any = CborReader(payload, LINK_CBOR).item()
        if type(value) is not list or not value or [type(each) for each in value[1:]] != _FIELDS.get(value[0]):
            return None
        if value[0] == _CHANGES:
            run, version, count, total, has_more, wants_answer, removed, added = value[1:]
            return SessionChanges(
                run,
                version,
                (count, total),
                has_more,
                wants_answer,
                tuple(_read(removed)),
                tuple(_ADDED.iter_unpack(added)),
            )
        if value[0] == _QUESTION:
            first, sums = value[1], tuple(_read(value[2]))
            return SummaryQuestion(first, sums) if len(sums) in (0, BUCKETS - first) and 0 <= first < BUCKETS else None
        run, version, count, total, first, until, is_whole, heads, content = value[1:]
        if not 0 <= first < until <= BUCKETS:
            return None
        buckets = _buckets(_BUCKET.iter_unpack(heads), _read(content))
        return SummaryAnswer(run, version, (count, total), first, until, is_whole, buckets)
    except (EdgebrokerError, ValueError, StructError):
        return None


def _buckets(heads: Iterable[tuple[int, int]], content: Fingerprints) -> dict[int, Fingerprints]:
    """Return the buckets with the numbers and sizes *heads*. Raises ValueError if *content* is not theirs."""
    buckets, at = {}, 0
    for number, size in heads:
        bucket = array("I", sorted(content[at : at + size]))
        if len(bucket) != size or (bucket and not bucket[0] >> BUCKET_SHIFT == number == bucket[-1] >> BUCKET_SHIFT):
            raise ValueError(f"bucket {number} has other fingerprints")
        buckets[number] = bucket
        at += size
    return buckets
