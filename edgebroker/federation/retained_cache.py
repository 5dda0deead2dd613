"""The cache of retained messages that other gateways have answered, so that none crosses a link twice.

The cache has the answers by question, because whoever asked once, a dashboard, mostly asks the same again. With a
question, the digest of what is known goes to each gateway that is known to have answers, as with the conditional
requests of HTTP (RFC 9110 section 13): a sum of fingerprints for each part of the topics, about PART_MESSAGES of them.
The gateway sends the messages of the parts whose sums differ, and says of the others that they are unmodified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from edgebroker.federation.forwarding import aged
from edgebroker.header import EventHeader, host_of
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.interest import Interest, fingerprint_of
from edgebroker.overlay.id_allocator import is_newer
from edgebroker.overlay.messages import RETAINED_PARTS_MAX, Forward, RetainedDigest

PART_MESSAGES: Final = 16
"""Messages of a part, as far as there are enough parts. Of each message that changed, so many cross a link: 1 to 2 KB
with sensors; and a digest has 9 bytes for each part.
"""
SUMS_MAX: Final = 512
"""Parts in all digests of a question: 4.6 KB. With more messages, parts are larger."""
SUMS_MODULUS: Final = 1 << 64
ENTRY_BYTES: Final = 700
"""The memory that an answer takes beside its texts and payload."""


def part_of(topic: str, parts: int) -> int:
    """Return the part of the *parts* to which *topic* belongs; all gateways agree on it."""
    return crc32(topic.encode()) % parts


def retained_fingerprint(topic: str, header: EventHeader) -> int:
    """Return a 64-bit hash of the retained message of *topic* that was published with *header*."""
    return fingerprint_of((topic, header.publisher, header.sequence, header.published_ms))


class RetainedDigestBuilder:
    """The sums of the parts of some retained messages."""

    def __init__(self, parts: int) -> None:
        self.sums = [0] * parts

    def add(self, topic: str, fingerprint: int) -> None:
        """Add one message."""
        part = part_of(topic, len(self.sums))
        self.sums[part] = (self.sums[part] + fingerprint) % SUMS_MODULUS

    def equal_parts(self, sums: tuple[int, ...]) -> int:
        """Return the parts whose sums are those of *sums*, as bits."""
        return sum(1 << part for part, pair in enumerate(zip(self.sums, sums, strict=True)) if pair[0] == pair[1])


class _Answer(NamedTuple):
    """A message that another gateway has answered."""

    forward: Forward
    received_at: Instant
    fingerprint: int

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        forward = self.forward
        user = sum(len(name) + len(value) + 120 for name, value in forward.user)
        return ENTRY_BYTES + len(forward.topic) + len(forward.payload) + len(forward.properties) + user

    def is_over(self, now: Instant) -> bool:
        """Whether the message has expired."""
        expires_in_ms = self.forward.expires_in_ms
        return expires_in_ms is not None and self.received_at + expires_in_ms * MILLISECOND <= now


class RetainedCache:
    """Question -> gateway that has the originals -> topic -> its answer; the questions in the order of their last use.

    If there is no room for another answer, the questions that were not asked for the longest time are forgotten.
    """

    def __init__(self, bytes_max: int) -> None:
        """bytes_max: the memory that all answers may take; 0: none is kept."""
        self.bytes_max = bytes_max
        self.bytes = 0
        """The memory that all answers take."""
        self._answers: dict[Interest, dict[int, dict[str, _Answer]]] = {}

    def add(self, interest: Interest, forward: Forward, now: Instant) -> None:
        """Add an answer to the question *interest*, unless a newer one is known."""
        if not self.bytes_max:
            return
        topic, header = forward.topic, forward.header
        answer = _Answer(forward, now, retained_fingerprint(topic, header))
        gateways = self._answers.get(interest, {})
        before = gateways.get(host_of(header.publisher), {}).get(topic)
        if before is not None and not is_newer(header, before.forward.header):
            return
        growth = answer.size - (0 if before is None else before.size)
        if not self._make_room(interest, growth):
            return
        self.bytes += growth
        self._answers.setdefault(interest, {}).setdefault(host_of(header.publisher), {})[topic] = answer

    def _make_room(self, interest: Interest, growth: int) -> bool:
        """Forget other questions than *interest* until there is room for *growth* bytes; return whether there is."""
        while self.bytes + growth > self.bytes_max:
            oldest = next((each for each in self._answers if each != interest), None)
            if oldest is None:
                return False
            for gateway in list(self._answers[oldest]):
                self._forget(oldest, gateway, list(self._answers[oldest][gateway]))
        return True

    def _forget(self, interest: Interest, gateway: int, topics: Iterable[str]) -> None:
        gateways = self._answers[interest]
        for topic in topics:
            self.bytes -= gateways[gateway].pop(topic).size
        if not gateways[gateway]:
            del gateways[gateway]
        if not gateways:
            del self._answers[interest]

    def clear(self) -> None:
        """Forget all answers."""
        self._answers.clear()
        self.bytes = 0

    def digests(self, interest: Interest, now: Instant) -> tuple[RetainedDigest, ...]:
        """Return the digests of the known answers to *interest*, which is asked now."""
        gateways = self._answers.pop(interest, None)
        if gateways is None:
            return ()
        self._answers[interest] = gateways
        parts_max = RETAINED_PARTS_MAX
        while sum(_parts_for(len(topics), parts_max) for topics in gateways.values()) > SUMS_MAX and parts_max > 1:
            parts_max //= 2
        return tuple(
            RetainedDigest(gateway, tuple(self._sums(topics.values(), _parts_for(len(topics), parts_max), now).sums))
            for gateway, topics in gateways.items()
        )

    @staticmethod
    def _sums(answers: Iterable[_Answer], parts: int, now: Instant) -> RetainedDigestBuilder:
        builder = RetainedDigestBuilder(parts)
        for answer in answers:
            if not answer.is_over(now):
                builder.add(answer.forward.topic, answer.fingerprint)
        return builder

    def confirm(
        self, interest: Interest, digest: RetainedDigest, unmodified: int, asked_at: Instant, now: Instant
    ) -> list[Forward] | None:
        """Return the known answers of the parts *unmodified*, as bits, of a *digest* that was made at *asked_at*, and
        forget those of the other parts: they follow. None: some of them are not known any more.
        """
        parts = len(digest.sums)
        answers = self._answers.get(interest, {}).get(digest.gateway, {})
        builder = self._sums(answers.values(), parts, asked_at)
        wanted = unmodified & (1 << parts) - 1
        if wanted & ~builder.equal_parts(digest.sums):
            return None
        by_part = [(topic, wanted >> part_of(topic, parts) & 1) for topic in answers]
        confirmed = list(self._current((answers[topic] for topic, is_confirmed in by_part if is_confirmed), now))
        if answers:
            self._forget(interest, digest.gateway, [topic for topic, is_confirmed in by_part if not is_confirmed])
        return confirmed

    @staticmethod
    def _current(answers: Iterable[_Answer], now: Instant) -> Iterator[Forward]:
        for answer in answers:
            if not answer.is_over(now):
                yield aged(answer.forward, answer.received_at, now)


def _parts_for(count: int, most: int) -> int:
    """Return the number of parts, a power of two up to *most*, for *count* messages."""
    parts = 1
    while parts < most and parts * PART_MESSAGES < count:
        parts *= 2
    return parts
