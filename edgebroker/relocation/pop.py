"""POP: traced events are answered one by one, and a request walks towards where most readers are [GRAPE 3].

It needs no bit vectors, so it is for gateways that are short of memory; it costs a message for each traced event and
link. A traced event is answered with a TRM to the peer that it came from, as soon as all peers that got a copy have
answered. From the answers each gateway knows, as a running average, how many clients each peer leads to. The RRM goes
from the publisher's gateway to the peer that leads to more than half of all clients, and so on; where there is none it
has arrived at the weighted median of the tree.

The core draws no random numbers, so `TraceSampler.is_traced` is given one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MINUTE, SECOND, Duration, Instant
from edgebroker.relocation.messages import (
    ClosestBroker,
    RelocationAnswer,
    RelocationEffect,
    RelocationRequest,
    SendRelocation,
    TraceResult,
)

WINDOW: Final[Duration] = MINUTE
NEW_SHARE: Final = 0.25
"""The weight of the latest sample in a running average."""
TRACE_TIMEOUT: Final[Duration] = 2 * SECOND
"""After that, an answer counts as missing."""
WAITING_MAX: Final = 20_000
"""Traced events that wait for answers at a gateway. Others are not traced, and counted."""


@dataclass(frozen=True, slots=True)
class PopOptions:
    """How POP takes samples."""

    traces: int = 100
    """P_threshold: the traced events after which a closer gateway is looked for."""
    window_traces: int = 50
    """N: no more events are traced in a window of a minute."""
    counts_misses: bool = True
    """Whether a peer that got no copy of a traced event has a sample of 0; otherwise branches that few events take look
    too large. The source does not say.
    """


class TraceSampler:
    """Decides which events of a publisher are traced: in each window the next one with the probability 1 - T/N, where T
    have been traced.
    """

    __slots__ = ("_count", "_ends_at", "_options", "left")

    def __init__(self, options: PopOptions) -> None:
        self._options = options
        self._count = 0
        self._ends_at: Instant | None = None
        self.left = options.traces
        """Answers until a closer gateway is looked for."""

    @property
    def probability(self) -> float:
        """Return P_trace, the probability with which the next event of this window is traced."""
        return 1 - self._count / self._options.window_traces

    def is_traced(self, now: Instant, chance: float) -> bool:
        """Return whether the next event is traced. chance: a random number, 0 <= chance < 1."""
        if self._ends_at is None or self._ends_at <= now:
            self._ends_at, self._count = now + WINDOW, 0
        traced = chance < self.probability
        self._count += traced
        return traced


class PublisherProfile:
    """PPTable: how many clients of a publisher are here and behind each peer, as running averages."""

    __slots__ = ("clients", "local")

    def __init__(self) -> None:
        self.clients: dict[str, float] = {}
        """Peer -> the clients behind it."""
        self.local: float | None = None
        """This gateway's own clients; None: no event has been traced."""

    def add(self, peer: str, clients: int) -> None:
        """Add a sample for *peer*; the first one is the average."""
        self.clients[peer] = _averaged(self.clients.get(peer), clients)

    def add_local(self, clients: int) -> None:
        """Add a sample of the gateway's own clients."""
        self.local = _averaged(self.local, clients)

    def next_hop(self, request: RelocationRequest, sender: str | None) -> tuple[str | None, float]:
        """Return the peer that leads to more than half of all clients, and how many are on this side of it.

        sender: the peer that the request came from, None: none. No peer is returned twice to the same request, as it
        could be with averages that do not agree.
        """
        behind = {peer: clients for peer, clients in self.clients.items() if peer != sender}
        everything = (self.local or 0.0) + request.clients + sum(behind.values())
        for peer, clients in behind.items():
            if clients > everything - clients and peer not in request.brokers:
                return peer, everything - clients
        return None, 0.0


def _averaged(average: float | None, sample: int) -> float:
    return sample if average is None else NEW_SHARE * sample + (1 - NEW_SHARE) * average


@dataclass(slots=True)
class TracedEvent:
    """A traced event that waits for answers."""

    upstream: str | None
    missing: set[str]
    clients: int
    due: Instant
    is_partial: bool = False


