"""Chunks of files between gateways: who asks whom, so that each chunk enters a site once, however many want it.

Each chunk has an *owner* in a site: of the gateways that take files and can be reached, the one with the highest hash
of its number and the chunk (rendezvous hashing, Thaler and Ravishankar 1998). Whoever lacks a chunk asks its owner, and
the owner asks a gateway that has it: the one that had the last chunk, or else all, and fetches from the first that
answers. Messages are events of QoS 1 for one gateway, so they wait in outboxes while an uplink is down, and come once.

    HELLO asks                  the sender takes files; to all gateways of its site when it starts, which answer
    QUESTION sha256             who has the chunk? To all gateways
    OFFER sha256                the sender has it
    FETCH run number sha256     send it. A repetition has the same number
    CHUNK sha256 bytes          here it is
    DENIAL sha256               the sender does not have it, and found nobody who has
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import field
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.digests import blake2b
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import CHUNK_BYTES_MAX, CHUNK_FETCHES_MAX, CHUNK_FETCHES_UNDER_WAY

HASH_BYTES: Final = 32
_FETCH: Final = Struct(">II")
LOOK_FOR: Final[Duration] = 30 * SECOND
"""So long a question may take across a congested uplink. A question that finds an uplink down is asked again."""
RETRY_AFTER: Final[Duration] = 60 * SECOND
"""The first repetition of a FETCH; each further one waits twice as long, up to RETRY_MAX. Only a gateway that crashed
while it read the chunk has to be asked again: whatever is in an outbox comes by itself."""
RETRY_MAX: Final[Duration] = 3_600 * SECOND
BAD_MAX: Final = 3
"""Chunks that came with other bytes than their hash, after which one is given up."""
BARRED_FOR: Final[Duration] = 600 * SECOND
"""Such a chunk is not fetched again so soon: each attempt costs it three times on an uplink."""
ANSWERED_MAX: Final = 4_096
"""Requests of other gateways that are remembered, so that a repetition is not answered twice; 100 bytes each."""
NOBODY: Final = -1


class ExchangeKind(IntEnum):
    """The first byte of a message."""

    HELLO = 1
    QUESTION = 2
    OFFER = 3
    FETCH = 4
    CHUNK = 5
    DENIAL = 6


class ExchangeBusy(EdgebrokerError):
    """So many chunks are wanted from other gateways that no more are looked for now."""


class ExchangeMessage(NamedTuple):
    """A message for *gateway*; NOBODY in particular: for all of the site, or of the federation with `is_for_all`."""

    gateway: int
    payload: bytes
    is_for_all: bool = False

    @property
    def is_bulk(self) -> bool:
        """Whether it has a chunk in it, and yields to live traffic."""
        return self.payload[0] == ExchangeKind.CHUNK


class ReadForPeer(NamedTuple):
    """The gateway *peer* is to be sent the chunk: answer with `chunk_read`."""

    peer: int
    sha256: bytes


class TakeChunk(NamedTuple):
    """A chunk came: store it, and answer with `arrived` or `arrived_damaged`. `is_wanted`: it was asked for."""

    sha256: bytes
    data: bytes
    is_wanted: bool


class GiveUpChunk(NamedTuple):
    """Nobody has the chunk, or nobody sends what its hash is of."""

    sha256: bytes


ExchangeEffect: TypeAlias = ExchangeMessage | ReadForPeer | TakeChunk | GiveUpChunk


class SitePaths(NamedTuple):
    """What the exchange has to know of the topology."""

    number: int
    """Of this gateway."""
    is_mate: Callable[[int], bool]
    """Whether a gateway is of the same site."""
    is_reachable: Callable[[int], bool]


@dataclass(slots=True)
class ChunkFetch:
    """A chunk that this gateway wants."""

    number: int
    """Of its FETCH."""
    source: int = NOBODY
    """The gateway that is to send it; NOBODY while one is looked for, or it has not begun."""
    due: Instant = 0
    retry_after: Duration = RETRY_AFTER
    has_begun: bool = False
    is_own_search: bool = False
    """The owner could not help."""
    bad: int = 0
    peers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Gateway of the site that waits for it here -> run and number of its FETCH."""