class PopTracer:
    """The traced events and profiles of all publishers at one gateway."""

    def __init__(self, name: str, options: PopOptions) -> None:
        self._name = name
        self._options = options
        self._samplers: dict[int, TraceSampler] = {}  # of own publishers
        self._profiles: dict[int, PublisherProfile] = {}
        self._waiting: dict[tuple[int, int], TracedEvent] = {}  # the oldest first
        self.refused = 0
        """Traced events that were not recorded because too many wait for answers."""

    def is_traced(self, publisher: int, now: Instant, chance: float) -> bool:
        """Return whether the next event of an own publisher is traced. chance: a random number, 0 <= chance < 1."""
        sampler = self._samplers.get(publisher)
        if sampler is None:
            sampler = self._samplers[publisher] = TraceSampler(self._options)
        return sampler.is_traced(now, chance)

    def record(
        self, publisher: int, sequence: int, upstream: str | None, served: Iterable[str], clients: int, now: Instant
    ) -> list[RelocationEffect]:
        """Record a traced event.

        upstream: the peer that it came from, None: an own publisher. served: the peers to which copies went. clients:
        the local clients that got it.
        """
        missing = set(served)
        if missing and len(self._waiting) >= WAITING_MAX:
            self.refused += 1
            return [] if upstream is None else [SendRelocation(upstream, TraceResult(publisher, sequence, 0, True))]
        profile = self._profiles.setdefault(publisher, PublisherProfile())
        profile.add_local(clients)
        if self._options.counts_misses:
            for peer in profile.clients:
                if peer not in missing and peer != upstream:
                    profile.add(peer, 0)
        traced = TracedEvent(upstream, missing, clients, now + TRACE_TIMEOUT)
        if missing:
            self._waiting[publisher, sequence] = traced
            return []
        return self._answer(publisher, sequence, traced)

    def receive_result(self, peer: str, result: TraceResult) -> list[RelocationEffect]:
        """Handle a TRM of *peer*. One that comes too late is ignored."""
        traced = self._waiting.get((result.publisher, result.sequence))
        if traced is None or peer not in traced.missing:
            return []
        traced.missing.discard(peer)
        traced.is_partial |= result.is_partial
        traced.clients += result.clients
        if not result.is_partial:
            self._profiles.setdefault(result.publisher, PublisherProfile()).add(peer, result.clients)
        if traced.missing:
            return []
        del self._waiting[result.publisher, result.sequence]
        return self._answer(result.publisher, result.sequence, traced)

    def receive_request(self, request: RelocationRequest, sender: str | None) -> list[RelocationEffect]:
        """Handle an RRM: send it on to where most clients are, or answer that this gateway is the closest."""
        profile = self._profiles.get(request.publisher, PublisherProfile())
        hop, clients = profile.next_hop(request, sender)
        brokers = (self._name, *request.brokers)
        if hop is not None:
            return [SendRelocation(hop, RelocationRequest(request.publisher, clients, brokers))]
        return self.receive_answer(RelocationAnswer(request.publisher, brokers))

    def receive_answer(self, answer: RelocationAnswer) -> list[RelocationEffect]:
        """Handle a RAM: pass it back on the way of the request, whose end is the publisher's gateway."""
        if answer.brokers[-1] == self._name:
            return [ClosestBroker(answer.publisher, answer.brokers)]
        return [SendRelocation(answer.brokers[answer.brokers.index(self._name) + 1], answer)]

    @property
    def next_due(self) -> Instant | None:
        """Return when to call `fire`; None: no event waits."""
        return next((traced.due for traced in self._waiting.values()), None)

    def fire(self, now: Instant) -> list[RelocationEffect]:
        """Answer for the traced events of which an answer is overdue."""
        effects: list[RelocationEffect] = []
        for (publisher, sequence), traced in [*self._waiting.items()]:
            if traced.due > now:
                break
            del self._waiting[publisher, sequence]
            traced.is_partial = True
            effects += self._answer(publisher, sequence, traced)
        return effects

    def forget(self, publisher: int) -> None:
        """Forget a publisher that has moved."""
        self._samplers.pop(publisher, None)
        self._profiles.pop(publisher, None)
        for key in [key for key in self._waiting if key[0] == publisher]:
            del self._waiting[key]

    def _answer(self, publisher: int, sequence: int, traced: TracedEvent) -> list[RelocationEffect]:
        """Answer upstream. At the publisher's gateway, begin a request if enough events were traced."""
        if traced.upstream is not None:
            result = TraceResult(publisher, sequence, traced.clients, traced.is_partial)
            return [SendRelocation(traced.upstream, result)]
        sampler = self._samplers.get(publisher)
        if sampler is None:
            return []
        sampler.left -= not traced.is_partial
        if sampler.left > 0 or any(key[0] == publisher for key in self._waiting):
            return []
        sampler.left = self._options.traces
        return self.receive_request(RelocationRequest(publisher, 0.0, ()), None)