class ChunkExchange:
    """The part of one gateway. *run* names this run; *holds* tells whether a chunk is stored here."""

    def __init__(self, paths: SitePaths, run: int, holds: Callable[[bytes], bool]) -> None:
        self.fetched = 0
        """Chunks that came from other gateways."""
        self.sent = 0
        """Chunks that were sent to other gateways."""
        self.unreadable = 0
        """Messages of other gateways that could not be read."""
        self.wanted: dict[bytes, ChunkFetch] = {}
        self.mates: set[int] = set()
        """Gateways of the site that take files."""
        self._paths = paths
        self._run = run
        self._holds = holds
        self._last_number = 0
        self._last_source = NOBODY
        self._queue: deque[bytes] = deque()
        self._under_way = 0
        self._answered: OrderedDict[tuple[int, int, int], None] = OrderedDict()
        self._barred: dict[bytes, Instant] = {}

    def start(self) -> list[ExchangeEffect]:
        """Tell the other gateways of the site that this one takes files."""
        return [ExchangeMessage(NOBODY, bytes((ExchangeKind.HELLO, True)))]

    def resume(self, before: ChunkExchange, now: Instant) -> list[ExchangeEffect]:
        """Go on with what *before* wanted, whose topology was another one."""
        self.mates = {mate for mate in before.mates if self._paths.is_mate(mate)}
        self.fetched, self.sent, self.unreadable = before.fetched, before.sent, before.unreadable
        self._last_number = before._last_number
        self._answered = before._answered
        for sha256, fetch in before.wanted.items():
            self._want(sha256).peers.update(fetch.peers)
        return [*self.start(), *self._go_on(now)]

    def want(self, sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        """Get a chunk that is not stored here, if that is not under way already. Raises ExchangeBusy."""
        if sha256 in self.wanted:
            return []
        if self._barred.get(sha256, now) > now:
            return [GiveUpChunk(sha256)]
        if len(self.wanted) >= CHUNK_FETCHES_MAX:
            raise ExchangeBusy("too many chunks are wanted from other gateways")
        self._want(sha256)
        return self._go_on(now)

    def owner_of(self, sha256: bytes) -> int:
        """The gateway of this site that asks other sites for the chunk."""
        candidates = [mate for mate in self.mates if self._paths.is_reachable(mate)]
        return max(
            (self._paths.number, *candidates),
            key=lambda number: blake2b(sha256 + number.to_bytes(4), digest_size=8).digest(),
        )

    @property
    def due(self) -> Instant | None:
        """When to call `fire`; None if nothing waits."""
        return min((fetch.due for fetch in self.wanted.values() if fetch.has_begun), default=None)

    def fire(self, now: Instant) -> list[ExchangeEffect]:
        """Repeat what was not answered, and give up what nobody has."""
        effects: list[ExchangeEffect] = []
        for sha256, fetch in list(self.wanted.items()):
            if not fetch.has_begun or fetch.due > now:
                continue
            if fetch.source == NOBODY:
                effects += self._give_up(sha256)
                continue
            fetch.retry_after = min(2 * fetch.retry_after, RETRY_MAX)
            fetch.due = now + fetch.retry_after
            effects.append(self._fetch_message(sha256, fetch))
            if not self._paths.is_reachable(fetch.source):  # another may have it, and sends it first
                fetch.is_own_search = True
                effects.append(_question(sha256))
        return [*effects, *self._go_on(now)]

    # -- messages of other gateways -------------------------------------------------------------------------------

    def received(self, sender: int, payload: bytes, now: Instant) -> list[ExchangeEffect]:
        """Handle a message of the gateway *sender*. One that cannot be read is counted."""
        try:
            kind, body = ExchangeKind(payload[0]), payload[1:]
            if kind is ExchangeKind.HELLO:
                return self._hello(sender, asks=bool(body[0]))
            head = _FETCH.size if kind is ExchangeKind.FETCH else 0
            sha256, rest = body[head : head + HASH_BYTES], body[head + HASH_BYTES :]
            if len(sha256) != HASH_BYTES or len(rest) > (CHUNK_BYTES_MAX if kind is ExchangeKind.CHUNK else 0):
                raise ValueError("a message has another length")
        except (ValueError, IndexError):
            self.unreadable += 1
            return []
        match kind:
            case ExchangeKind.QUESTION:
                has_it = sender != self._paths.number and self._holds(sha256)
                return [_message(sender, ExchangeKind.OFFER, sha256)] if has_it else []
            case ExchangeKind.OFFER:
                return self._offer(sender, sha256, now)
            case ExchangeKind.FETCH:
                return self._fetch(sender, _FETCH.unpack(body[:head]), sha256, now)
            case ExchangeKind.CHUNK:
                return [TakeChunk(sha256, rest, sha256 in self.wanted)] if rest else []
            case ExchangeKind.DENIAL:
                return self._denial(sender, sha256, now)
        return []

    def _hello(self, sender: int, asks: bool) -> list[ExchangeEffect]:
        if not self._paths.is_mate(sender) or sender == self._paths.number:
            return []
        self.mates.add(sender)
        return [ExchangeMessage(sender, bytes((ExchangeKind.HELLO, False)))] if asks else []

    def _offer(self, sender: int, sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        fetch = self.wanted.get(sha256)
        if fetch is None or not fetch.has_begun:
            return []
        if fetch.source != NOBODY and self._paths.is_reachable(fetch.source):
            return []  # one was sooner
        self._last_source = sender
        return [self._begin_fetch(sha256, fetch, sender, now)]

    def _fetch(self, sender: int, request: tuple[int, ...], sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        run, number = request
        if (sender, run, number) in self._answered:
            return []  # the chunk is in an outbox, or on its way
        if not self._holds(sha256):
            is_owner = self._paths.is_mate(sender) and self.owner_of(sha256) == self._paths.number
            if not is_owner and sha256 not in self.wanted:
                return [_message(sender, ExchangeKind.DENIAL, sha256)]
            try:
                effects = self.want(sha256, now)
            except ExchangeBusy:
                return [_message(sender, ExchangeKind.DENIAL, sha256)]
            if sha256 not in self.wanted:  # it was given up a short time ago
                return [_message(sender, ExchangeKind.DENIAL, sha256)]
            self.wanted[sha256].peers[sender] = run, number
            return effects
        return [self._answer(sender, run, number, sha256)]

    def _answer(self, peer: int, run: int, number: int, sha256: bytes) -> ReadForPeer:
        self._answered[peer, run, number] = None
        if len(self._answered) > ANSWERED_MAX:
            self._answered.popitem(last=False)
        return ReadForPeer(peer, sha256)

    def _denial(self, sender: int, sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        fetch = self.wanted.get(sha256)
        if fetch is None or fetch.source != sender:
            return []
        if self._last_source == sender:
            self._last_source = NOBODY
        fetch.is_own_search = True
        return [self._look(sha256, fetch, now)]

    # -- what the store did ---------------------------------------------------------------------------------------

    def chunk_read(self, peer: int, sha256: bytes, data: bytes) -> list[ExchangeEffect]:
        """The answer to ReadForPeer; without *data* the chunk could not be read."""
        if not data:  # who asks again will find it elsewhere, under another number
            return [_message(peer, ExchangeKind.DENIAL, sha256)]
        self.sent += 1
        return [ExchangeMessage(peer, bytes((ExchangeKind.CHUNK,)) + sha256 + data)]

    def arrived(self, sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        """A chunk is stored, whoever sent it: gateways that wait for it here get it."""
        fetch = self.wanted.pop(sha256, None)
        if fetch is None:
            return []
        self.fetched += 1
        self._under_way -= fetch.has_begun
        answers = [self._answer(peer, *request, sha256) for peer, request in sorted(fetch.peers.items())]
        return [*answers, *self._go_on(now)]

    def arrived_damaged(self, sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        """What came is not what its hash says, or could not be stored: it is looked for again, a few times."""
        fetch = self.wanted.get(sha256)
        if fetch is None:
            return []
        fetch.bad += 1
        if fetch.bad >= BAD_MAX:
            self._barred = {name: until for name, until in self._barred.items() if until > now}
            if len(self._barred) < CHUNK_FETCHES_MAX:
                self._barred[sha256] = now + BARRED_FOR
            return [*self._give_up(sha256), *self._go_on(now)]
        self._last_source = NOBODY
        fetch.is_own_search = True
        return [self._look(sha256, fetch, now)]

    def give_up(self, sha256: bytes, now: Instant) -> list[ExchangeEffect]:
        """This gateway has no room for the chunk."""
        return [*self._give_up(sha256), *self._go_on(now)] if sha256 in self.wanted else []

    # -- inside ---------------------------------------------------------------------------------------------------

    def _want(self, sha256: bytes) -> ChunkFetch:
        self._last_number += 1
        fetch = self.wanted[sha256] = ChunkFetch(self._last_number)
        self._queue.append(sha256)
        return fetch

    def _go_on(self, now: Instant) -> list[ExchangeEffect]:
        """Begin with chunks that wait, as many as may be under way."""
        effects: list[ExchangeEffect] = []
        while self._queue and self._under_way < CHUNK_FETCHES_UNDER_WAY:
            sha256 = self._queue.popleft()
            fetch = self.wanted.get(sha256)
            if fetch is None or fetch.has_begun:
                continue
            fetch.has_begun = True
            self._under_way += 1
            owner = self.owner_of(sha256)
            source = owner if owner != self._paths.number else self._last_source
            if source != NOBODY and self._paths.is_reachable(source):
                effects.append(self._begin_fetch(sha256, fetch, source, now))
            else:
                effects.append(self._look(sha256, fetch, now))
        return effects

    def _look(self, sha256: bytes, fetch: ChunkFetch, now: Instant) -> ExchangeMessage:
        fetch.source = NOBODY
        fetch.due = now + LOOK_FOR
        return _question(sha256)

    def _begin_fetch(self, sha256: bytes, fetch: ChunkFetch, source: int, now: Instant) -> ExchangeMessage:
        self._last_number += 1
        fetch.number, fetch.source, fetch.retry_after = self._last_number, source, RETRY_AFTER
        fetch.due = now + RETRY_AFTER
        return self._fetch_message(sha256, fetch)

    def _fetch_message(self, sha256: bytes, fetch: ChunkFetch) -> ExchangeMessage:
        head = bytes((ExchangeKind.FETCH,)) + _FETCH.pack(self._run, fetch.number)
        return ExchangeMessage(fetch.source, head + sha256)

    def _give_up(self, sha256: bytes) -> Iterator[ExchangeEffect]:
        fetch = self.wanted.pop(sha256)
        self._under_way -= fetch.has_begun
        yield GiveUpChunk(sha256)
        for peer in sorted(fetch.peers):
            yield _message(peer, ExchangeKind.DENIAL, sha256)


def answer_without_files(payload: bytes) -> bytes:
    """What a gateway that takes no files answers to *payload*: it denies a FETCH, which otherwise is repeated for ever.

    Empty: nothing is to be answered. Gateways of the site may ask it that have not heard of its new settings.
    """
    if payload[:1] != bytes((ExchangeKind.FETCH,)) or len(payload) != 1 + _FETCH.size + HASH_BYTES:
        return b""
    return bytes((ExchangeKind.DENIAL,)) + payload[-HASH_BYTES:]


def _message(gateway: int, kind: ExchangeKind, sha256: bytes) -> ExchangeMessage:
    return ExchangeMessage(gateway, bytes((kind,)) + sha256)


def _question(sha256: bytes) -> ExchangeMessage:
    return ExchangeMessage(NOBODY, bytes((ExchangeKind.QUESTION,)) + sha256, is_for_all=True)
